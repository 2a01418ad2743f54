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
