//! `make bench`: the speeds that Sandgate promises, each beside what it is held against, both measured in one run.
//!
//! Ratios are what counts; absolute times are those of this machine. With `-- NAME`, only the rows whose name contains NAME.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a table on standard output; a bench that can't run stops"
)]

mod commands;
mod counting;
mod engine;
mod files;
mod lifecycle;
mod memory;
#[path = "../../src/ownership/test_server.rs"]
#[allow(dead_code, reason = "shared with tests, which use the rest")]
mod redis;
mod table;

use std::path::Path;

use sandgate::config::Config;
use sandgate::ids::{Scope, ThreadId, UserId};
use sandgate::{Gateway, Sandbox};
use table::Table;

fn main() {
    if memory::child() {
        return;
    }
    let wanted = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let mut table = Table::new(wanted);
    runtime.block_on(async {
        engine::rows(&mut table).await;
        lifecycle::rows(&mut table).await;
        commands::rows(&mut table).await;
        files::rows(&mut table).await;
    });
    memory::rows(&mut table);
    std::process::exit(i32::from(!table.print()));
}

/// The built-in configuration with its own place for files and compiled components.
fn config(state: &Path) -> Config {
    let mut config = Config::default();
    config.gateway.state_dir = Some(state.join("state"));
    config.gateway.cache_dir = Some(state.join("cache"));
    config
}

async fn sandbox(gateway: &Gateway, thread: &str) -> Sandbox {
    let scope = Scope::new(UserId::default(), ThreadId::new(thread).unwrap());
    gateway.acquire(&scope).await.unwrap()
}
