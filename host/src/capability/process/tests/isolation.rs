//! What a command in a namespace can't see or do.

use super::super::{Isolation, Processes, SpawnRequest};
use super::kit::{Kit, WORKSPACE, bash, grant, read_line};
use crate::error::Code;
use std::path::PathBuf;
use std::sync::Arc;

#[tokio::test(flavor = "multi_thread")]
async fn the_host_is_not_there() {
    let kit = Kit::namespace();
    let canary = kit.dir.path().join("canary");
    std::fs::write(&canary, "host file").unwrap();
    let canary = canary.display();
    for script in [
        "cat /etc/shadow".to_owned(),
        "ls /root".to_owned(),
        "ls /home".to_owned(),
        "ls /etc/ssl/private".to_owned(),
        "ls /var/run/docker.sock".to_owned(),
        "ls /run/docker.sock".to_owned(),
        format!("cat {canary}"),
        "touch /new".to_owned(),
        "touch /usr/new".to_owned(),
        "touch /etc/new".to_owned(),
        "touch /mnt/new".to_owned(),
        "touch /mnt/skills/public/new".to_owned(),
        "unshare -U true".to_owned(),
        "mount -t tmpfs none /tmp".to_owned(),
        "chroot / true".to_owned(),
        "(exec 3<>/dev/tcp/127.0.0.1/1)".to_owned(),
    ] {
        let outcome = kit.bash(&script).await;
        assert_ne!(outcome.code(), 0, "{script}: {outcome:?}");
    }
    let outcome = kit.bash("grep -h Cap /proc/self/status | sort -u | awk '{print $2}' | sort -u; id -u; id -un; ls -A /sys /run 2>/dev/null").await;
    assert_eq!(outcome.text(), "0000000000000000\n1000\nsandbox\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_command_needs_is_there() {
    let kit = Kit::namespace();
    std::fs::write(kit.dir.path().join("skills/skill.md"), "a skill").unwrap();
    let outcome = kit
        .bash("echo x > /tmp/a && cat /tmp/a && echo y > b && cat /mnt/skills/public/skill.md && test -w /dev/null && date > /dev/null && awk 'BEGIN{print 1}' && echo $HOME")
        .await;
    assert_eq!(outcome.text(), format!("x\na skill1\n{WORKSPACE}\n"), "{outcome:?}");
    assert_eq!(std::fs::read_to_string(kit.dir.path().join("workspace/b")).unwrap(), "y\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_sandboxes_do_not_see_each_other() {
    let (one, two) = (Kit::namespace(), Kit::namespace());
    let mut request = bash("echo mine > secret.txt; echo mine > /tmp/secret.txt; echo ready; exec sleep 1000");
    request.env.insert("ONE_VALUE".into(), "only-for-one".into());
    let mut events = one.start(request).await.unwrap();
    assert_eq!(read_line(&mut events).await, "ready\n");
    let outcome = two
        .bash("ls -A . /tmp; cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep -c only-for-one; ls /proc | grep -c '^[0-9]'; ps ax 2>/dev/null | grep -c 'sleep 100[0]'")
        .await;
    let text = outcome.text();
    assert!(!text.contains("secret.txt"), "{text}");
    let numbers: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
    assert!(numbers[0] == 0 && numbers[1] < 10 && numbers[2] == 0, "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_outside_of_what_is_seen_names_the_key() {
    let dir = tempfile::tempdir().unwrap();
    let tool = dir.path().join("nowhere");
    std::fs::write(&tool, "#!/bin/sh\necho tool\n").unwrap();
    std::fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = [("PATH".to_owned(), format!("{}:/usr/bin:/bin", dir.path().display()))];
    let request = || SpawnRequest { program: "nowhere".into(), ..SpawnRequest::default() };
    let kit = Kit::with_env(grant(Isolation::Namespace), path.clone());
    let error = kit.start(request()).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    assert!(error.to_string().contains("providers.local.grants.process.system_paths"), "{error}");
    let mut shown = grant(Isolation::Namespace);
    shown.system_paths = vec![dir.path().canonicalize().unwrap()];
    let kit = Kit::with_env(shown, path);
    assert_eq!(kit.run(request()).await.unwrap().text(), "tool\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_bubblewrap_nothing_runs() {
    let mut broken = grant(Isolation::Namespace);
    let dir = tempfile::tempdir().unwrap();
    let fake = dir.path().join("bwrap");
    std::fs::write(&fake, "#!/bin/sh\necho 'No permissions to create new namespace' >&2\nexit 1\n").unwrap();
    std::fs::set_permissions(&fake, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for (bwrap, says) in [(PathBuf::from("/nonexistent/bwrap"), "bubblewrap"), (fake, "No permissions")] {
        broken.bwrap = Some(bwrap);
        let kit = Kit::with(broken.clone());
        let error = kit.start(bash("touch ran")).await.unwrap_err();
        assert_eq!(error.code(), Code::Unavailable);
        assert!(error.to_string().contains(says) && error.to_string().contains("sandgate doctor"), "{error}");
        assert_eq!(kit.processes.check_isolation().await.unwrap_err().code(), Code::Unavailable);
        assert!(!kit.dir.path().join("workspace/ran").exists());
    }
}

#[test]
fn many_commands_may_share_one_set() {
    fn shared<T: Send + Sync>() {}
    shared::<Arc<Processes>>();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kernel_takes_no_orders_from_a_sandbox() {
    let kit = Kit::namespace();
    // Whatever the gateway's user may write there; as root that would be the machine itself.
    let script = r#"
        find /proc -maxdepth 6 -not -path '/proc/[0-9]*' -not -path '/proc/self*' -not -path '/proc/thread-self*' -type f \
            | while read -r file; do { : >> "$file"; } 2> /dev/null && echo "$file"; done
        for file in /proc/keys /proc/kcore /proc/kmsg; do { : < $file; } 2> /dev/null && echo "read $file"; done; true"#;
    let outcome = kit.bash(script).await;
    assert_eq!((outcome.text().as_str(), outcome.code()), ("", 0));
    assert_eq!(kit.bash("cat /proc/sys/kernel/ostype").await.text(), "Linux\n", "programs do read there");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_namespace_separates_is_refused() {
    let kit = Kit::namespace();
    // keyctl(KEYCTL_GET_KEYRING_ID, KEY_SPEC_USER_KEYRING, 0), add_key, request_key, bpf; a vsock and a crypto socket.
    let script = r#"
        for my $call ([250, 0, -4, 0], [248, 0, 0, 0, 0, 0], [249, 0, 0, 0, 0], [321, 0, 0, 0], [41, 40, 1, 0], [41, 38, 5, 0]) {
            my ($result, $errno) = (syscall($$call[0], @$call[1..$#$call]), $! + 0);
            print "@$call: ", ($result == -1 && $errno == 1 ? "refused" : "result $result, error $errno"), "\n";
        }
        print syscall(41, 1, 1, 0) >= 0 ? "a plain socket\n" : "no socket: $!\n";
    "#;
    if cfg!(not(target_arch = "x86_64")) {
        eprintln!("NOT TESTED: the system call numbers here are those of x86_64");
        return;
    }
    let request =
        SpawnRequest { program: "perl".into(), args: vec!["-e".into(), script.into()], ..SpawnRequest::default() };
    let outcome = kit.run(request).await.unwrap();
    let lines: Vec<String> = outcome.text().lines().map(String::from).collect();
    assert_eq!(lines.len(), 7, "{outcome:?}");
    assert!(lines[..6].iter().all(|line| line.ends_with(": refused")), "{lines:?}");
    assert_eq!(lines[6], "a plain socket");
}
