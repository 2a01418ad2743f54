//! The processes of a command in a namespace. Two are bubblewrap's own: the leader of the group, and the namespace's
//! first process, which must live on to tell how the command ended, and whose death ends all others.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

/// The first process of the namespace that `outer` made, and a handle that stays its own whatever becomes of the number.
/// None: it is not there yet.
pub(super) fn first_process(outer: Pid) -> Option<(Pid, OwnedFd)> {
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", outer.as_raw_nonzero())).ok()?;
    let first = Pid::from_raw(children.split_whitespace().next()?.parse().ok()?)?;
    let handle = pidfd_open(first, PidfdFlags::empty()).ok()?;
    // Asked when the handle is there: so it is a handle of that child, and not of one that came after it.
    (parent_and_group(first)?.0 == outer).then_some((first, handle))
}

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

/// Whether a member of the group lives. Those that are dead and that nobody has waited for yet count for the kernel, and an
/// init that takes its time, or never does it, must not make a sandbox full.
pub(super) fn any_alive(group: Pid) -> bool {
    let Ok(entries) = fs::read_dir("/proc") else { return true };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(Pid::from_raw)
        .any(|pid| parent_and_group(pid).is_some_and(|(_, its)| its == group) && !is_dead(pid))
}

fn is_dead(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    // The name, in parentheses, may hold anything; the state follows. Without one it is gone.
    stat.rsplit_once(')')
        .and_then(|(_, rest)| rest.trim_start().chars().next())
        .is_none_or(|state| "ZXx".contains(state))
}

fn exe(pid: Pid) -> PathBuf {
    format!("/proc/{}/exe", pid.as_raw_nonzero()).into()
}

pub(super) fn parent_and_group(pid: Pid) -> Option<(Pid, Pid)> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The name, in parentheses, may hold anything. After it: state, parent, group.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(1).map(|field| field.parse().ok());
    Some((Pid::from_raw(fields.next()??)?, Pid::from_raw(fields.next()??)?))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn the_dead_that_nobody_waited_for_do_not_count() {
        let mut child = Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        let group = Pid::from_raw(child.id().cast_signed()).unwrap();
        assert!(any_alive(group));
        kill_process(group, Signal::KILL).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while any_alive(group) {
            assert!(Instant::now() < deadline, "a dead process counts");
            std::thread::yield_now();
        }
        assert!(rustix::process::test_kill_process_group(group).is_ok(), "to the kernel it is still there");
        child.wait().unwrap();
    }
}
