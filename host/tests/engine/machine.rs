//! What the whole process takes: each in a process of its own, so that no other test is counted.

use std::path::Path;
use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sandgate::Gateway;
use sandgate::engine::{EngineOptions, Pooling, Runtime};
use sandgate::error::Code;
use sandgate::ids::Scope;
use sandgate::values::{Event, ExecRequest};

use crate::support::{Bench, config, local_file, options};

/// Runs one ignored test of this binary alone.
fn alone(test: &str) {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("machine::{test}"), "--ignored", "--nocapture", "--test-threads=1"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout).into_owned() + &String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success() && text.contains("1 passed"), "{text}");
}

/// Memory of this process that is in use, in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * rustix::param::page_size()
}

#[test]
fn rewriting_much_output_takes_little_memory() {
    alone("rewriting_much_output");
}

#[tokio::test]
#[ignore = "run by rewriting_much_output_takes_little_memory"]
async fn rewriting_much_output() {
    const SIZE: usize = 50_000_000;
    let bench = Bench::hostile(options()).await;
    bench.still_works().await;
    let before = resident();
    let mut events = bench.exec(&format!("upper:head -c {SIZE} /dev/zero | tr '\\0' x")).await.unwrap();
    let (mut seen, mut most, mut last) = (0, 0, None);
    while let Some(event) = events.recv().await {
        if let Event::Stdout(bytes) = &event {
            assert!(bytes.iter().all(|byte| *byte == b'X'));
            seen += bytes.len();
            most = most.max(resident());
        }
        last = Some(event);
    }
    assert_eq!(seen, SIZE);
    assert!(matches!(last, Some(Event::Exited(status)) if status.code == 0), "{last:?}");
    let grown = most.saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes more");
}

#[test]
fn without_address_space_there_is_no_pool_but_a_reason() {
    alone("small_address_space");
}

#[tokio::test]
#[ignore = "run by without_address_space_there_is_no_pool_but_a_reason"]
async fn small_address_space() {
    let limit = Some(16 << 30);
    setrlimit(Resource::As, Rlimit { current: limit, maximum: limit }).unwrap();
    let default = EngineOptions::default();
    let many = EngineOptions { max_instances: default.max_instances, ..options() };
    let bench = Bench::hostile(many.clone()).await;
    let reason = bench.runtime.pooling_off().expect("a pool of terabytes in 16 GiB");
    assert!(reason.contains("mmap") || reason.contains("memory"), "{reason}");
    bench.still_works().await;
    let error = Runtime::new(EngineOptions { pooling: Pooling::On, ..many }).unwrap_err();
    assert!(error.to_string().contains("engine.pooling = \"off\""), "{error}");
}

#[test]
fn an_instance_without_address_space_is_not_the_providers_fault() {
    alone("exhausted_address_space");
}

/// What this process has mapped, in bytes.
fn mapped() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').next().unwrap().parse::<u64>().unwrap() * rustix::param::page_size() as u64
}

#[tokio::test]
#[ignore = "run by an_instance_without_address_space_is_not_the_providers_fault"]
async fn exhausted_address_space() {
    // Each call maps a memory of its own, with 4 GiB of address space, and none is kept for the next.
    let bench = Bench::hostile(EngineOptions { pooling: Pooling::Off, idle_instances: 0, ..options() }).await;
    bench.still_works().await;
    let before = getrlimit(Resource::As);
    setrlimit(Resource::As, Rlimit { current: Some(mapped() + (256 << 20)), maximum: before.maximum }).unwrap();
    let error = bench.exec("pass:true").await.unwrap_err();
    setrlimit(Resource::As, before).unwrap();
    assert_eq!(error.code(), Code::Busy, "{error}");
    assert!(error.to_string().contains("ulimit -v") && error.retry_after().is_some(), "{error}");
    bench.still_works().await;
}

#[test]
fn ten_thousand_idle_sandboxes_cost_little() {
    alone("ten_thousand_sandboxes");
}

fn scope(number: usize) -> Scope {
    Scope::new("ann".parse().unwrap(), format!("thread-{number}").parse().unwrap())
}

#[tokio::test]
#[ignore = "run by ten_thousand_idle_sandboxes_cost_little"]
async fn ten_thousand_sandboxes() {
    const COUNT: usize = 10_000;
    // Memory is what is measured here; a busy disk takes minutes for so many directories.
    let shm = Path::new("/dev/shm");
    let folder = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() }.unwrap();
    let mut config = config(folder.path(), local_file());
    config.providers[0].lifecycle.replicas = Some(20_000);
    let gateway = Gateway::open(config).await.unwrap();
    let unknown = scope(COUNT).readable_id("bad");
    let name = gateway.config().default_provider.clone();
    assert!(gateway.get(&name, &unknown).is_none());
    // What is there once, whatever the number: instances that are kept, threads, the allocator's own.
    for number in 0..100 {
        gateway.acquire(&scope(number)).await.unwrap();
    }
    let before = resident();
    for number in 100..COUNT {
        gateway.acquire(&scope(number)).await.unwrap();
    }
    let each = resident().saturating_sub(before) / (COUNT - 100);
    assert!(each <= 16 << 10, "{each} bytes each");
    assert_eq!(gateway.list().len(), COUNT);
    assert!(gateway.get(&name, &unknown).is_none());
    for number in [0, COUNT / 2, COUNT - 1] {
        let sandbox = gateway.acquire(&scope(number)).await.unwrap();
        let request = ExecRequest { command: format!("echo {number}"), ..ExecRequest::default() };
        let output = sandbox.exec(request).await.unwrap().output(1 << 20).await;
        assert_eq!(output.stdout, format!("{number}\n"));
        assert!(gateway.get(&name, sandbox.id()).is_some());
    }
    gateway.shutdown().await;
    assert!(gateway.list().is_empty());
}
