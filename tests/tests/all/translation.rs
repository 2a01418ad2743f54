//! Isolation `none`, with consent: commands see host paths, agents never do.

use sandgate::config::MountConfig;
use sandgate::values::ExecRequest;
use sandgate_tests::support::{Kind, Subject, command, drive, run, sh, text};

#[test]
fn paths_are_translated_both_ways() {
    drive(async {
        let host = tempfile::tempdir().unwrap();
        let mut mounts = Vec::new();
        for n in 1..=6 {
            let host_path = host.path().join(format!("root-{n}"));
            std::fs::create_dir(&host_path).unwrap();
            std::fs::write(host_path.join("f"), format!("in {n}\n")).unwrap();
            mounts.push(MountConfig { host_path, container_path: format!("/mnt/root{n}"), read_only: false });
        }
        let subject = Subject::open_with(Kind::LocalUnconfined, |config| config.mounts = mounts).await;
        let sandbox = subject.sandbox().await;
        let leaks = |seen: &str| {
            seen.contains(host.path().to_str().unwrap()) || seen.contains(subject.root().to_str().unwrap())
        };
        // Into a command, and out of it again.
        assert_eq!(sh(&sandbox, "cat /mnt/root3/f; pwd").await, "in 3\n/mnt/user-data/workspace\n");
        sh(&sandbox, "echo made > /mnt/user-data/outputs/new").await;
        assert_eq!(
            std::fs::read_to_string(subject.root().join("state/users/ann/threads/t1/user-data/outputs/new")).unwrap(),
            "made\n"
        );
        // A list of six with colons between them, as one word and as six; nothing of the host in any entry.
        let list: Vec<String> = (1..=6).map(|n| format!("/mnt/root{n}/bin")).collect();
        let list = list.join(":");
        let script =
            format!("PATH_LIST={list}; echo $PATH_LIST; printenv > /dev/null; echo \"$PATH_LIST\" | tr : '\\n' >&2");
        let output = run(&sandbox, command(script)).await;
        assert_eq!(text(&output.stdout), format!("{list}\n"));
        assert_eq!(text(&output.stderr), format!("{}\n", list.replace(':', "\n")));
        // What programs find out by themselves.
        let output =
            run(&sandbox, command("cd /mnt/root5; pwd; pwd -P; ls -d $PWD/f; realpath f; ls /mnt/root5/gone")).await;
        let seen = text(&output.stdout) + &text(&output.stderr);
        assert!(!leaks(&seen) && seen.contains("/mnt/root5/gone"), "{seen}");
        assert_eq!(text(&output.stdout), "/mnt/root5\n/mnt/root5\n/mnt/root5/f\n/mnt/root5/f\n");
        // Even if the output comes in parts that cut a path.
        let script = "p=$(pwd); while [ -n \"$p\" ]; do printf %.3s \"$p\"; p=${p#???} ; [ ${#p} -ge 3 ] || break; done; echo \"$p\"";
        let output = run(&sandbox, command(script)).await;
        assert_eq!(text(&output.stdout), "/mnt/user-data/workspace\n");
        // A name that only begins like a mount is left alone.
        assert_eq!(
            sh(&sandbox, "echo /mnt/root1x /mnt/root1-old /mnt/user-data2").await,
            "/mnt/root1x /mnt/root1-old /mnt/user-data2\n"
        );
        let request = ExecRequest { cwd: Some(sandbox.path("/mnt/root2").unwrap()), ..command("cat f; pwd") };
        assert_eq!(text(&run(&sandbox, request).await.stdout), "in 2\n/mnt/root2\n");
        subject.gateway().shutdown().await;
    });
}

#[test]
fn text_that_an_agent_writes_is_translated_and_comes_back_as_written() {
    use sandgate::Code;
    use sandgate::values::{GrepOptions, ReadRange, WriteMode, WriteOptions};
    drive(async {
        let subject = Subject::open(Kind::LocalUnconfined).await;
        let sandbox = subject.sandbox().await;
        let as_text = |mode| WriteOptions { mode, text: true };
        let exact = WriteOptions::default();
        let read = async |name: &str| {
            let bytes = sandbox.read(&sandbox.path(name).unwrap(), ReadRange::All, 1 << 20).await.unwrap();
            String::from_utf8(bytes.to_vec()).unwrap()
        };
        let script = "cat /mnt/user-data/uploads/in # not /mnt/user-data-old\n";
        let run_sh = sandbox.path("run.sh").unwrap();
        sandbox.write(&sandbox.path("/mnt/user-data/uploads/in").unwrap(), "found\n", exact).await.unwrap();
        sandbox.write(&run_sh, script, as_text(WriteMode::Replace)).await.unwrap();
        assert_eq!(sh(&sandbox, "sh run.sh").await, "found\n", "the script works where it runs");
        assert_eq!(read("run.sh").await, script);
        // What was not written as text stays as it is, and a refused write changes nothing of that.
        let upload = sandbox.path("upload").unwrap();
        let host = subject.root().to_str().unwrap().to_owned();
        sandbox.write(&upload, host.clone(), exact).await.unwrap();
        let refused = sandbox.write(&upload, script, as_text(WriteMode::CreateNew)).await.unwrap_err();
        assert_eq!(refused.code(), Code::AlreadyExists);
        assert_eq!(read("upload").await, host);
        // A search shows the agent's own text in its own words.
        let found = sandbox.grep(&run_sh, "uploads", GrepOptions::default()).await.unwrap();
        assert_eq!(found.matches[0].line, script.trim_end());
        subject.gateway().shutdown().await;
    });
}
