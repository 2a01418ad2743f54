//! What ends a guest, and that nobody else notices.

use std::io::Write;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use sandgate::engine::{InstanceRecord, Pooling, Provider};
use sandgate::error::{Code, Error};
use sandgate::mounts::VirtualPath;
use sandgate::values::Event;

use crate::support::{Bench, PATIENCE, Room, drain, granted, hostile, local, options, text};

/// Errors must say who failed at what.
fn assert_blames(error: &Error, code: Code, operation: &str) {
    assert_eq!(error.code(), code, "{error}");
    let text = error.to_string();
    assert!(text.contains("bad 0.6.6") && text.contains(&format!(" {operation}")), "{text}");
}

#[tokio::test]
async fn a_loop_without_end_is_ended_and_others_go_on() {
    // One thread for all: the others can only run because the guest is interrupted.
    let spinning = Bench::new(options(), hostile(), r#"{"create":"spin"}"#).await;
    let other = Provider::load(&spinning.runtime, local(), granted("{}")).await.unwrap();
    let room = Room::new("two");
    let at = VirtualPath::new("/mnt/user-data/workspace").unwrap();
    let begun = Instant::now();
    let spin = spinning.create();
    tokio::pin!(spin);
    let (mut done, error) = (0, loop_while(&mut spin, || other.stat(&room.target, &EMPTY, &at)).await);
    done += error.1;
    let error = error.0.unwrap_err();
    assert_blames(&error, Code::GuestCpu, "create");
    assert!(error.to_string().contains("engine.cpu_ms"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert!(done >= 3, "only {done} calls of another provider completed meanwhile");
    other.stat(&room.target, &EMPTY, &at).await.unwrap();
}

static EMPTY: LazyLock<InstanceRecord> = LazyLock::new(InstanceRecord::default);

/// Repeats a call until `main` is done; counts those that completed before.
async fn loop_while<M, F, T>(main: &mut std::pin::Pin<&mut M>, call: impl Fn() -> F) -> (M::Output, usize)
where
    M: Future,
    F: Future<Output = sandgate::Result<T>>,
{
    let mut count = 0;
    let calls = async {
        loop {
            call().await.unwrap();
            count += 1;
        }
    };
    let output = tokio::select! {
        output = main.as_mut() => output,
        () = calls => unreachable!("it has no end"),
    };
    (output, count)
}

#[tokio::test]
async fn a_loop_in_exec_or_behind_its_stream_is_ended() {
    for pooling in [Pooling::Auto, Pooling::Off] {
        let bench = Bench::hostile(sandgate::engine::EngineOptions { pooling, ..options() }).await;
        assert_blames(&bench.exec("spin").await.unwrap_err(), Code::GuestCpu, "exec");
        let events = drain(bench.exec("spin-midway").await.unwrap()).await;
        assert_eq!(text(&events), "so far");
        let [_, Event::Failed(error)] = &events[..] else { panic!("{events:?}") };
        assert_blames(error, Code::GuestCpu, "exec");
        bench.still_works().await;
    }
}

#[tokio::test]
async fn memory_recursion_and_panics_have_their_codes() {
    for pooling in [Pooling::Auto, Pooling::Off] {
        let bench = Bench::hostile(sandgate::engine::EngineOptions {
            pooling,
            cpu_limit: Duration::from_secs(10),
            ..options()
        })
        .await;
        let error = bench.exec("grow").await.unwrap_err();
        assert_blames(&error, Code::GuestMemory, "exec");
        assert!(error.to_string().contains("64 MiB") && error.to_string().contains("engine.memory_limit_mib"));
        let error = bench.exec("recurse").await.unwrap_err();
        assert_blames(&error, Code::GuestTrap, "exec");
        assert_blames(&bench.exec("panic").await.unwrap_err(), Code::GuestTrap, "exec");
        let events = drain(bench.exec("trap-midway").await.unwrap()).await;
        let [Event::Stdout(bytes), Event::Failed(error)] = &events[..] else { panic!("{events:?}") };
        assert_eq!(&bytes[..], b"so far");
        assert_blames(error, Code::GuestTrap, "exec");
        bench.still_works().await;
    }
}

#[tokio::test]
async fn what_is_too_big_is_refused_or_cut() {
    let bench = Bench::hostile(options()).await;
    let events = drain(bench.exec("huge-event").await.unwrap()).await;
    let [Event::Failed(error)] = &events[..] else { panic!("{} events", events.len()) };
    assert_eq!(error.code(), Code::GuestProtocol);
    assert!(error.to_string().contains("10485760 bytes"), "{error}");
    let error = bench.exec("huge-error").await.unwrap_err();
    assert!(error.code() == Code::Other && error.to_string().len() < 2_200, "{} bytes", error.to_string().len());

    let bench = Bench::new(options(), hostile(), r#"{"create":"huge-record"}"#).await;
    let error = bench.create().await.unwrap_err();
    assert_blames(&error, Code::GuestProtocol, "create");
    assert!(error.to_string().contains("100000 bytes"), "{error}");
}

#[tokio::test]
async fn the_clock_runs_while_a_guest_waits() {
    let bench =
        Bench::hostile(sandgate::engine::EngineOptions { call_timeout: Duration::from_millis(200), ..options() }).await;
    let error = bench.exec("wait").await.unwrap_err();
    assert_eq!(error.code(), Code::Timeout);
    let text = error.to_string();
    for part in ["bad 0.6.6", "exec", "200ms", "engine.call_timeout_seconds"] {
        assert!(text.contains(part), "{text}");
    }
    bench.still_works().await;
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What is logged on this thread meanwhile.
pub(crate) async fn captured(work: impl Future<Output = ()>) -> String {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    work.await;
    String::from_utf8(lines.0.lock().unwrap().clone()).unwrap()
}

#[tokio::test]
async fn a_flood_of_log_lines_is_cut_and_says_so() {
    let bench = Bench::hostile(options()).await;
    let text = captured(async { drop(bench.exec("log").await.unwrap_err()) }).await;
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("sandgate::guest")).collect();
    assert_eq!(lines.len(), 1_000);
    assert!(lines[0].contains("line 0") && lines[0].contains("bad"), "{}", lines[0]);
    assert!(lines[999].contains("line 999") && lines[999].contains("last line for this call"), "{}", lines[999]);
    assert!(!lines[998].contains("last line"));
}

#[tokio::test]
async fn an_endless_stream_that_nobody_reads_gives_its_place_back() {
    let bench = Bench::hostile(sandgate::engine::EngineOptions { max_instances: 1, ..options() }).await;
    for command in ["endless", "silent", "feed:sleep 1000"] {
        let mut events = bench.exec(command).await.unwrap();
        if command == "endless" {
            assert!(matches!(events.recv().await, Some(Event::Stdout(_))));
        }
        drop(events);
        tokio::time::timeout(PATIENCE, bench.still_works()).await.expect(command);
    }
}
