//! The command line from outside: exit codes, output, errors.

use sandgate_tests::support::{Cli, component, drive, eventually, odd_names, running, unique_sleep};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

#[test]
fn exec_passes_output_and_exit_code_on() {
    drive(async {
        let cli = Cli::new();
        let output = cli.run(&["exec", "-c", "echo out; echo err >&2; exit 3"]).await;
        assert_eq!((output.code, output.text().as_str(), output.stderr.as_str()), (Some(3), "out\n", "err\n"));
        for (script, code) in
            [("exit 0", 0), ("exit 255", 255), ("kill -9 $$", 137), ("kill -TERM $$", 143), ("nothing-like-it", 127)]
        {
            cli.run(&["exec", "-c", script]).await.expect(code);
        }
        let output = cli.run(&["exec", "--", "printf", "%s|", "a b", "", "it's", "$HOME", "-n", "--help"]).await;
        assert_eq!(output.expect(0).text(), "a b||it's|$HOME|-n|--help|");
        let output = cli.run(&["exec", "-c", "printf '\\377\\000\\n'"]).await;
        assert_eq!(output.stdout, b"\xff\0\n");
        // The same thread has the same files, another one has others.
        cli.run(&["exec", "-t", "one", "-c", "echo kept > f"]).await.expect(0);
        assert_eq!(cli.run(&["exec", "-t", "one", "-c", "cat f"]).await.text(), "kept\n");
        cli.run(&["exec", "-t", "two", "-c", "cat f"]).await.expect(1);
    });
}

#[test]
fn exec_tells_a_timeout_and_what_could_not_be_run() {
    drive(async {
        let cli = Cli::new();
        let output = cli.run(&["exec", "--timeout", "300ms", "-c", "echo so far; sleep 60"]).await;
        assert_eq!(output.expect(124).text(), "so far\n");
        assert!(output.stderr.contains("error[timeout]"), "{}", output.stderr);
        assert_eq!(cli.error(&["exec", "--timeout", "0.1", "-c", "sleep 60"], 124).await["code"], "timeout");
        let error = cli.error(&["exec", "--cwd", "not/there", "-c", "true"], 125).await;
        assert_eq!(error["code"], "not-found");
        assert!(error["message"].as_str().unwrap().contains("/mnt/user-data/workspace/not/there"), "{error}");
        assert_eq!(cli.error(&["exec", "--provider", "other", "-c", "true"], 125).await["code"], "unknown-provider");
        cli.run(&["exec", "--timeout", "0", "-c", "exit 9"]).await.expect(9);
        let output = cli.run(&["exec", "--output-limit", "1000", "-c", "seq 10000"]).await;
        assert!(
            output.expect(0).stdout.len() <= 1000 && output.stderr.contains("bytes of output left out"),
            "{output:?}"
        );
    });
}

#[test]
fn exec_gives_standard_input_if_asked() {
    drive(async {
        let cli = Cli::new();
        assert_eq!(cli.run_with(&["exec", "--stdin", "--", "cat"], b"tok\0\xff").await.stdout, b"tok\0\xff");
        assert_eq!(cli.run_with(&["exec", "--", "cat"], b"not for it").await.expect(0).stdout, b"");
        let much = vec![b'z'; 3_000_000];
        assert_eq!(cli.run_with(&["exec", "--stdin", "--", "wc", "-c"], &much).await.text().trim(), "3000000");
        assert_eq!(cli.run_with(&["exec", "--stdin", "-c", "read -r x; echo $x; exit 5"], &much).await.code, Some(5));
    });
}

#[test]
fn exec_takes_a_variable_by_its_name() {
    drive(async {
        let cli = Cli::new().env("SHORT", "abc");
        let output = cli.run(&["exec", "--env", "SHORT", "--env", "OTHER=d=e", "-c", "echo $SHORT $OTHER"]).await;
        assert_eq!(output.expect(0).text(), "abc d=e\n");
        let output = cli.run(&["exec", "--env", "NOT_SET_ANYWHERE", "-c", "true"]).await;
        assert!(output.expect(2).stderr.contains("NOT_SET_ANYWHERE"), "{}", output.stderr);
    });
}

#[test]
fn signals_are_passed_on() {
    drive(async {
        let cli = Cli::new();
        for (signal, code) in [(rustix::process::Signal::TERM, 41), (rustix::process::Signal::INT, 42)] {
            let script = "trap 'exit 41' TERM; trap 'exit 42' INT; echo ready; while :; do sleep 0.05 & wait $!; done";
            let mut child = cli.start(&["exec", "-c", script]);
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("ready"));
            let pid = rustix::process::Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
            rustix::process::kill_process(pid, signal).unwrap();
            assert_eq!(child.wait().await.unwrap().code(), Some(code));
        }
    });
}

