//! A command's standard input.

use bytes::Bytes;
use sandgate::values::{Event, byte_stream};
use sandgate::{DEFAULT_COLLECT_LIMIT, ExecInput, Output};

use crate::support::{Random, Subject, command, text};

async fn run_with(subject: &Subject, script: &str, input: impl Into<Bytes>) -> Output {
    let sandbox = subject.sandbox().await;
    let input = ExecInput { stdin: Some(byte_stream(input)), signals: None };
    sandbox.exec_with(command(script), input).await.unwrap().output(DEFAULT_COLLECT_LIMIT).await
}

/// A command that reads without having been given anything does not wait for ever.
pub async fn without_input_there_is_its_end(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    let running = sandbox.exec(command("cat; read x; echo \"$? [$x]\"; wc -c")).await.unwrap();
    let output = running.output(DEFAULT_COLLECT_LIMIT).await;
    assert!(output.success());
    assert_eq!(text(&output.stdout).split_whitespace().collect::<Vec<_>>(), ["1", "[]", "0"]);
}

/// What is given arrives, byte by byte, and then there is its end.
pub async fn input_arrives_whole_and_ends(subject: &Subject) {
    if !subject.features().stdin {
        return;
    }
    assert_eq!(&run_with(subject, "cat", "tok").await.stdout[..], b"tok");
    assert_eq!(&run_with(subject, "cat", "").await.stdout[..], b"");
    let odd = Bytes::from_static(b"\0\xff\r\n\n\x04\x1a\xf0\x9f");
    assert_eq!(run_with(subject, "cat", odd.clone()).await.stdout, odd);
    // The shell itself reads its script from elsewhere.
    let output = run_with(subject, "read -r a; read -r b; echo \"$b,$a\"", "one\ntwo\nthree").await;
    assert_eq!(text(&output.stdout), "two,one\n");
}

/// More than the command wants is no error, and nobody waits for it.
pub async fn input_that_nobody_reads_holds_nothing_up(subject: &Subject) {
    if !subject.features().stdin {
        return;
    }
    let much = Random::new(1).bytes(5_000_000);
    assert_eq!(&run_with(subject, "head -c 5", much.clone()).await.stdout[..], &much[..5]);
    assert!(run_with(subject, "true", much.clone()).await.success());
    assert_eq!(run_with(subject, "exec <&-; exit 3", much).await.end.unwrap().code, 3);
}

/// Both directions at the same time: neither waits for the other to be done.
pub async fn a_large_input_arrives_while_output_leaves(subject: &Subject) {
    if !subject.features().stdin {
        return;
    }
    let much = Random::new(2).bytes(20_000_000);
    let sandbox = subject.sandbox().await;
    let input = ExecInput { stdin: Some(byte_stream(much.clone())), signals: None };
    let mut running = sandbox.exec_with(command("cat"), input).await.unwrap();
    let mut back = Vec::with_capacity(much.len());
    loop {
        match running.next().await.unwrap() {
            Event::Stdout(bytes) => back.extend_from_slice(&bytes),
            Event::Exited(status) => break assert_eq!(status.code, 0),
            other => panic!("{other:?}"),
        }
    }
    assert!(back == much, "{} of {} bytes, or others", back.len(), much.len());
}
