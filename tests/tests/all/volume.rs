//! Much of everything: through the component, the gateway and the real program, whole, and in little memory.

use std::process::Command;
use std::time::{Duration, Instant};

use sandgate::values::{Event, GrepOptions, ReadRange};
use sandgate::{Code, Sandbox};
use sandgate_tests::support::{Cli, Kind, Subject, command, conform, drive, failure, run, sh};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const LINE: usize = 100_000_000;
const MUCH: u64 = 2 << 30;
/// What a process may grow by, however much passes through it.
const GROWTH: u64 = 32 << 20;

/// The most memory that a process ever had, in bytes.
fn peak(process: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Runs one ignored test of this program alone, so that nothing else is in the memory that it measures.
fn alone(test: &str) {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("volume::{test}"), "--ignored", "--nocapture", "--test-threads=1"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout).into_owned() + &String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success() && text.contains("1 passed"), "{text}");
}

async fn a_very_long_line(subject: &Subject) {
    let sandbox = subject.sandbox().await;
    let script = format!("printf '\\377\\300\\0'; head -c {LINE} /dev/zero | tr '\\0' '\\376'; printf '\\200'; exit 4");
    let mut running = sandbox.exec(command(script)).await.unwrap();
    let (mut seen, mut wrong) = (0, 0);
    let end = loop {
        match running.next().await.unwrap() {
            Event::Stdout(bytes) => {
                let expected = |at: usize| match at {
                    0 => 0xff,
                    1 => 0xc0,
                    2 => 0,
                    at if at == LINE + 3 => 0x80,
                    _ => 0xfe,
                };
                wrong += bytes.iter().enumerate().filter(|(at, byte)| **byte != expected(seen + at)).count();
                seen += bytes.len();
            }
            Event::Exited(status) => break status,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((seen, wrong, end.code), (LINE + 4, 0, 4));
}

#[test]
fn a_line_of_100_mb_that_is_no_text_arrives_whole() {
    conform(Kind::Local, a_very_long_line);
}

#[test]
fn a_line_of_100_mb_is_translated_in_pieces_and_arrives_whole() {
    conform(Kind::LocalUnconfined, a_very_long_line);
}

/// Whether the command of another sandbox comes through; how often it did until `busy` was over.
async fn answers_while(other: &Sandbox, busy: impl Future<Output = ()>) -> usize {
    let mut answered = 0;
    let ask = async {
        loop {
            assert!(run(other, command("true")).await.success());
            answered += 1;
        }
    };
    tokio::select! {
        () = busy => {}
        () = ask => unreachable!("it has no end"),
    }
    answered
}

#[test]
fn two_gib_take_no_memory_and_hold_nobody_up() {
    alone("two_gib");
}

#[test]
#[ignore = "run by two_gib_take_no_memory_and_hold_nobody_up"]
fn two_gib() {
    conform(Kind::Local, async |subject: &Subject| {
        let (sandbox, other) = (subject.sandbox().await, subject.sandbox_of("t2").await);
        let stream = async |size: u64| {
            let mut running = sandbox.exec(command(format!("head -c {size} /dev/zero; exit 6"))).await.unwrap();
            let mut seen = 0;
            loop {
                match running.next().await.unwrap() {
                    Event::Stdout(bytes) => seen += bytes.len() as u64,
                    Event::Exited(status) => break assert_eq!((seen, status.code), (size, 6)),
                    other => panic!("{other:?}"),
                }
            }
        };
        // What is there once: instances that are kept, threads, the allocator's own.
        answers_while(&other, stream(64 << 20)).await;
        let before = peak("self");
        let answered = answers_while(&other, stream(MUCH)).await;
        let grown = peak("self") - before;
        assert!(grown < GROWTH, "{grown} bytes more");
        assert!(answered >= 3, "the other sandbox answered only {answered} times");
    });
}

/// The peak of `sandgate exec` when all of a command's output has come, while the command still runs.
async fn peak_of_exec(cli: &Cli, size: u64) -> u64 {
    let script = format!("head -c {size} /dev/zero; read -r go; exit $go");
    let mut child = cli.start(&["exec", "--stdin", "-c", &script]);
    let mut stdout = child.stdout.take().unwrap();
    let mut buffer = vec![0; 1 << 20];
    let mut seen = 0;
    while seen < size {
        let read = stdout.read(&mut buffer).await.unwrap();
        assert!(read > 0, "it ended after {seen} bytes");
        seen += read as u64;
    }
    assert_eq!(seen, size);
    let peak = peak(&child.id().unwrap().to_string());
    child.stdin.take().unwrap().write_all(b"5\n").await.unwrap();
    assert_eq!(child.wait().await.unwrap().code(), Some(5));
    peak
}

#[test]
fn two_gib_through_the_program_take_no_memory() {
    drive(async {
        let cli = Cli::new();
        let little = peak_of_exec(&cli, 1 << 20).await;
        let much = peak_of_exec(&cli, MUCH).await;
        assert!(much < little + GROWTH, "{little} bytes for a little, {much} for much");
    });
}

#[test]
fn a_file_with_a_line_of_100_mb_is_searched_and_read_in_little_memory() {
    alone("long_line_in_a_file");
}

#[test]
#[ignore = "run by a_file_with_a_line_of_100_mb_is_searched_and_read_in_little_memory"]
fn long_line_in_a_file() {
    for kind in [Kind::Local, Kind::ShellOnly] {
        conform(kind, async |subject: &Subject| {
            let sandbox = subject.sandbox().await;
            let script = format!(
                "echo needle > small; {{ echo first; head -c {LINE} /dev/zero | tr '\\0' x; printf 'needle\\nlast needle\\n'; }} > large"
            );
            sh(&sandbox, &script).await;
            let (here, large) = (sandbox.path(".").unwrap(), sandbox.path("large").unwrap());
            let lines = async |start, end, limit| sandbox.read(&large, ReadRange::Lines { start, end }, limit).await;
            assert_eq!(&lines(1, Some(1), 100).await.unwrap()[..], b"first\n");
            let before = peak("self");
            let begun = Instant::now();
            // So large a file is passed over, and others are found.
            let found = sandbox.grep(&here, "needle", GrepOptions::default()).await.unwrap();
            let paths: Vec<&str> = found.matches.iter().map(|found| found.path.as_str()).collect();
            assert_eq!(paths, ["/mnt/user-data/workspace/small"], "{kind:?}");
            let found = sandbox.grep(&large, "needle", GrepOptions::default()).await.unwrap();
            assert!(found.matches.iter().all(|found| found.line.chars().count() <= 200), "{kind:?}");
            assert_eq!(&lines(3, None, 100).await.unwrap()[..], b"last needle\n");
            assert_eq!(&lines(9, None, 100).await.unwrap()[..], b"");
            let error = failure(lines(2, Some(2), 1 << 20).await);
            assert_eq!(error.code(), Code::TooLarge, "{kind:?}: {error}");
            // All of it, for those who take it piece by piece.
            let mut content = sandbox.read_file(&large, ReadRange::Lines { start: 2, end: Some(2) }).await.unwrap();
            let mut seen = 0;
            while let Some(piece) = content.data.recv().await {
                seen += piece.unwrap().len();
            }
            assert_eq!(seen, LINE + "needle\n".len(), "{kind:?}");
            let grown = peak("self") - before;
            assert!(grown < GROWTH, "{kind:?}: {grown} bytes more");
            assert!(begun.elapsed() < Duration::from_secs(60), "{kind:?}: {:?}", begun.elapsed());
        });
    }
}