#[test]
fn a_killed_gateway_leaves_nothing_running() {
    drive(async {
        let cli = Cli::new();
        let (one, two, three) = (unique_sleep(), unique_sleep(), unique_sleep());
        let script = format!("{one} & (setsid {two} > /dev/null 2>&1 &); echo ready; {three}");
        let mut child = cli.start(&["exec", "-c", &script]);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("ready"));
        for sleep in [&one, &two, &three] {
            eventually("it runs", || running(sleep) > 0).await;
        }
        child.kill().await.unwrap();
        for sleep in [&one, &two, &three] {
            eventually("nothing outlives a killed gateway", || running(sleep) == 0).await;
        }
    });
}

#[test]
fn what_a_command_left_behind_ends_with_the_program() {
    drive(async {
        let cli = Cli::new();
        let sleep = unique_sleep();
        let output = cli.run(&["exec", "-c", &format!("{sleep} & echo hi")]).await;
        assert_eq!(output.expect(0).text(), "hi\n");
        eventually("it ends", || running(&sleep) == 0).await;
    });
}

#[test]
fn fs_commands_do_what_they_say() {
    drive(async {
        let cli = Cli::new();
        let written = cli.run_with(&["--output", "json", "fs", "write", "a/b.txt"], b"one\ntwo\nthree\n").await;
        let written: Value = serde_json::from_slice(&written.expect(0).stdout).unwrap();
        assert_eq!(written, json!({ "path": "/mnt/user-data/workspace/a/b.txt", "written": 14 }));
        assert_eq!(cli.run(&["fs", "read", "a/b.txt"]).await.expect(0).text(), "one\ntwo\nthree\n");
        assert_eq!(cli.run(&["fs", "read", "a/b.txt", "--lines", "2:2"]).await.text(), "two\n");
        assert_eq!(cli.run(&["fs", "read", "a/b.txt", "--offset", "4", "--length", "3"]).await.text(), "two");
        cli.run_with(&["fs", "write", "a/b.txt", "--append"], b"four\n").await.expect(0);
        cli.run_with(&["fs", "write", "a/b.txt", "--create-new"], b"x").await.expect(1);
        std::fs::write(cli.root().join("from"), b"\xffraw").unwrap();
        cli.run(&["fs", "write", "raw", "--from", "from"]).await.expect(0);
        assert_eq!(cli.run(&["fs", "read", "raw"]).await.stdout, b"\xffraw");
        assert_eq!(cli.run(&["exec", "-c", "cat a/b.txt"]).await.text(), "one\ntwo\nthree\nfour\n");

        let listing = cli.json(&["fs", "ls", "--depth", "2"]).await;
        let entry = |path: &str, kind: &str, size: u64| json!({ "path": format!("/mnt/user-data/workspace/{path}"), "kind": kind, "size": size });
        assert_eq!(
            listing,
            json!({
                "entries": [entry("a", "directory", 0), entry("a/b.txt", "file", 19), entry("raw", "file", 4)],
                "truncated": false, "skipped": 0,
            })
        );
        let table = cli.run(&["fs", "ls"]).await;
        assert_eq!(
            table.expect(0).text(),
            "directory  0  /mnt/user-data/workspace/a/\nfile       4  /mnt/user-data/workspace/raw\n"
        );
        let cut = cli.run(&["fs", "ls", "--limit", "1"]).await;
        assert!(cut.text().lines().count() == 1 && cut.stderr.contains("--limit"), "{cut:?}");

        let found = cli.json(&["fs", "glob", "*.txt"]).await;
        assert_eq!(found, json!({ "paths": ["/mnt/user-data/workspace/a/b.txt"], "truncated": false, "skipped": 0 }));
        assert_eq!(cli.run(&["fs", "glob", "*.txt"]).await.text(), "/mnt/user-data/workspace/a/b.txt\n");
        let found = cli.json(&["fs", "grep", "^T"]).await;
        let line = |number: u64, line: &str| json!({ "path": "/mnt/user-data/workspace/a/b.txt", "line_number": number, "line": line });
        assert_eq!(found, json!({ "matches": [line(2, "two"), line(3, "three")], "truncated": false, "skipped": 0 }));
        assert_eq!(cli.run(&["fs", "grep", "w", "a"]).await.text(), "/mnt/user-data/workspace/a/b.txt:2: two\n");

        let stat = cli.json(&["fs", "stat", "raw"]).await;
        assert_eq!((&stat["kind"], &stat["size"], &stat["read_only"]), (&json!("file"), &json!(4), &json!(false)));
        assert!(cli.run(&["fs", "stat", "a"]).await.text().starts_with("directory"));
        cli.run(&["fs", "mkdir", "x/y"]).await.expect(0);
        cli.run(&["fs", "rm", "x"]).await.expect(1);
        cli.run(&["fs", "rm", "-r", "x"]).await.expect(0);
        cli.run(&["fs", "stat", "x"]).await.expect(1);
    });
}

