//! What goes in and what comes out.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::super::cgroup::Cgroups;
use super::super::{Isolation, ProcessGrant, SpawnRequest};
use super::kit::{Kit, WORKSPACE, bash, bytes, collect, grant, within};
use crate::error::Code;
use crate::mounts::VirtualPath;
use crate::values::{ExitStatus, byte_stream};

const BOTH: [Isolation; 2] = [Isolation::Namespace, Isolation::None];

#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_are_exact() {
    for isolation in BOTH {
        let kit = Kit::new(isolation);
        for (script, code) in [
            ("true", 0),
            ("exit 3", 3),
            ("exec false", 1),
            ("set -e; false; echo no", 1),
            ("if", 2),
            ("kill -9 $$", 137),
            ("kill -TERM $$", 143),
            ("kill -SEGV $$", 139),
            ("nosuchprogram", 127),
            ("exit 137", 137),
            ("exit 255", 255),
        ] {
            let outcome = kit.bash(script).await;
            assert_eq!(outcome.code(), code, "{script}: {outcome:?}");
        }
        let status = kit.bash("kill -9 $$").await.end.unwrap().unwrap();
        // Under bubblewrap it can't be known whether 137 was a signal.
        let signal = (isolation == Isolation::None).then_some(9);
        assert_eq!(status, ExitStatus { code: 137, signal });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_bytes_on_two_streams() {
    for isolation in BOTH {
        let kit = Kit::new(isolation);
        let outcome = kit.bash(r"printf '\377\000ok'; echo e >&2").await;
        assert_eq!((outcome.stdout.as_slice(), outcome.errors().as_str()), (&b"\xff\0ok"[..], "e\n"));
        assert_eq!(outcome.code(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_without_input_reads_end_of_file() {
    for isolation in BOTH {
        let kit = Kit::new(isolation);
        let request = SpawnRequest { program: "cat".into(), ..SpawnRequest::default() };
        let outcome = kit.run(request).await.unwrap();
        assert_eq!((outcome.code(), outcome.text().as_str()), (0, ""));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn input_is_streamed_and_may_be_left_unread() {
    for isolation in BOTH {
        let kit = Kit::new(isolation);
        let run = async |script: &str, stdin| {
            let spawned = kit.processes.spawn(&kit.sandbox, &kit.mounts, bash(script), Some(stdin), None).await;
            collect(spawned.unwrap()).await
        };
        let large = vec![b'x'; 3_000_000];
        let outcome = run("wc -c", byte_stream(large.clone())).await;
        assert_eq!(outcome.text().trim(), "3000000");
        assert_eq!(run("cat", byte_stream(bytes("tok"))).await.text(), "tok");
        assert_eq!(run("exec <&-; exit 4", byte_stream(large)).await.code(), 4);

        let (sender, receiver) = mpsc::channel(1);
        sender.send(Err(crate::error::Error::unavailable("the upload broke off"))).await.unwrap();
        let error = run("cat", receiver).await.end.unwrap().unwrap_err();
        assert!(error.code() == Code::Unavailable && error.to_string().contains("the upload broke off"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_arrive_exactly() {
    let kit = Arc::new(Kit::namespace());
    let pieces = [
        "'", "\"", "$", "$(id)", "`id`", "\n", "\\", " ", "ä", "🦀", "*", "~", "", "-", "--", ";", "|", "{a,b}", "%s",
        "\t", "!",
    ];
    let mut state = 7_u64;
    let mut pick = |limit: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % limit
    };
    for _ in 0..30 {
        let words: Vec<String> =
            (0..10).map(|_| (0..pick(6)).map(|_| pieces[pick(pieces.len())]).collect::<String>()).collect();
        let mut args = vec!["-e".to_owned(), r#"print "$_\0" for @ARGV"#.to_owned(), "--".to_owned()];
        args.extend(words.clone());
        let outcome = kit.run(SpawnRequest { program: "perl".into(), args, ..SpawnRequest::default() }).await.unwrap();
        let expected: String = words.iter().map(|word| format!("{word}\0")).collect();
        assert_eq!(outcome.text(), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_commands_keep_apart() {
    let kit = Arc::new(Kit::namespace());
    let parallel: Vec<_> = (0..50)
        .map(|number| {
            let kit = Arc::clone(&kit);
            tokio::spawn(async move { (number, kit.bash(&format!("echo {number}; exit {number}")).await) })
        })
        .collect();
    for task in parallel {
        let (number, outcome) = within(task).await.unwrap();
        assert_eq!((outcome.text(), outcome.code()), (format!("{number}\n"), number));
    }
    for number in 0..200 {
        let outcome = kit.bash(&format!("echo {number}")).await;
        assert_eq!((outcome.text(), outcome.code()), (format!("{number}\n"), 0));
    }
    kit.settled().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environment_follows_the_policy() {
    for isolation in BOTH {
        let host = (0..200).map(|n| (format!("V{n}"), format!("v{n}"))).chain(
            [
                ("GITHUB_TOKEN", "tok-1234567"),
                ("ACTIONS_ID_TOKEN", "x"),
                ("SSH_AUTH_SOCK", "/s"),
                ("LD_PRELOAD", "/x.so"),
                ("BASH_ENV", "/x"),
                ("PATH", "/usr/bin:/bin"),
                ("LANG", "C"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
        );
        let kit = Kit::with_env(grant(isolation), host);
        let mut request = bash("env");
        request.env = BTreeMap::from([
            ("API_KEY".to_owned(), "injected \n'value".to_owned()),
            ("V1".to_owned(), "mine".to_owned()),
        ]);
        let text = kit.run(request).await.unwrap().text();
        assert!((0..200).filter(|n| *n != 1).all(|n| text.contains(&format!("V{n}=v{n}\n"))), "{text}");
        assert!(
            text.contains("API_KEY=injected \n'value\n") && text.contains("V1=mine\n") && text.contains("LANG=C\n")
        );
        for absent in ["GITHUB_TOKEN", "ACTIONS_ID_TOKEN", "SSH_AUTH_SOCK", "LD_PRELOAD", "BASH_ENV"] {
            assert!(!text.contains(absent), "{absent} in {text}");
        }
        if isolation == Isolation::Namespace {
            assert!(text.contains(&format!("HOME={WORKSPACE}\n")) && text.contains("USER=sandbox\n"), "{text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn injected_values_are_in_no_command_line() {
    let kit = Kit::namespace();
    let mut request = bash("echo ready; read -r _ < <(sleep 1000)");
    let secret = "s3cret-in-no-argument";
    request.env = BTreeMap::from([("MY_TOKEN".to_owned(), secret.to_owned())]);
    let mut events = kit.start(request).await.unwrap();
    assert_eq!(super::kit::read_line(&mut events).await, "ready\n");
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&line).contains(secret), "{entry:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_start_nothing() {
    for isolation in BOTH {
        let kit = Kit::new(isolation);
        std::fs::write(kit.dir.path().join("workspace/file"), "").unwrap();
        for (link, target) in [("dangling", "none"), ("to-file", "file"), ("out", "/root"), ("round", "round")] {
            std::os::unix::fs::symlink(target, kit.dir.path().join("workspace").join(link)).unwrap();
        }
        let at = |text: &str| SpawnRequest { cwd: Some(VirtualPath::new(text).unwrap()), ..bash("true") };
        let env =
            |name: &str| SpawnRequest { env: BTreeMap::from([(name.to_owned(), "s3cret".to_owned())]), ..bash("true") };
        let env_of = |size: usize| SpawnRequest {
            env: BTreeMap::from([("LARGE".to_owned(), "s3cret".repeat(size / 6))]),
            ..bash("true")
        };
        for (request, code, names) in [
            (at("/mnt/user-data/workspace/none"), Code::NotFound, "/mnt/user-data/workspace/none"),
            (at("/mnt/user-data/workspace/file"), Code::NotADirectory, "/mnt/user-data/workspace/file"),
            (at("/mnt/user-data/workspace/dangling"), Code::NotFound, "/mnt/user-data/workspace/dangling"),
            (at("/mnt/user-data/workspace/to-file"), Code::NotADirectory, "/mnt/user-data/workspace/to-file"),
            (at("/mnt/user-data/workspace/out"), Code::PathEscapes, "/mnt/user-data/workspace/out"),
            (at("/mnt/user-data/workspace/round"), Code::PathEscapes, "/mnt/user-data/workspace/round"),
            (at("/root"), Code::PermissionDenied, "/root"),
            (env_of(200 << 10), Code::TooLarge, "\"LARGE\""),
            (env("A=B"), Code::InvalidArgument, "A=B"),
            (env("LD_PRELOAD"), Code::InvalidArgument, "LD_PRELOAD"),
            (env("BASH_ENV"), Code::InvalidArgument, "BASH_ENV"),
            (env("a b"), Code::InvalidArgument, "a b"),
            (
                SpawnRequest { program: "sh".into(), ..bash("") },
                Code::CapabilityDenied,
                "providers.local.grants.process.programs",
            ),
            (SpawnRequest { program: "nowhere".into(), ..bash("") }, Code::NotFound, "nowhere"),
            (bash("a\0b"), Code::InvalidArgument, "argument 2"),
            (bash(&"x".repeat(3_000_000)), Code::TooLarge, "bash"),
        ] {
            let error = kit.start(request).await.unwrap_err();
            assert_eq!(error.code(), code, "{error}");
            let text = error.to_string();
            assert!(text.contains(names), "{text}");
            assert!(!text.contains("s3cret") && !text.contains(kit.dir.path().to_str().unwrap()), "{text}");
        }
        assert_eq!(kit.processes.count(&kit.sandbox), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_starts_where_it_is_told_to() {
    for isolation in BOTH {
        let kit = Kit::new(isolation);
        std::fs::create_dir(kit.dir.path().join("workspace/a b")).unwrap();
        assert_eq!(kit.bash("pwd").await.text(), format!("{WORKSPACE}\n"));
        let request =
            SpawnRequest { cwd: Some(VirtualPath::new("/mnt/user-data/workspace/a b").unwrap()), ..bash("pwd") };
        assert_eq!(kit.run(request).await.unwrap().text(), format!("{WORKSPACE}/a b\n"));
        std::os::unix::fs::symlink("a b", kit.dir.path().join("workspace/link")).unwrap();
        let request =
            SpawnRequest { cwd: Some(VirtualPath::new("/mnt/user-data/workspace/link").unwrap()), ..bash("pwd -P") };
        assert_eq!(kit.run(request).await.unwrap().text(), format!("{WORKSPACE}/a b\n"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_are_translated_without_isolation() {
    let kit = Kit::new(Isolation::None);
    let script = format!("echo hi > {WORKSPACE}/a; cat {WORKSPACE}/a; pwd; ls {WORKSPACE}/none");
    let outcome = kit.bash(&script).await;
    assert_eq!(outcome.text(), format!("hi\n{WORKSPACE}\n"));
    assert!(outcome.errors().contains(&format!("{WORKSPACE}/none")), "{}", outcome.errors());
    assert!(kit.dir.path().join("workspace/a").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_of_the_kernel_apply() {
    for isolation in BOTH {
        let mut limited: ProcessGrant = grant(isolation);
        limited.limits.open_files = Some(50);
        limited.limits.file_size_mib = Some(1);
        limited.limits.cpu_seconds = Some(1);
        limited.limits.memory_mib = Some(300);
        let kit = Kit::with(limited);
        assert_eq!(kit.bash("ulimit -n; ulimit -f; ulimit -t").await.text(), "50\n1024\n1\n");
        let outcome = kit.bash("head -c 2000000 /dev/zero > big; stat -c %s big").await;
        assert_eq!(outcome.text(), "1048576\n", "{outcome:?}");
        assert_eq!(kit.bash("while :; do :; done").await.code(), 137);
        assert_ne!(kit.bash("perl -e '$x = \"x\" x 400_000_000'").await.code(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_root_escapes_is_refused() {
    let mut limited = grant(Isolation::Namespace);
    limited.limits.processes = Some(20);
    let kit = Kit::with(limited.clone());
    let script = r#"exec perl -e 'my @all; for (1 .. 40) { my $pid = fork; last unless defined $pid; sleep 1000 unless $pid;
        push @all, $pid } kill 9, @all; print @all < 40 ? "limited" : "free"'"#;
    let kept = Cgroups::of_this_process().is_ok_and(|cgroups| cgroups.can(&limited.limits));
    if rustix::process::geteuid().is_root() && !kept {
        let error = kit.start(bash(script)).await.unwrap_err();
        assert_eq!(error.code(), Code::Unavailable);
        assert!(error.to_string().contains("providers.local.grants.process.limits.processes"), "{error}");
    } else {
        assert_eq!(kit.bash(script).await.text(), "limited");
    }
}
