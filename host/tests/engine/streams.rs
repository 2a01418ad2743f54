//! Streams that a guest makes, changes or breaks.

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sandgate::engine::{EngineOptions, InstanceRecord};
use sandgate::error::{Code, Error};
use sandgate::mounts::VirtualPath;
use sandgate::values::{ByteStream, Event, ExecRequest, ExitStatus, ReadRange, WriteOptions, byte_stream};
use tokio::sync::mpsc;

use crate::support::{Bench, PATIENCE, drain, hostile, local, options, text};

fn exited(code: i32) -> Event {
    Event::Exited(ExitStatus { code, signal: None })
}

/// Two pieces, then an error.
fn breaking() -> ByteStream {
    let (sender, receiver) = mpsc::channel(4);
    for piece in [Ok(Bytes::from_static(b"half")), Ok(Bytes::from_static(b" of it")), Err(broken())] {
        sender.try_send(piece).unwrap();
    }
    receiver
}

fn broken() -> Error {
    Error::new(Code::Unavailable, "the client went away")
}

async fn exec_with(bench: &Bench, command: &str, stdin: ByteStream) -> Vec<Event> {
    let request = ExecRequest { command: command.to_owned(), ..ExecRequest::default() };
    let record = InstanceRecord::default();
    match bench.provider.exec(&bench.room.target, &record, &request, Some(stdin), None).await {
        Ok(events) => drain(events).await,
        // A guest may have read its input before the call has returned.
        Err(error) => vec![Event::Failed(error)],
    }
}

#[tokio::test]
async fn a_guest_rewrites_output_and_nothing_is_lost() {
    let bench = Bench::hostile(options()).await;
    let events = drain(bench.exec("upper:echo one; echo two >&2; seq 3; echo last; exit 7").await.unwrap()).await;
    assert_eq!(text(&events), "ONE\n1\n2\n3\nLAST\n");
    assert!(events.contains(&Event::Stderr(Bytes::from_static(b"two\n"))), "{events:?}");
    assert_eq!(events.last(), Some(&exited(7)));
    assert_eq!(events.iter().filter(|event| matches!(event, Event::Exited(_) | Event::Failed(_))).count(), 1);
}

#[tokio::test]
async fn a_guest_rewrites_output_of_a_command_that_has_input() {
    let bench = Bench::hostile(options()).await;
    let input: String = (0..50_000).map(|line| format!("line {line}\n")).collect();
    let events = exec_with(&bench, "upper:cat", byte_stream(input.clone())).await;
    assert!(text(&events) == input.to_uppercase(), "{} bytes", text(&events).len());
    assert_eq!(events.last(), Some(&exited(0)));
}

/// How many turns of the runtime a writer must have waited through. A reader that is willing needs a few.
const TURNS: usize = 500;

/// Whether the program that writes in this directory sleeps.
fn writer_sleeps(folder: &Path) -> bool {
    let writer = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path()).find(|process| {
        std::fs::read(process.join("cmdline")).is_ok_and(|line| line.starts_with(b"head\0"))
            && std::fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd == folder)
    });
    let stat = writer.and_then(|process| std::fs::read_to_string(process.join("stat")).ok()).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" S"))
}

#[tokio::test]
async fn a_slow_reader_stops_the_command() {
    let bench = Bench::hostile(options()).await;
    let command = "upper:for i in $(seq 400); do head -c 65536 /dev/zero; echo $i > progress; done";
    let mut events = bench.exec(command).await.unwrap();
    let progress = || {
        let text = std::fs::read_to_string(bench.room.folder.path().join("progress")).unwrap_or_default();
        text.trim().parse::<usize>().unwrap_or(0)
    };
    assert!(events.recv().await.is_some());
    // The writer waits for its pipe, and goes on waiting however often all others get their turn: nobody reads it.
    let folder = bench.room.folder.path().canonicalize().unwrap();
    let deadline = Instant::now() + PATIENCE;
    let mut waited = 0;
    while waited < TURNS {
        assert!(Instant::now() < deadline && progress() < 400, "the command does not stop");
        waited = if writer_sleeps(&folder) { waited + 1 } else { 0 };
        tokio::task::yield_now().await;
    }
    // What lies between: two channels of 8 pieces, a pipe, and what is in hand. Ten times that is not reached.
    assert!(progress() < 200, "{} pieces were written that nobody read", progress());
    let rest = drain(events).await;
    assert_eq!(rest.last(), Some(&exited(0)));
}

