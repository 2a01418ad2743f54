//! How commands end: by themselves, by deadlines, by signals, by callers that go away; and what stays behind.

use std::io::Write;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::super::{Isolation, SpawnRequest};
use super::kit::{Kit, bash, collect, processes_with, read_line, unique_sleep, until, within};
use crate::error::Code;
use crate::values::{STREAM_DEPTH, Signal};

const BOTH: [Isolation; 2] = [Isolation::Namespace, Isolation::None];

#[tokio::test(flavor = "multi_thread")]
async fn a_background_process_holds_nothing_up_and_lives_until_release() {
    for isolation in BOTH {
        let kit = Kit::new(isolation);
        let sleep = unique_sleep();
        let begun = Instant::now();
        let outcome = kit.bash(&format!("sleep {sleep} & echo hi; exit 5")).await;
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        assert_eq!((outcome.text().as_str(), outcome.code()), ("hi\n", 5));
        until("the background process sleeps", || processes_with(&sleep) == 1).await;
        assert_eq!(kit.bash("echo other").await.text(), "other\n");
        assert_eq!(processes_with(&sleep), 1);
        kit.processes.end_sandbox(&kit.sandbox);
        until("the background process is gone", || processes_with(&sleep) == 0).await;
        kit.settled().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_background_process_does_not_outlive_the_capability() {
    for isolation in BOTH {
        let kit = Kit::new(isolation);
        let sleep = unique_sleep();
        kit.bash(&format!("sleep {sleep} & true")).await;
        until("the background process sleeps", || processes_with(&sleep) == 1).await;
        drop(kit.processes);
        until("the background process is gone", || processes_with(&sleep) == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_background_process_may_go_on_writing() {
    for isolation in BOTH {
        let kit = Kit::new(isolation);
        // Far more than a pipe holds, after the command has ended; a closed pipe would end it before the file is there.
        let script = "mkfifo fifo
            (read -r _ < fifo; head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2; echo done > alive) &
            echo started";
        let outcome = kit.bash(script).await;
        assert!(outcome.text().contains("started"));
        kit.bash("echo go > fifo").await;
        let alive = kit.dir.path().join("workspace/alive");
        until("the background process has written all", || alive.exists()).await;
        kit.settled().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ended_command_is_forgotten_while_its_reader_takes_its_time() {
    for isolation in BOTH {
        let kit = Kit::new(isolation);
        // Each byte is an event of its own, since the next is written when it has been taken out of the pipe (FIONREAD).
        let script = format!(
            r#"
            for (1 .. {STREAM_DEPTH}) {{
                syswrite(STDOUT, "x");
                my $left = pack("i", 1);
                while (unpack("i", $left)) {{
                    ioctl(STDOUT, 0x541B, $left) or die "ioctl: $!";
                    select(undef, undef, undef, 0.001);
                }}
            }}
            syswrite(STDOUT, "y");
            exit 3;
            "#
        );
        let args = vec!["-e".to_owned(), script];
        let events = kit.start(SpawnRequest { program: "perl".into(), args, ..SpawnRequest::default() }).await.unwrap();
        until("the stream is full", || events.len() == STREAM_DEPTH).await;
        kit.settled().await;
        assert_eq!(events.len(), STREAM_DEPTH, "the end is yet to come");
        // Nothing is left that could be killed, and all is delivered.
        kit.processes.end_sandbox(&kit.sandbox);
        let outcome = collect(events).await;
        assert_eq!((outcome.text(), outcome.code()), (format!("{}y", "x".repeat(STREAM_DEPTH)), 3));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_ends_the_whole_group_and_keeps_the_output() {
    for isolation in BOTH {
        let kit = Kit::new(isolation);
        let sleep = unique_sleep();
        let request = SpawnRequest {
            timeout: Some(Duration::from_secs(1)),
            ..bash(&format!("trap '' TERM INT; echo before; sleep {sleep} & sleep {sleep}"))
        };
        let begun = Instant::now();
        let outcome = kit.run(request).await.unwrap();
        assert!(begun.elapsed() >= Duration::from_secs(1) && begun.elapsed() < Duration::from_secs(10));
        let error = outcome.end.clone().unwrap().unwrap_err();
        assert_eq!(error.code(), Code::Timeout);
        assert!(error.to_string().contains("1 second"), "{error}");
        assert_eq!(outcome.text(), "before\n");
        assert_eq!(processes_with(&sleep), 0, "all is gone when the end is told");
        kit.settled().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_goes_away_ends_the_command() {
    for isolation in BOTH {
        let kit = Kit::new(isolation);
        for flood in ["", "yes &"] {
            let sleep = unique_sleep();
            let mut events = kit.start(bash(&format!("echo ready; {flood} sleep {sleep}"))).await.unwrap();
            within(events.recv()).await.unwrap();
            until("the command sleeps", || processes_with(&sleep) == 1).await;
            drop(events);
            until("the command is gone", || processes_with(&sleep) == 0).await;
            kit.settled().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_nobody_waits_for_may_clear_up() {
    for isolation in BOTH {
        let kit = Kit::new(isolation);
        let (cleared, whole) = (kit.dir.path().join("workspace/cleared"), kit.dir.path().join("workspace/whole"));
        let script = "trap 'echo > cleared; exit 1' TERM; echo ready; cat > /dev/null; echo > whole";
        let (sender, stdin) = mpsc::channel(1);
        let started = kit.processes.spawn(&kit.sandbox, &kit.mounts, bash(script), Some(stdin), None).await;
        let mut events = started.unwrap();
        within(events.recv()).await.unwrap();
        // Its input ends at the same moment, and must not look like an end that was meant.
        drop(events);
        drop(sender);
        until("it has cleared up", || cleared.exists()).await;
        kit.settled().await;
        assert!(!whole.exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_will_not_end_is_killed_when_nobody_waits_for_it() {
    for isolation in BOTH {
        let kit = Kit::new(isolation);
        let sleep = unique_sleep();
        let mut events = kit.start(bash(&format!("trap '' TERM; echo ready; sleep {sleep}"))).await.unwrap();
        within(events.recv()).await.unwrap();
        until("the command sleeps", || processes_with(&sleep) == 1).await;
        drop(events);
        until("the command is gone", || processes_with(&sleep) == 0).await;
        kit.settled().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_reach_the_command_and_its_code_comes_back() {
    // Who started the tests may ignore them (nohup, a shell's background job), and a shell can't trap what it was started to
    // ignore. What is caught here is not ignored there.
    let _caught = [SignalKind::interrupt(), SignalKind::hangup(), SignalKind::quit()].map(|kind| signal(kind).unwrap());
    for isolation in BOTH {
        let kit = Kit::new(isolation);
        for (which, name, code) in [
            (Signal::Interrupt, "INT", 41),
            (Signal::Terminate, "TERM", 42),
            (Signal::Hangup, "HUP", 43),
            (Signal::Usr1, "USR1", 44),
        ] {
            let (sender, signals) = mpsc::channel(4);
            // In the background and waited for: a shell that waits for a command in the foreground throws SIGINT away if
            // that command ends by itself at the same moment.
            let script =
                format!("trap 'echo caught; exit {code}' {name}; echo ready; while :; do sleep 0.02 & wait $!; done");
            let spawned = kit.processes.spawn(&kit.sandbox, &kit.mounts, bash(&script), None, Some(signals)).await;
            let mut events = spawned.unwrap();
            assert_eq!(read_line(&mut events).await, "ready\n");
            sender.send(which).await.unwrap();
            let outcome = collect(events).await;
            assert_eq!((outcome.text().as_str(), outcome.code()), ("caught\n", code), "{isolation:?} {name}");
        }
        for (signal, code) in [(Signal::Terminate, 143), (Signal::Kill, 137)] {
            let (sender, signals) = mpsc::channel(4);
            // Sent at once: it waits for the command to be there.
            sender.send(signal).await.unwrap();
            let sleep = unique_sleep();
            let script = format!("exec sleep {sleep}");
            let spawned = kit.processes.spawn(&kit.sandbox, &kit.mounts, bash(&script), None, Some(signals)).await;
            assert_eq!(collect(spawned.unwrap()).await.code(), code, "{isolation:?} {signal:?}");
            assert_eq!(processes_with(&sleep), 0);
        }
        kit.settled().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_over_the_granted_timeout_is_refused() {
    let mut grant = super::kit::grant(Isolation::None);
    grant.max_timeout = Some(Duration::from_secs(5));
    let kit = Kit::with(grant);
    let request = SpawnRequest { timeout: Some(Duration::ZERO), ..bash("true") };
    assert_eq!(kit.start(request).await.unwrap_err().code(), Code::InvalidArgument);
}

/// The command makes the namespace's first process, and itself, leave the process group, by tracing it.
#[cfg(target_arch = "x86_64")]
#[tokio::test(flavor = "multi_thread")]
async fn a_command_can_not_leave_by_tracing_its_first_process() {
    let kit = Kit::namespace();
    let sleep = unique_sleep();
    // ptrace: attach (16), registers (12, 13), one step (9), detach (17). Stopped in wait4, the instruction before the
    // one to come is `syscall`; 109 is setpgid(0, 0).
    let script = format!(
        r#"
        my $regs = "\0" x 216;
        syscall(101, 16, 1, 0, 0) == 0 or die "attach: $!";
        syscall(61, 1, my $status = "\0" x 8, 0x40000000, 0);
        syscall(101, 12, 1, 0, $regs) == 0 or die "registers: $!";
        my @r = unpack("Q27", $regs);
        my @changed = @r;
        @changed[10, 13, 14, 15, 16] = (109, 0, 0, 0xffffffffffffffff, $r[16] - 2);
        my $changed = pack("Q27", @changed);
        syscall(101, 13, 1, 0, $changed) == 0 or die "change: $!";
        syscall(101, 9, 1, 0, 0) == 0 or die "step: $!";
        syscall(61, 1, $status, 0x40000000, 0);
        syscall(101, 13, 1, 0, $regs);
        syscall(101, 17, 1, 0, 0);
        setpgrp(0, 0);
        print getpgrp(1) == 1 ? "left\n" : "still there\n";
        unless (fork) {{ close STDOUT; close STDERR; exec "sleep", "{sleep}"; }}
        "#
    );
    let request = SpawnRequest { program: "perl".into(), args: vec!["-e".into(), script], ..SpawnRequest::default() };
    let outcome = kit.run(request).await.unwrap();
    if outcome.errors().contains("attach: Operation not permitted") {
        // There is no such way out. Not by a macro: it must be seen although the test passes.
        let line = b"NOT TESTED: a command that traces its first process, which this kernel forbids (ptrace_scope)\n";
        std::io::stderr().write_all(line).unwrap();
        return;
    }
    assert_eq!(outcome.text(), "left\n", "{outcome:?}");
    until("the background process sleeps", || processes_with(&sleep) == 1).await;
    assert_eq!(kit.processes.count(&kit.sandbox), 1);
    kit.processes.end_sandbox(&kit.sandbox);
    until("the background process is gone", || processes_with(&sleep) == 0).await;
}
