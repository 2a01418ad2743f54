//! Control groups of version 2: what limits all processes of one command together, and finds and ends every one of them.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, geteuid};

use super::grant::ResourceLimits;
use super::members::parent_and_group;

/// Where a gateway that had its control group to itself moved, since a group with limits below it may hold no process.
const SELF: &str = "self";

/// How often processes that come up while the gateway moves are looked for; more than these are not its own.
const MOVES: u32 = 8;

/// How deep the gateway's own processes may lie below it. A command in a namespace is the fourth or fifth.
const MAX_DEPTH: u32 = 64;

/// How long what a killed gateway left may take to end when it is killed: looks, and the time between two.
const CLEAN_LOOKS: u32 = 50;
const CLEAN_LOOK: Duration = Duration::from_millis(2);

/// The control group of this gateway, and the limits that the kernel offers in it. Its end removes the group.
#[derive(Debug)]
pub(super) struct Cgroups {
    dir: PathBuf,
    memory: bool,
    pids: bool,
    next: AtomicU64,
    /// Groups of commands whose last processes were still ending when they were given up.
    left: Mutex<Vec<PathBuf>>,
}

/// The control group of one command. Its end removes it.
#[derive(Debug)]
pub(super) struct Cgroup {
    dir: PathBuf,
    /// The limit on memory that holds in it, in MiB.
    memory_mib: Option<u64>,
    pids: bool,
    cgroups: Arc<Cgroups>,
}

impl Cgroups {
    /// The one of this process, made if it is not there. Else why it can't be had.
    pub(super) fn of_this_process() -> Result<Arc<Self>, String> {
        static SHARED: Mutex<Weak<Cgroups>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock();
        if let Some(cgroups) = shared.upgrade() {
            return Ok(cgroups);
        }
        let cgroups = Self::find()?;
        if !cgroups.memory && !cgroups.pids {
            return Err("control groups of version 2 have neither the memory nor the pids controller here".to_owned());
        }
        let cgroups = Arc::new(cgroups);
        *shared = Arc::downgrade(&cgroups);
        Ok(cgroups)
    }

    fn find() -> Result<Self, String> {
        let read = |path: &str| fs::read_to_string(path).map_err(|error| format!("{path} can't be read: {error}"));
        let mount = mount_point(&read("/proc/self/mountinfo")?).ok_or("no control groups of version 2 are mounted")?;
        let own = read("/proc/self/cgroup")?;
        let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
        if own.split('/').any(|part| part == "..") {
            return Err("the gateway's own control group lies outside of what is mounted".to_owned());
        }
        let dir = mount.join(own);
        let name = own_name().map_err(|error| format!("the gateway can't tell who it is: {error}"))?;
        // The root of all may hold processes and limits at once; only it has no type.
        let root = geteuid().is_root() && !mount.join("cgroup.type").exists();
        if root && own.is_empty() {
            return Self::below(&mount, &name).map_err(|error| format!("no control group can be made: {error}"));
        }
        let mut why = Vec::new();
        if dir.file_name().is_some_and(|last| last == SELF) && dir.parent().is_some_and(|dir| dir.ends_with(&name)) {
            // Moved there before.
            if let Some(above) = dir.parent().and_then(Path::parent) {
                return Self::below(above, &name).map_err(|error| format!("no control group can be made: {error}"));
            }
        }
        match move_down(&dir, &name).and_then(|()| Self::below(&dir, &name)) {
            Ok(cgroups) => return Ok(cgroups),
            Err(error) => why.push(format!("in the gateway's own: {error}")),
        }
        // As systemd's DelegateSubgroup= has it: what was delegated is the group around the gateway's own.
        if let Some(above) = dir.parent().filter(|above| above.starts_with(&mount) && delegated(above)) {
            match Self::below(above, &name) {
                Ok(cgroups) => return Ok(cgroups),
                Err(error) => why.push(format!("in the one around it: {error}")),
            }
        }
        if root {
            match Self::below(&mount, &name) {
                Ok(cgroups) => return Ok(cgroups),
                Err(error) => why.push(format!("in the root: {error}")),
            }
        }
        Err(format!("no control group can be made ({})", why.join("; ")))
    }