#[tokio::test]
async fn input_that_a_guest_makes_ends_with_the_command() {
    let bench = Bench::hostile(EngineOptions { max_instances: 1, ..options() }).await;
    let events = drain(bench.exec("feed:head -n 1; echo and done").await.unwrap()).await;
    assert_eq!((text(&events).as_str(), events.last()), ("fed\nand done\n", Some(&exited(0))));
    bench.still_works().await;
}

#[tokio::test]
async fn a_stream_has_one_end_or_none() {
    let bench = Bench::hostile(options()).await;
    let events = drain(bench.exec("two-exits").await.unwrap()).await;
    assert_eq!(events, [exited(1)]);
    let events = drain(bench.exec("no-exit").await.unwrap()).await;
    assert_eq!(events, [Event::Stdout(Bytes::from_static(b"and then"))]);
}

#[tokio::test]
async fn input_that_breaks_off_is_no_end_of_file() {
    let bench = Bench::hostile(options()).await;
    let events = exec_with(&bench, "count-stdin", byte_stream("four")).await;
    assert_eq!(events, [Event::Stdout(Bytes::from_static(b"4")), exited(0)]);
    let events = exec_with(&bench, "count-stdin", breaking()).await;
    assert_eq!(events, [Event::Failed(broken())], "the guest must not take it for the end");
    bench.still_works().await;
}

#[tokio::test]
async fn a_source_that_breaks_off_is_never_a_whole_file() {
    let path = VirtualPath::new("/mnt/user-data/workspace/new.txt").unwrap();
    let record = InstanceRecord::default();
    for bytes in [hostile(), local()] {
        let bench = Bench::new(options(), bytes, "{}").await;
        let target = &bench.room.target;
        let options = WriteOptions::default();
        let error = bench.provider.write_file(target, &record, &path, breaking(), options).await.unwrap_err();
        assert_eq!(error, broken());
        assert!(!bench.room.folder.path().join("new.txt").exists());
        let written = bench.provider.write_file(target, &record, &path, byte_stream("whole"), options).await;
        assert_eq!(written, Ok(5));
    }
}

/// All of a file that the guest makes up, and how it ended.
async fn read(bench: &Bench, name: &str) -> (Vec<u8>, Option<Error>) {
    let path = VirtualPath::new(&format!("/mnt/user-data/workspace/{name}")).unwrap();
    let record = InstanceRecord::default();
    let mut content = bench.provider.read_file(&bench.room.target, &record, &path, ReadRange::All).await.unwrap();
    let mut bytes = Vec::new();
    while let Some(piece) = tokio::time::timeout(PATIENCE, content.data.recv()).await.expect("the file hangs") {
        match piece {
            Ok(piece) => bytes.extend_from_slice(&piece),
            Err(error) => return (bytes, Some(error)),
        }
    }
    (bytes, None)
}

#[tokio::test]
async fn a_guests_word_on_a_files_end_comes_behind_its_bytes() {
    let patience = Duration::from_secs(10);
    let bench = Bench::hostile(EngineOptions { max_instances: 1, call_timeout: patience, ..options() }).await;
    for _ in 0..20 {
        assert_eq!(read(&bench, "fine").await, (b"half".to_vec(), None));
        let (bytes, error) = read(&bench, "broken").await;
        let error = error.unwrap();
        assert_eq!((&bytes[..], error.code()), (&b"half"[..], Code::Unavailable));
        assert!(error.to_string().contains("the line went dead"), "{error}");
    }
    let (bytes, error) = read(&bench, "silent").await;
    assert_eq!((&bytes[..], error.unwrap().code()), (&b"half"[..], Code::GuestProtocol));
    bench.still_works().await;
}

#[tokio::test]
async fn a_file_that_never_comes_is_let_go_with_its_reader() {
    let bench = Bench::hostile(EngineOptions { max_instances: 1, ..options() }).await;
    let path = VirtualPath::new("/mnt/user-data/workspace/hanging").unwrap();
    let record = InstanceRecord::default();
    let mut content = bench.provider.read_file(&bench.room.target, &record, &path, ReadRange::All).await.unwrap();
    assert_eq!(content.data.recv().await, Some(Ok(Bytes::from_static(b"half"))));
    drop(content);
    tokio::time::timeout(PATIENCE, bench.still_works()).await.expect("its place is lost");
}

