//! A bad provider as the gateway's users see it.

use std::io::Write;
use std::sync::{Arc, Mutex};

use sandgate::error::Code;
use sandgate::ids::Scope;
use sandgate::trust::sha256_of;
use sandgate::values::{Event, ExecRequest};
use sandgate::{Gateway, Sandbox};

use crate::support::{config, hostile, hostile_file, local, name};

fn scope(thread: usize) -> Scope {
    Scope::new("ann".parse().unwrap(), format!("thread-{thread}").parse().unwrap())
}

/// All events of a command.
async fn run(sandbox: &Sandbox, command: &str) -> Vec<Event> {
    let request = ExecRequest { command: command.into(), ..ExecRequest::default() };
    let mut running = sandbox.exec(request).await.unwrap();
    let mut events = Vec::new();
    while let Some(event) = running.next().await {
        events.push(event);
    }
    assert!(running.next().await.is_none(), "nothing comes after the end");
    events
}

#[tokio::test]
async fn a_command_has_exactly_one_end() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(config(folder.path(), hostile_file())).await.unwrap();
    let sandbox = gateway.acquire(&scope(1)).await.unwrap();
    for (command, code) in [
        ("no-exit", Some(Code::ExitUnknown)),
        ("two-exits", None),
        ("trap-midway", Some(Code::GuestTrap)),
        ("huge-event", Some(Code::GuestProtocol)),
        ("upper:exit 1", None),
    ] {
        let events = run(&sandbox, command).await;
        let ends: Vec<&Event> =
            events.iter().filter(|event| matches!(event, Event::Exited(_) | Event::Failed(_))).collect();
        match (&ends[..], code) {
            ([Event::Failed(error)], Some(code)) => assert_eq!(error.code(), code, "{command}: {error}"),
            ([Event::Exited(status)], None) => assert_eq!(status.code, 1, "{command}"),
            _ => panic!("{command}: {events:?}"),
        }
        assert!(matches!(events.last(), Some(Event::Exited(_) | Event::Failed(_))), "{command}: {events:?}");
    }
}

#[tokio::test]
async fn the_bytes_that_are_pinned_are_those_that_run() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("provider.wasm");
    std::fs::write(&file, hostile()).unwrap();
    let mut config = config(folder.path(), file.clone());
    config.providers[0].sha256 = Some(sha256_of(&hostile()));
    let gateway = Gateway::open(config).await.unwrap();

    std::fs::write(&file, local()).unwrap();
    let error = gateway.provider(&name()).await.unwrap_err();
    assert_eq!(error.code(), Code::DigestMismatch);
    for digest in [sha256_of(&hostile()), sha256_of(&local())] {
        assert!(error.to_string().contains(digest.as_str()), "{error}");
    }
    // Swapped all the time: whenever one is loaded, it is the pinned one.
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let swapping = std::thread::spawn({
        let (stop, folder, file) = (Arc::clone(&stop), folder.path().to_owned(), file.clone());
        move || {
            let other = folder.join("other.wasm");
            for bytes in [hostile(), local()].into_iter().cycle() {
                std::fs::write(&other, bytes).unwrap();
                std::fs::rename(&other, &file).unwrap();
                if stop.load(std::sync::atomic::Ordering::Relaxed) {
                    return;
                }
            }
        }
    });
    let provider = loop {
        match gateway.provider(&name()).await {
            Ok(provider) => break provider,
            Err(error) => assert_eq!(error.code(), Code::DigestMismatch, "{error}"),
        }
    };
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    swapping.join().unwrap();
    assert_eq!(provider.description().name, "hostile");
    assert_eq!(gateway.reports().await[0].digest.as_deref(), Some(sha256_of(&hostile()).as_str()));
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

#[tokio::test]
async fn a_shutdown_ends_more_sandboxes_than_may_be_called_at_once() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(folder.path(), hostile_file());
    config.engine.max_instances = 2;
    config.engine.queue = 2;
    let gateway = Gateway::open(config).await.unwrap();
    for thread in 0..12 {
        gateway.acquire(&scope(thread)).await.unwrap();
    }
    gateway.shutdown().await;
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    assert!(text.contains("provider loaded") && !text.contains("could not be ended"), "{text}");
    assert!(gateway.list().is_empty());
}