    /// This gateway's group below one that it may use, with what limits can be had there. What gateways that are gone left
    /// there ends.
    pub(super) fn below(parent: &Path, name: &str) -> io::Result<Self> {
        clean(parent);
        let dir = parent.join(name);
        match fs::create_dir(&dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let offered = fs::read_to_string(parent.join("cgroup.controllers"))?;
        let enable = |controller: &str| {
            let word = format!("+{controller}");
            offered.split_whitespace().any(|one| one == controller)
                && [parent, &dir].iter().all(|group| fs::write(group.join("cgroup.subtree_control"), &word).is_ok())
        };
        let (memory, pids) = (enable("memory"), enable("pids"));
        Ok(Self { dir, memory, pids, next: AtomicU64::new(0), left: Mutex::default() })
    }

    /// A group for a command that has such a limit and can have it here; none: it has not. `around`: so many processes
    /// belong to its isolation.
    pub(super) fn make(self: &Arc<Self>, limits: &ResourceLimits, around: u64) -> io::Result<Cgroup> {
        self.sweep();
        let dir = self.dir.join(self.next.fetch_add(1, Ordering::Relaxed).to_string());
        fs::create_dir(&dir)?;
        let memory_mib = limits.memory_mib.filter(|_| self.memory);
        let processes = limits.processes.filter(|_| self.pids);
        let cgroup = Cgroup { dir, memory_mib, pids: processes.is_some(), cgroups: Arc::clone(self) };
        if let Some(mib) = memory_mib {
            cgroup.set("memory.max", mib.saturating_mul(1 << 20))?;
            match cgroup.set("memory.swap.max", 0) {
                // This kernel has no swap to account for.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                set => set?,
            }
        }
        if let Some(processes) = processes {
            cgroup.set("pids.max", processes.saturating_add(around))?;
        }
        Ok(cgroup)
    }

    /// Whether one of these limits can be had here.
    pub(super) fn can(&self, limits: &ResourceLimits) -> bool {
        (self.memory && limits.memory_mib.is_some()) || (self.pids && limits.processes.is_some())
    }

    #[cfg(test)]
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    fn sweep(&self) {
        self.left.lock().retain(|dir| !removed(dir));
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        self.sweep();
        // What is left is removed when the next gateway starts.
        let _ = fs::remove_dir(&self.dir);
    }
}

impl Cgroup {
    fn set(&self, file: &str, value: u64) -> io::Result<()> {
        fs::write(self.dir.join(file), value.to_string())
    }

    /// Where a process that writes 0 comes in.
    pub(super) fn door(&self) -> PathBuf {
        self.dir.join("cgroup.procs")
    }

    /// Whether it limits memory.
    pub(super) fn has_memory(&self) -> bool {
        self.memory_mib.is_some()
    }

    /// Whether it limits processes.
    pub(super) fn has_pids(&self) -> bool {
        self.pids
    }

    /// Kills all that is in it, at once and also what forks meanwhile (since Linux 5.14).
    pub(super) fn kill(&self) {
        let _ = fs::write(self.dir.join("cgroup.kill"), "1");
    }

    /// Whether no process is in it.
    pub(super) fn is_empty(&self) -> bool {
        is_empty(&self.dir)
    }

