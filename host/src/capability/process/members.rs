//! Signals for a command in a namespace: to all of its group but bubblewrap's own two processes, which must live on to
//! tell how the command ended.

use std::fs;
use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};

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
        .filter(|pid| *pid != outer)
        .filter(|pid| parent_and_group(*pid).is_some_and(|(parent, group)| parent != outer && group == outer))
        // Still bubblewrap: it has not become the command yet, and the signal would end it.
        .filter(|pid| wrapper.is_none() || fs::read_link(exe(*pid)).ok() != wrapper)
        .collect()
}

fn exe(pid: Pid) -> PathBuf {
    format!("/proc/{}/exe", pid.as_raw_nonzero()).into()
}

fn parent_and_group(pid: Pid) -> Option<(Pid, Pid)> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The name, in parentheses, may hold anything. After it: state, parent, group.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(1).map(|field| field.parse().ok());
    Some((Pid::from_raw(fields.next()??)?, Pid::from_raw(fields.next()??)?))
}