#[test]
fn names_of_files_can_not_redraw_a_terminal() {
    drive(async {
        let cli = Cli::new();
        let odd = "\u{1b}[2Jx\ny";
        cli.run_with(&["fs", "write", odd], b"").await.expect(0);
        for args in [&["fs", "ls"][..], &["fs", "glob", "*"]] {
            let text = cli.run(args).await.text();
            assert!(!text.contains('\u{1b}') && text.lines().count() == 1, "{text:?}");
        }
        assert_eq!(cli.json(&["fs", "glob", "*"]).await["paths"], json!([format!("/mnt/user-data/workspace/{odd}")]));
        for name in odd_names().into_iter().filter(|name| !name.starts_with('-')) {
            cli.run_with(&["fs", "write", &format!("./{name}")], b"x").await.expect(0);
        }
        assert_eq!(cli.json(&["fs", "ls"]).await["entries"].as_array().unwrap().len(), odd_names().len() - 3 + 1);
    });
}

#[test]
fn errors_have_stable_codes_in_json_and_words_in_tables() {
    drive(async {
        let cli = Cli::new();
        cli.run(&["exec", "-c", "mkdir -p d/sub; echo x > f; ln -s /etc/passwd leak"]).await.expect(0);
        for (args, code) in [
            (&["fs", "read", "gone"][..], "not-found"),
            (&["fs", "read", "d"], "is-a-directory"),
            (&["fs", "ls", "f"], "not-a-directory"),
            (&["fs", "rm", "d"], "already-exists"),
            (&["fs", "read", "leak"], "path-escapes"),
            (&["fs", "read", "../../../../etc/passwd"], "path-escapes"),
            (&["fs", "grep", "("], "invalid-argument"),
            (&["fs", "glob", "["], "invalid-argument"),
        ] {
            let error = cli.error(args, 1).await;
            assert_eq!(error["code"], code, "{args:?}");
            let message = error["message"].as_str().unwrap();
            assert!(!message.is_empty() && !message.ends_with('.') && !message.contains("state/users"), "{message}");
            assert!(error.as_object().unwrap().contains_key("hint"), "{error}");
            let table = cli.run(args).await;
            assert!(table.expect(1).stderr.starts_with(&format!("error[{code}]: {message}")), "{}", table.stderr);
            assert_eq!(table.stdout, b"", "{args:?}");
        }
    });
}

#[test]
fn wrong_usage_is_exit_code_2() {
    drive(async {
        let cli = Cli::new();
        for args in [
            &[][..],
            &["nothing"],
            &["exec"],
            &["exec", "-c", "true", "--", "true"],
            &["exec", "--timeout", "-1", "-c", "true"],
            &["exec", "--timeout", "99999999999999999999h", "-c", "true"],
            &["exec", "--thread", "a/b", "-c", "true"],
            &["fs", "read"],
            &["fs", "read", "f", "--lines", "0:3"],
            &["fs", "ls", "--depth", "0"],
            &["fs", "write", "f", "--append", "--create-new"],
            &["--output", "yaml", "doctor"],
        ] {
            let output = cli.run(args).await;
            assert!(
                output.expect(2).stderr.contains("Usage") || output.stderr.contains("--help"),
                "{args:?}: {}",
                output.stderr
            );
        }
    });
}

