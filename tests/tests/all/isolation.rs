//! What a command in namespaces sees of other sandboxes and of the host: nothing.

use sandgate::Sandbox;
use sandgate::values::{Event, ExecRequest};
use sandgate_tests::support::{Handshake, Kind, Subject, command, conform, run, running, sh, text, unique_sleep};

#[test]
fn two_threads_see_nothing_of_each_other() {
    conform(Kind::Local, async |subject: &Subject| {
        let (one, two) = (subject.sandbox_of("t1").await, subject.sandbox_of("t2").await);
        assert_ne!(one.id(), two.id());
        let sleep = unique_sleep();
        let request = ExecRequest {
            env: [("ONLY_ONE".to_owned(), "for-thread-one".to_owned())].into(),
            ..command(format!("echo mine > marker-file; echo mine > /tmp/marker-file; {sleep} & echo ready; cat"))
        };
        let mut talk = Handshake::start(&one, request).await;
        assert_eq!(talk.next().await, Event::Stdout("ready\n".into()));
        assert!(running(&sleep) > 0, "it does run");

        let script = format!(
            "cat marker-file /tmp/marker-file 2>/dev/null; find / -name marker-file -not -path '/proc/*' 2>/dev/null; \
             cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -o '{sleep}'; \
             cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep ONLY_ONE; ls -d /proc/[0-9]* | wc -l"
        )
        // Not in this command's own text.
        .replace("grep -o 'sleep", "grep -o 'slee[p]")
        .replace("grep ONLY_ONE", "grep 'ONLY_ON[E]'");
        let output = run(&two, command(script)).await;
        let seen = text(&output.stdout);
        let processes: u32 = seen.trim().parse().unwrap_or_else(|_| panic!("thread two sees {seen}"));
        assert!(processes < 12, "{processes} processes");
        // Nor can it touch them.
        let output = run(&two, command("kill -9 -1; echo done")).await;
        drop(output);
        talk.say("still there").await;
        assert_eq!(talk.next().await, Event::Stdout("still there\n".into()));
        assert!(running(&sleep) > 0);
        drop(talk);
    });
}

async fn fails(sandbox: &Sandbox, script: &str) {
    let output = run(sandbox, command(script)).await;
    assert!(!output.success() && output.stdout.is_empty(), "{script}: {output:?}");
}

#[test]
fn the_host_is_not_there() {
    conform(Kind::Local, async |subject: &Subject| {
        let sandbox = subject.sandbox().await;
        let root = subject.root().display();
        std::fs::write(subject.root().join("canary"), "host").unwrap();
        fails(&sandbox, "cat /etc/shadow").await;
        fails(&sandbox, &format!("cat {root}/canary")).await;
        fails(&sandbox, &format!("ls {root}/state")).await;
        fails(&sandbox, "ls -A /root /home 2>/dev/null | grep .").await;
        fails(&sandbox, "ls /var/lib/* /run/* /srv/* 2>/dev/null | grep .").await;
        if let Some(home) = std::env::home_dir() {
            fails(&sandbox, &format!("ls -A {} 2>/dev/null | grep .", home.display())).await;
        }
        // Users of the host, and its disks.
        let users = sh(&sandbox, "cut -d: -f1 /etc/passwd | sort | tr '\\n' ' '").await;
        assert!(users.split_whitespace().count() <= 3, "{users}");
        fails(&sandbox, "ls /dev/sd* /dev/vd* /dev/nvme* /dev/mem /dev/kmsg 2>/dev/null | grep .").await;
        // The system can be used and not changed.
        fails(&sandbox, "touch /usr/canary").await;
        fails(&sandbox, "touch /etc/canary").await;
        assert!(!std::path::Path::new("/usr/canary").exists() && !std::path::Path::new("/etc/canary").exists());
        // No network but its own loopback.
        let devices = sh(&sandbox, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '").await;
        assert_eq!(devices, "lo\n");
    });
}

#[test]
fn a_command_can_not_reach_its_gateway() {
    conform(Kind::Local, async |subject: &Subject| {
        let sandbox = subject.sandbox().await;
        let own = std::process::id();
        // In the sandbox this number is another's, or nobody's.
        let seen = sh(&sandbox, &format!("readlink /proc/{own}/exe || echo nobody")).await;
        assert!(!seen.contains("/deps/all-"), "{seen}");
        fails(&sandbox, "kill -0 1 2>/dev/null && readlink /proc/1/exe | grep deps").await;
        // Open files of the gateway's are not handed down.
        let open = sh(
            &sandbox,
            "for f in /proc/self/fd/*; do readlink $f; done | grep -v -e pipe: -e /dev/null -e ^/proc -e fd$ || true",
        )
        .await;
        assert_eq!(open, "");
    });
}
