//! The machine that the tests run on: its processes, and waiting for what it does.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long a condition may take to come true on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A process of this machine.
#[derive(Debug, Clone)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its arguments, with spaces between them.
    pub command_line: String,
}

/// All processes that live (those that have ended and were not waited for don't).
pub fn processes() -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").unwrap();
    entries
        .filter_map(|entry| {
            let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let command_line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let command_line = String::from_utf8_lossy(&command_line).trim_end_matches('\0').replace('\0', " ");
            (!command_line.is_empty()).then_some(Process { pid, command_line })
        })
        .collect()
}

/// A command that nothing else on this machine runs: `sleep` for a while that is not that of any other.
pub fn unique_sleep() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("sleep 3{:07}{:03}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// How many processes have this in their command line.
pub fn running(what: &str) -> usize {
    processes().iter().filter(|process| process.command_line.contains(what)).count()
}

/// Waits until a condition holds, and fails with its name if it does not.
pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