#[tokio::test]
async fn a_stream_that_a_guest_never_ends_is_overdue() {
    let patience = Duration::from_millis(300);
    let bench = Bench::hostile(EngineOptions { max_instances: 1, call_timeout: patience, ..options() }).await;
    let (bytes, error) = read(&bench, "hanging").await;
    assert_eq!((&bytes[..], error.unwrap().code()), (&b"half"[..], Code::Timeout));
    bench.still_works().await;
    // A command may be silent for its own timeout, and its provider a little longer.
    let request =
        ExecRequest { command: "silent".into(), timeout: Some(Duration::from_millis(100)), ..ExecRequest::default() };
    let record = InstanceRecord::default();
    let events = bench.provider.exec(&bench.room.target, &record, &request, None, None).await.unwrap();
    let events = drain(events).await;
    assert!(matches!(&events[..], [Event::Failed(error)] if error.code() == Code::Timeout), "{events:?}");
    bench.still_works().await;
}

#[tokio::test]
async fn a_slow_reader_is_not_an_overdue_guest() {
    let limit = Duration::from_secs(2);
    let bench = Bench::hostile(EngineOptions { call_timeout: limit, ..options() }).await;
    let path = VirtualPath::new("/mnt/user-data/workspace/large").unwrap();
    let record = InstanceRecord::default();
    let mut content = bench.provider.read_file(&bench.room.target, &record, &path, ReadRange::All).await.unwrap();
    let mut size = content.data.recv().await.unwrap().unwrap().len();
    // All that has room for it is filled, and the guest has had its turns with the rest.
    while content.data.len() < content.data.max_capacity() {
        tokio::task::yield_now().await;
    }
    // Nothing is taken for several times the limit.
    tokio::time::pause();
    for _ in 0..5 {
        tokio::time::advance(limit + Duration::from_millis(1)).await;
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
    }
    tokio::time::resume();
    while let Some(piece) = content.data.recv().await {
        size += piece.unwrap().len();
    }
    assert_eq!(size, 4 << 20);
}

/// Local hands its streams through, so that what passes is far more than its memory could ever see.
#[tokio::test(flavor = "multi_thread")]
async fn output_and_files_do_not_pass_through_a_guest_that_hands_them_through() {
    const SIZE: usize = 256 << 20;
    // A guest that touched a byte of it would use CPU time for each, and there is next to none. One place also shows that
    // no instance is there while the command runs.
    let options = EngineOptions { max_instances: 1, cpu_limit: Duration::from_millis(40), ..options() };
    let bench = Bench::new(options, local(), "{}").await;
    let mut events = bench.exec(&format!("head -c {SIZE} /dev/zero; echo -n done >&2")).await.unwrap();
    let record = InstanceRecord::default();
    let path = VirtualPath::new("/mnt/user-data/workspace").unwrap();
    let stat = bench.provider.stat(&bench.room.target, &record, &path);
    tokio::time::timeout(PATIENCE, stat).await.expect("the running command holds the only place").unwrap();
    let mut size = 0;
    while let Some(event) = tokio::time::timeout(PATIENCE, events.recv()).await.unwrap() {
        match event {
            Event::Stdout(bytes) => size += bytes.len(),
            Event::Exited(status) => assert_eq!(status.code, 0),
            Event::Stderr(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(size, SIZE);
}

#[tokio::test]
async fn a_secret_is_in_no_error_and_no_line_of_a_guest() {
    let bench = Bench::hostile(options()).await;
    let secret = "hunter2-and-more";
    let request = ExecRequest {
        command: "tell".into(),
        env: [("TOKEN".to_owned(), secret.to_owned())].into(),
        ..ExecRequest::default()
    };
    let lines = crate::limits::captured(async {
        let record = InstanceRecord::default();
        bench.provider.exec(&bench.room.target, &record, &request, None, None).await.unwrap_err();
    })
    .await;
    assert!(lines.contains("was given [redacted]") && !lines.contains(secret), "{lines}");
}