    /// The limit on memory, in MiB, if the kernel has killed a process of it for that.
    pub(super) fn killed_for_memory(&self) -> Option<u64> {
        let limit = self.memory_mib?;
        let events = fs::read_to_string(self.dir.join("memory.events")).ok()?;
        let kills = events.lines().find_map(|line| line.strip_prefix("oom_kill "))?;
        (kills.trim() != "0").then_some(limit)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if !removed(&self.dir) {
            self.cgroups.left.lock().push(std::mem::take(&mut self.dir));
        }
    }
}

fn removed(dir: &Path) -> bool {
    match fs::remove_dir(dir) {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

fn is_empty(dir: &Path) -> bool {
    fs::read_to_string(dir.join("cgroup.events"))
        .map_or(true, |events| events.lines().any(|line| line == "populated 0"))
}

/// Where control groups of version 2 are mounted.
fn mount_point(mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let place = before.split(' ').nth(4)?;
        // An escaped character: nobody mounts them there.
        (after.starts_with("cgroup2 ") && !place.contains('\\')).then(|| place.into())
    })
}

/// Whether somebody gave this group to the gateway: systemd says so, or its owner does.
fn delegated(dir: &Path) -> bool {
    let marked = |name| {
        let mut value = [0_u8; 8];
        rustix::fs::getxattr(dir, name, &mut value).is_ok_and(|length| value.get(..length) == Some(b"1"))
    };
    let user = geteuid();
    marked("trusted.delegate")
        || marked("user.delegate")
        || (!user.is_root() && fs::metadata(dir).is_ok_and(|dir| dir.uid() == user.as_raw()))
}

/// Moves the gateway and what it has started out of its own group into one below, if nobody else is in it.
fn move_down(own: &Path, name: &str) -> io::Result<()> {
    let place = own.join(name).join(SELF);
    fs::create_dir_all(&place)?;
    let moved = (|| {
        for _ in 0..MOVES {
            let procs = fs::read_to_string(own.join("cgroup.procs"))?;
            let pids: Vec<i32> = procs.lines().filter_map(|line| line.parse().ok()).collect();
            if pids.is_empty() {
                return Ok(());
            }
            if let Some(other) = pids.iter().find(|pid| !is_ours(**pid)) {
                return Err(io::Error::other(format!("process {other} is in it, which is not the gateway's")));
            }
            for pid in pids {
                match fs::write(place.join("cgroup.procs"), pid.to_string()) {
                    Err(error) if error.raw_os_error() != Some(rustix::io::Errno::SRCH.raw_os_error()) => {
                        return Err(error);
                    }
                    _ => {}
                }
            }
        }
        Err(io::Error::other("it does not become empty"))
    })();
    if moved.is_err() {
        let _ = fs::remove_dir(&place);
        let _ = fs::remove_dir(own.join(name));
    }
    moved
}

fn is_ours(pid: i32) -> bool {
    let own = rustix::process::getpid();
    let mut next = Pid::from_raw(pid);
    for _ in 0..MAX_DEPTH {
        match next {
            Some(pid) if pid == own => return true,
            Some(pid) => next = parent_and_group(pid).map(|(parent, _)| parent),
            None => return false,
        }
    }
    false
}

/// Names a gateway so that another can tell whether it is still there: its space of process numbers, its number, and when
/// it started.
fn own_name() -> io::Result<String> {
    let own = std::process::id();
    let started = started(own).ok_or(io::ErrorKind::NotFound)?;
    Ok(name_of(number_space()?, own, &started))
}

pub(super) fn name_of(space: u64, pid: u32, started: &str) -> String {
    format!("sandgate-{space}-{pid}-{started}")
}

pub(super) fn number_space() -> io::Result<u64> {
    Ok(fs::metadata("/proc/self/ns/pid")?.ino())
}

/// When a process started, in the kernel's ticks.
pub(super) fn started(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything; the start is the 20th after it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19).map(str::to_owned)
}

/// Ends and removes what gateways left that are gone. Those of another space of process numbers can't be judged.
fn clean(parent: &Path) {
    let (Ok(space), Ok(entries)) = (number_space(), fs::read_dir(parent)) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(words) = name.to_str().and_then(|name| name.strip_prefix("sandgate-")) else { continue };
        let mut words = words.split('-');
        let (Some(of), Some(Ok(pid)), Some(start)) = (words.next(), words.next().map(str::parse::<u32>), words.next())
        else {
            continue;
        };
        if of == space.to_string() && started(pid).as_deref() != Some(start) {
            end(&entry.path());
        }
    }
}

/// Ends the commands in a gateway's group. What it had moved along with itself is no command, and is left alone.
fn end(dir: &Path) {
    for group in fs::read_dir(dir).into_iter().flatten().flatten() {
        if group.file_name() == SELF || !group.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let group = group.path();
        let _ = fs::write(group.join("cgroup.kill"), "1");
        for _ in 0..CLEAN_LOOKS {
            if is_empty(&group) {
                break;
            }
            std::thread::sleep(CLEAN_LOOK);
        }
        let _ = fs::remove_dir(group);
    }
    let _ = fs::remove_dir(dir.join(SELF));
    if let Err(error) = fs::remove_dir(dir) {
        tracing::debug!(group = %dir.display(), %error, "a control group that a gateway left is still in use");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_is_found_among_others() {
        let text = "24 1 0:21 / /sys rw - sysfs sysfs rw\n\
                    30 24 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                    31 24 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
        assert_eq!(mount_point(text), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(mount_point("24 1 0:21 / /sys rw - sysfs sysfs rw\n"), None);
        assert_eq!(mount_point(""), None);
    }

    #[test]
    fn a_gateway_knows_itself_and_what_it_has_started() {
        assert!(is_ours(i32::try_from(std::process::id()).unwrap()) && !is_ours(1));
        let own = started(std::process::id()).unwrap();
        assert!(own.parse::<u64>().unwrap() > 0 && started(u32::MAX).is_none());
        assert_eq!(own_name().unwrap(), name_of(number_space().unwrap(), std::process::id(), &own));
    }
}
