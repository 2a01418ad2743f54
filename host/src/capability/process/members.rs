//! Signals for a command in a namespace: to all of its group but bubblewrap's own two processes, which must live on to
//! tell how the command ended.

use std::fs;
use std::path::PathBuf;

use rustix::process::{Pid, Signal, getpgid, kill_process};

/// Signals the members of the group that `outer` (bubblewrap, its leader) leads, below the namespace's first process.
/// False: the command is not there yet; try again.
pub(super) fn signal_command(outer: Pid, signal: Signal) -> bool {
    let mut signalled = false;
    for pid in members(outer) {
        signalled |= kill_process(pid, signal).is_ok();
    }
    signalled
}

fn members(outer: Pid) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let wrapper = fs::read_link(exe(outer)).ok();
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(Pid::from_raw)
        .filter(|pid| *pid != outer && getpgid(Some(*pid)) == Ok(outer))
        .filter(|pid| parent(*pid).is_some_and(|parent| parent != outer))
        // Still bubblewrap: it has not become the command yet, and the signal would end it.
        .filter(|pid| wrapper.is_none() || fs::read_link(exe(*pid)).ok() != wrapper)
        .collect()
}

fn exe(pid: Pid) -> PathBuf {
    format!("/proc/{}/exe", pid.as_raw_nonzero()).into()
}

fn parent(pid: Pid) -> Option<Pid> {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).ok()?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    Pid::from_raw(parent.trim().parse().ok()?)
}