#[test]
fn a_wrong_configuration_is_exit_code_3_with_line_and_remedy() {
    drive(async {
        for (config, line, parts) in [
            ("[environment]\nmodes = \"deny-list\"\n", 9, &["modes", "mode"][..]),
            (
                "[providers.other]\ncomponent = \"x.wasm\"\n[providers.other.grants.process]\nisolation = \"none\"\n",
                11,
                &["allow_unconfined_commands_on_this_host = true"],
            ),
            ("[engine]\nqueue = -1\n", 9, &["queue"]),
            ("[[mounts]]\nhost_path = \"/\"\ncontainer_path = \"/mnt/user-data/x\"\n", 10, &["/mnt/user-data"]),
            ("oops\n", 8, &[]),
        ] {
            let cli = Cli::with_config(config);
            for args in [&["config", "check"][..], &["fs", "ls"], &["provider", "list"]] {
                let output = cli.run(args).await;
                let said = &output.expect(3).stderr;
                assert!(said.starts_with("error[config]") && said.contains("sandgate.toml"), "{said}");
                assert!(said.contains(&format!("line {line}")), "line {line}: {said}");
                assert!(parts.iter().all(|part| said.contains(part)), "{parts:?}: {said}");
            }
            assert_eq!(cli.error(&["config", "check"], 3).await["code"], "config");
            cli.run(&["exec", "-c", "true"]).await.expect(125);
        }
        let cli = Cli::new();
        cli.run(&["--config", "not-there.toml", "config", "check"]).await.expect(3);
        cli.run(&["config", "check"]).await.expect(0);
    });
}

#[test]
fn what_config_init_writes_is_accepted() {
    drive(async {
        let cli = Cli::new();
        cli.run(&["config", "init", "--file", "new.toml"]).await.expect(0);
        let output = cli.run(&["--config", "new.toml", "config", "check"]).await;
        assert!(output.expect(0).text().contains("new.toml"));
        assert_eq!(cli.run(&["config", "init"]).await.stdout, std::fs::read(cli.root().join("new.toml")).unwrap());
        assert_eq!(cli.error(&["config", "init", "--file", "new.toml"], 1).await["code"], "already-exists");
        let schema: Value = serde_json::from_slice(&cli.run(&["config", "schema"]).await.expect(0).stdout).unwrap();
        assert!(schema["properties"]["providers"].is_object());
        // What is shown as being in effect can be used as a file.
        let shown = cli.run(&["config", "show"]).await;
        std::fs::write(cli.root().join("shown.toml"), &shown.expect(0).stdout).unwrap();
        cli.run(&["--config", "shown.toml", "config", "check"]).await.expect(0);
    });
}

#[test]
fn a_broken_provider_does_not_hide_the_others() {
    drive(async {
        let cli = Cli::with_config(
            "[providers.broken]\ncomponent = \"broken.wasm\"\n[providers.gone]\ncomponent = \"gone.wasm\"\n",
        );
        std::fs::write(cli.root().join("broken.wasm"), "this is text").unwrap();
        let output = cli.run(&["--output", "json", "provider", "list"]).await;
        let list: Value = serde_json::from_slice(&output.expect(4).stdout).unwrap();
        let one = |name: &str| list.as_array().unwrap().iter().find(|one| one["name"] == name).unwrap().clone();
        assert_eq!(list.as_array().unwrap().len(), 3);
        assert_eq!(one("broken")["error"]["code"], "component-text");
        assert_eq!(one("gone")["error"]["code"], "component-unreadable");
        let local = one("local");
        assert!(local["error"].is_null() && local["sha256"].as_str().unwrap().len() == 64, "{local}");
        let table = cli.run(&["provider", "list"]).await;
        let text = table.expect(4).text();
        assert!(["local", "broken", "gone", "component-text"].iter().all(|part| text.contains(part)), "{text}");
        // The one that works, works.
        cli.run(&["exec", "-c", "exit 3"]).await.expect(3);
        assert_eq!(cli.error(&["fs", "ls", "--provider", "broken"], 4).await["code"], "component-text");
    });
}

#[test]
fn a_component_that_is_missing_says_where_it_was_looked_for() {
    drive(async {
        let cli = Cli::with_config("[providers.other]\ncomponent = \"builtin:not-built\"\n");
        let error = cli.error(&["fs", "ls", "--provider", "other"], 4).await;
        assert_eq!(error["code"], "component-unreadable");
        let folder = component("local").parent().unwrap().join("not-built.wasm");
        assert!(error["message"].as_str().unwrap().contains(folder.to_str().unwrap()), "{error}");
        assert!(error["hint"].as_str().unwrap().contains("make providers"), "{error}");
    });
}

