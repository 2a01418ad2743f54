//! A command's output: all of it, exactly, or what was asked to be kept of it.

use sandgate::values::{Event, ExecRequest};

use crate::support::{Handshake, Subject, command, run, text};

/// The last bytes are not lost when the command ends right behind them.
pub async fn five_million_bytes_and_then_a_code(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    for round in 0..50 {
        let output = run(&sandbox, command("head -c 5000000 /dev/zero | tr '\\0' x; exit 3")).await;
        assert_eq!((output.stdout.len(), output.dropped), (5_000_000, 0), "round {round}");
        assert!(output.stdout.iter().all(|byte| *byte == b'x'), "round {round}");
        assert_eq!(output.end.unwrap().code, 3, "round {round}");
    }
}

/// Bytes are bytes.
pub async fn bytes_that_are_no_text(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    let output = run(&sandbox, command("printf '\\377\\000ok\\r\\n\\n'; printf '\\200\\000\\n' >&2")).await;
    assert!(output.success());
    if subject.features().split_output {
        assert_eq!(&output.stdout[..], b"\xff\0ok\r\n\n");
        assert_eq!(&output.stderr[..], b"\x80\0\n");
    } else {
        assert_eq!(&output.stdout[..], b"\xff\0ok\r\n\n\x80\0\n");
    }
}

/// A character of several bytes may come byte by byte, on both streams by turns.
pub async fn characters_that_come_in_parts(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    // 🦀 on standard output and 文 on standard error, a byte at each answer.
    let script = "for b in 360:346 237:226 246:207 200:; do \
        printf \"\\\\${b%%:*}\"; [ -z \"${b#*:}\" ] || printf \"\\\\${b#*:}\" >&2; read -r next; done";
    let mut talk = Handshake::start(&sandbox, command(script)).await;
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    for wanted in [2, 4, 6, 7] {
        while stdout.len() + stderr.len() < wanted {
            match talk.next().await {
                Event::Stdout(bytes) => stdout.extend_from_slice(&bytes),
                Event::Stderr(bytes) => stderr.extend_from_slice(&bytes),
                other => panic!("{other:?}"),
            }
        }
        talk.say("next").await;
    }
    assert!(matches!(talk.rest().await[..], [Event::Exited(status)] if status.code == 0));
    if subject.features().split_output {
        assert_eq!((text(&stdout), text(&stderr)), ("🦀".to_owned(), "文".to_owned()));
    }
}

/// Over the limit, what comes first and what comes last is kept, and what lies between is counted to the byte.
pub async fn a_limit_keeps_head_and_tail_and_counts_the_rest(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    let all: String = (1..=200_000).map(|n| format!("{n}\n")).collect();
    for limit in [1000, 10_001, 100_000] {
        let request = ExecRequest { output_limit: Some(limit), ..command("seq 200000; exit 5") };
        let mut running = sandbox.exec(request).await.unwrap();
        let (mut head, mut tail, mut dropped) = (Vec::new(), Vec::new(), None);
        let end = loop {
            match running.next().await.unwrap() {
                Event::Stdout(bytes) if dropped.is_none() => head.extend_from_slice(&bytes),
                Event::Stdout(bytes) => tail.extend_from_slice(&bytes),
                Event::Dropped(count) => assert_eq!(dropped.replace(count), None, "told once"),
                Event::Exited(status) => break status,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(end.code, 5);
        let dropped = dropped.expect("something was dropped");
        assert_eq!((head.len() + tail.len()) as u64 + dropped, all.len() as u64);
        assert!((head.len() + tail.len()) as u64 <= limit, "{} and {}", head.len(), tail.len());
        assert!(all.as_bytes().starts_with(&head) && all.as_bytes().ends_with(&tail));
        // Both ends are worth something.
        assert!(head.len() as u64 >= limit / 4 && tail.len() as u64 >= limit / 4, "{} and {}", head.len(), tail.len());
    }
}

/// Up to the limit nothing is touched.
pub async fn a_limit_that_is_not_reached_changes_nothing(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    for limit in [5000, 5001, 1_000_000] {
        let request = ExecRequest { output_limit: Some(limit), ..command("head -c 5000 /dev/zero | tr '\\0' y") };
        let output = run(&sandbox, request).await;
        assert_eq!((output.stdout.len(), output.dropped), (5000, 0), "limit {limit}");
    }
}
