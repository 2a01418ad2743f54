//! Much output: all of it, exactly, in bounded memory.

use super::super::{Isolation, SpawnRequest};
use super::kit::{Kit, bash, until, within};
use crate::values::{CHUNK_SIZE, Event, STREAM_DEPTH};

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

/// Writes without waiting. Once the test says that nobody takes more, a pipe that is full stays full: it tells how much
/// it got rid of, and goes on when it can.
const WRITER: &str = r#"
    use Fcntl;
    my ($piece, $sent, $told) = ("x" x 65536, 0, 0);
    fcntl(STDOUT, F_SETFL, O_WRONLY | O_NONBLOCK) or die;
    while ($sent < 400 * 65536) {
        my $full = -e "full";
        my $size = 400 * 65536 - $sent;
        my $written = syswrite(STDOUT, $piece, $size < 65536 ? $size : 65536);
        if (defined $written) { $sent += $written; next; }
        if ($full && !$told) {
            open(my $file, ">", "sent.new") or die;
            print $file $sent;
            close($file);
            rename("sent.new", "sent") or die;
            $told = 1;
        }
        select(undef, undef, undef, 0.001);
    }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_stops_the_writer() {
    for isolation in BOTH {
        let kit = Kit::new(isolation);
        let workspace = kit.dir.path().join("workspace");
        let args = vec!["-e".to_owned(), WRITER.to_owned()];
        let mut events =
            kit.start(SpawnRequest { program: "perl".into(), args, ..SpawnRequest::default() }).await.unwrap();
        until("the stream is full", || events.len() == STREAM_DEPTH).await;
        std::fs::write(workspace.join("full"), "").unwrap();
        until("the pipe is full", || workspace.join("sent").exists()).await;
        let sent: usize = std::fs::read_to_string(workspace.join("sent")).unwrap().parse().unwrap();
        // What the stream holds, and what the pipe holds.
        assert!(sent <= (STREAM_DEPTH + 1) * CHUNK_SIZE, "{sent} bytes were written for a reader that takes none");
        let mut size = 0;
        while let Some(event) = within(events.recv()).await {
            if let Event::Stdout(bytes) = event {
                assert!(bytes.len() <= CHUNK_SIZE);
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