#[test]
fn one_flipped_byte_is_not_what_was_pinned() {
    drive(async {
        let bytes = std::fs::read(component("local")).unwrap();
        let pin = Cli::new().json(&["provider", "inspect", component("local").to_str().unwrap()]).await;
        let pin = pin["sha256"].as_str().unwrap().to_owned();
        let config = format!(
            "[providers.pinned]\ncomponent = \"local.wasm\"\nsha256 = \"{pin}\"\n[providers.pinned.grants.process]\n[providers.pinned.grants.workspace]\n"
        );
        let cli = Cli::with_config(&config);
        let file = cli.root().join("local.wasm");
        std::fs::write(&file, &bytes).unwrap();
        cli.run(&["exec", "--provider", "pinned", "-c", "exit 3"]).await.expect(3);
        for at in [0, bytes.len() / 2, bytes.len() - 1] {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            std::fs::write(&file, &flipped).unwrap();
            let error = cli.error(&["fs", "ls", "--provider", "pinned"], 4).await;
            assert_eq!(error["code"], "digest-mismatch", "{error}");
            assert!(error["message"].as_str().unwrap().contains(&pin), "{error}");
            assert_eq!(
                cli.error(&["exec", "--provider", "pinned", "-c", "true"], 125).await["code"],
                "digest-mismatch"
            );
        }
        std::fs::write(&file, &bytes).unwrap();
        cli.run(&["exec", "--provider", "pinned", "-c", "exit 3"]).await.expect(3);
    });
}

#[test]
fn what_was_not_granted_is_refused_with_the_line_to_add() {
    drive(async {
        let more = format!("[providers.bare]\ncomponent = {:?}\n", component("local"));
        let cli = Cli::with_config(&more);
        let error = cli.error(&["fs", "ls", "--provider", "bare"], 4).await;
        assert_eq!(error["code"], "grant-missing");
        let said = format!("{} {}", error["message"], error["hint"]);
        assert!(said.contains("[providers.bare.grants."), "{said}");
        // What it says to add is what helps.
        let granted = format!("{more}[providers.bare.grants.process]\n[providers.bare.grants.workspace]\n");
        let cli = Cli::with_config(&granted);
        cli.run(&["fs", "ls", "--provider", "bare"]).await.expect(0);
    });
}

#[test]
fn help_has_examples_and_completions_print() {
    drive(async {
        let cli = Cli::new();
        for args in [
            &["exec"][..],
            &["fs", "read"],
            &["fs", "write"],
            &["fs", "ls"],
            &["fs", "glob"],
            &["fs", "grep"],
            &["provider", "inspect"],
            &["config", "init"],
            &["completions"],
        ] {
            let output = cli.run(&[args, &["--help"]].concat()).await;
            let text = output.expect(0).text();
            assert!(text.contains("Example") && text.contains(&format!("sandgate {}", args.join(" "))), "{text}");
        }
        for args in [
            &[][..],
            &["fs"],
            &["fs", "rm"],
            &["fs", "mkdir"],
            &["fs", "stat"],
            &["provider"],
            &["provider", "list"],
            &["provider", "componentize"],
            &["config"],
            &["config", "check"],
            &["config", "show"],
            &["config", "schema"],
            &["doctor"],
        ] {
            let output = cli.run(&[args, &["--help"]].concat()).await;
            let text = output.expect(0).text();
            assert!(text.contains("Usage: sandgate"), "{args:?}");
            // What only holds other commands leaves the examples to them.
            assert!(matches!(args, ["fs" | "provider" | "config"]) || text.contains("Example"), "{args:?}: {text}");
        }
        assert!(cli.run(&["--help"]).await.text().contains("Exit codes:"));
        assert!(cli.run(&["--version"]).await.expect(0).text().starts_with("sandgate "));
        for shell in ["bash", "zsh", "fish"] {
            let output = cli.run(&["completions", shell]).await;
            assert!(output.expect(0).text().contains("sandgate"), "{shell}");
        }
    });
}

#[test]
fn a_command_inherits_nothing_that_we_were_given_open() {
    drive(async {
        let cli = Cli::new();
        std::fs::write(cli.root().join("secret"), "for the gateway only").unwrap();
        let inner = cli.command(&["exec", "-c", "cat <&17; echo tried"]);
        let inner = inner.as_std();
        // A shell leaves a file open, as a service manager or a harness may.
        let output = tokio::process::Command::new("bash")
            .args(["-c", "exec 17< secret; exec \"$@\"", "bash"])
            .arg(inner.get_program())
            .args(inner.get_args())
            .env_clear()
            .envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))))
            .current_dir(cli.root())
            .output()
            .await
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "tried\n", "{said}");
        assert!(said.contains("17"), "{said}");
    });
}
