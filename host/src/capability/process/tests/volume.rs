//! Much output: all of it, exactly, in bounded memory.

use std::time::Duration;

use super::super::{Isolation, SpawnRequest};
use super::kit::{Kit, bash, within};
use crate::values::Event;

const BOTH: [Isolation; 2] = [Isolation::Namespace, Isolation::None];

#[tokio::test(flavor = "multi_thread")]
async fn the_last_byte_before_the_end_is_there() {
    for isolation in BOTH {
        let kit = Kit::new(isolation);
        for _ in 0..50 {
            let outcome = kit.bash("head -c 5000000 /dev/zero | tr '\\0' x; exit 3").await;
            assert_eq!((outcome.stdout.len(), outcome.code()), (5_000_000, 3));
            assert!(outcome.stdout.iter().all(|byte| *byte == b'x'));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn over_the_limit_head_and_tail_are_kept() {
    let kit = Kit::namespace();
    let limit = 8 << 20;
    let request = SpawnRequest {
        output_limit: Some(limit),
        ..bash("echo first; head -c 20000000 /dev/zero | tr '\\0' x; echo last; exit 9")
    };
    let outcome = kit.run(request).await.unwrap();
    let total = 20_000_000 + 6 + 5;
    assert_eq!((outcome.stdout.len() as u64, outcome.dropped), (limit, total - limit));
    assert!(outcome.stdout.starts_with(b"first\nxx") && outcome.stdout.ends_with(b"xxlast\n"));
    assert_eq!(outcome.code(), 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_never_cuts_a_secret_in_two() {
    let kit = Kit::namespace();
    let secret = "s3cret-of-some-length";
    // Whatever the limit, its head or its tail ends inside of some occurrence.
    for limit in [1_000, 1_007, 1_013] {
        let request = SpawnRequest {
            output_limit: Some(limit),
            env: [("TOKEN".to_owned(), secret.to_owned())].into(),
            ..bash("for i in {1..400}; do printf '%s|' \"$TOKEN\"; done")
        };
        let outcome = kit.run(request).await.unwrap();
        let text = outcome.text();
        assert!(outcome.dropped > 0 && text.contains("[redacted]"), "{text}");
        assert!(!text.contains("s3cret") && !text.contains("length"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_stops_the_writer() {
    for isolation in BOTH {
        let kit = Kit::new(isolation);
        let progress = kit.dir.path().join("workspace/progress");
        let script = "n=0; while [ $n -lt 400 ]; do head -c 65536 /dev/zero; n=$((n+1)); echo $n > progress.new; mv progress.new progress; done";
        let mut events = kit.start(bash(script)).await.unwrap();
        let read =
            || std::fs::read_to_string(&progress).ok().and_then(|text| text.trim().parse::<u32>().ok()).unwrap_or(0);
        // It stands still when nothing has changed for as long as it took to get there, and for a moment more.
        let (mut last, mut since) = (0, std::time::Instant::now());
        within(async {
            while last == 0 || since.elapsed() < Duration::from_millis(400) {
                tokio::time::sleep(Duration::from_millis(10)).await;
                if read() != last {
                    (last, since) = (read(), std::time::Instant::now());
                }
            }
        })
        .await;
        assert!(last < 40, "{last} pieces of 64 KiB were written for a reader that takes none");
        let mut size = 0;
        while let Some(event) = within(events.recv()).await {
            if let Event::Stdout(bytes) = event {
                assert!(bytes.len() <= crate::values::CHUNK_SIZE);
                size += bytes.len();
            }
        }
        assert_eq!(size, 400 * 65536);
    }
}

/// Set in a run of this test program that does nothing else, so that its memory is that of the one command.
const ALONE: &str = "SANDGATE_TEST_TWO_GIB";

#[tokio::test(flavor = "multi_thread")]
async fn two_gib_of_output_take_no_memory() {
    if std::env::var_os(ALONE).is_none() {
        let alone = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "capability::process::tests::volume::two_gib_of_output_take_no_memory"])
            .env(ALONE, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&alone.stdout);
        assert!(alone.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    for (limit, expected) in [(None, 2 << 30), (Some(4 << 20), 4 << 20)] {
        let kit = Kit::namespace();
        kit.bash("true").await;
        let before = peak_memory();
        let request = SpawnRequest { output_limit: limit, ..bash("head -c 2G /dev/zero") };
        let mut events = kit.start(request).await.unwrap();
        let (mut size, mut dropped, mut end) = (0, 0, None);
        while let Some(event) = within(events.recv()).await {
            match event {
                Event::Stdout(bytes) => size += bytes.len() as u64,
                Event::Dropped(count) => dropped += count,
                other => end = Some(other),
            }
        }
        assert_eq!((size, size + dropped), (expected, 2 << 30));
        assert!(matches!(end, Some(Event::Exited(status)) if status.code == 0), "{end:?}");
        let grown = peak_memory().saturating_sub(before);
        assert!(grown < 32 << 20, "{grown} bytes");
    }
}

/// The most memory that this process has had, in bytes.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}
