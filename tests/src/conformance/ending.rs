//! How commands end that do not end by themselves.

use std::time::{Duration, Instant};

use sandgate::values::{Event, ExecRequest, ExitStatus, Signal};
use sandgate::{Code, ExecInput, Sandbox};
use tokio::sync::mpsc;

use crate::support::{Subject, command, failure, run, sh, text};

/// Waits until nobody holds the lock, and fails if somebody does for long. A process holds it until it is gone.
async fn lock_is_free(sandbox: &Sandbox, lock: &str) {
    assert_eq!(sh(sandbox, &format!("flock -w 20 {lock} echo free")).await, "free\n");
}

/// A command is over when its shell is, even if a child holds its output open.
pub async fn a_background_process_does_not_hold_its_command(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    for script in ["sleep 300 & echo hi", "(sleep 300; echo late) & echo hi", "sleep 300 2>&1 | cat & echo hi"] {
        let started = Instant::now();
        let output = run(&sandbox, command(script)).await;
        assert_eq!((text(&output.stdout).as_str(), output.success()), ("hi\n", true), "{script}");
        assert!(started.elapsed() < Duration::from_secs(60), "{script}");
    }
}

/// At the deadline the command and its children end, and what they wrote before arrives.
pub async fn a_timeout_ends_all_and_keeps_the_output(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    let script = "echo so far; flock lock1 sleep 300 & flock lock2 sleep 300; echo not reached";
    let request = ExecRequest { timeout: Some(Duration::from_millis(700)), ..command(script) };
    let started = Instant::now();
    let output = run(&sandbox, request).await;
    let error = failure(output.end);
    assert_eq!(error.code(), Code::Timeout, "{error}");
    assert!(started.elapsed() >= Duration::from_millis(700), "not before its time");
    assert!(started.elapsed() < Duration::from_secs(60), "near its time");
    assert_eq!(&output.stdout[..], b"so far\n");
    lock_is_free(&sandbox, "lock1").await;
    lock_is_free(&sandbox, "lock2").await;
}

/// Zero asks for no limit; it does not end a command at once.
pub async fn no_limit_is_a_limit_too(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    let request = ExecRequest { timeout: Some(Duration::ZERO), ..command("sleep 0.05; echo done") };
    assert_eq!(&run(&sandbox, request).await.stdout[..], b"done\n");
}

/// Whoever lets go of a running command ends it, with its children.
pub async fn dropping_a_command_ends_it(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    let mut running =
        sandbox.exec(command("flock lock1 sh -c 'echo held; sleep 300' & flock lock2 sleep 300")).await.unwrap();
    assert_eq!(running.next().await, Some(Event::Stdout("held\n".into())));
    drop(running);
    lock_is_free(&sandbox, "lock1").await;
    lock_is_free(&sandbox, "lock2").await;
}

/// Signals reach the command that is running, and it may answer them.
pub async fn signals_reach_a_command(subject: &Subject) {
    if !subject.features().signals {
        return;
    }
    let sandbox = subject.sandbox().await;
    for (signal, name) in [
        (Signal::Hangup, "HUP"),
        (Signal::Interrupt, "INT"),
        (Signal::Quit, "QUIT"),
        (Signal::Terminate, "TERM"),
        (Signal::Usr1, "USR1"),
        (Signal::Usr2, "USR2"),
        (Signal::Kill, ""),
    ] {
        let trap = if name.is_empty() { String::new() } else { format!("trap 'echo got {name}; exit 7' {name};") };
        let (sender, signals) = mpsc::channel(1);
        let input = ExecInput { stdin: None, signals: Some(signals) };
        let script = format!("{trap} echo ready; while :; do sleep 0.05 & wait $!; done");
        let mut running = sandbox.exec_with(command(script), input).await.unwrap();
        assert_eq!(running.next().await, Some(Event::Stdout("ready\n".into())));
        sender.send(signal).await.unwrap();
        if name.is_empty() {
            let end = running.next().await;
            assert!(matches!(end, Some(Event::Exited(ExitStatus { code: 137, .. }))), "{end:?}");
        } else {
            let mut output = Vec::new();
            let end = loop {
                match running.next().await.unwrap() {
                    // A shell may say that its child was ended.
                    Event::Stdout(bytes) => output.extend_from_slice(&bytes),
                    Event::Stderr(_) => {}
                    end => break end,
                }
            };
            assert!(text(&output).ends_with(&format!("got {name}\n")), "{name}: {}", text(&output));
            assert_eq!(end, Event::Exited(ExitStatus { code: 7, signal: None }), "{name}");
        }
    }
}

/// After a command that ended badly the sandbox is as it was.
pub async fn a_dead_command_spoils_nothing(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    for script in ["kill -9 $$", "kill -9 0", "exec 1>&- 2>&-; exit 1", "ulimit -n 3; cat x"] {
        drop(run(&sandbox, command(script)).await);
        assert_eq!(sh(&sandbox, "echo well").await, "well\n", "after {script}");
    }
}
