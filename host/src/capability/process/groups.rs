//! Which process groups each sandbox has, from the start of a command until nothing is left of its group.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, kill_process, kill_process_group, pidfd_send_signal, test_kill_process_group, waitpgid,
};

use super::leash::Leash;
use super::members::first_process;
use crate::error::{Code, Error, Result};
use crate::ids::SandboxId;

/// How many groups one sandbox may have: commands that run, and those that left something in the background. Far more
/// than an agent starts, and few enough that one sandbox can't take the machine's process table.
pub const MAX_GROUPS: usize = 256;

/// How often a group with background processes is looked at. Its number is free for other processes once it is empty;
/// the kernel comes back to a number only after all others, which takes much longer than this.
const LOOK: Duration = Duration::from_secs(2);

/// How soon a group is looked at for the first time after its leader has ended.
const FIRST_LOOK: Duration = Duration::from_millis(1);

/// The groups of all sandboxes of one provider. A sandbox without any has no entry.
#[derive(Default)]
pub(super) struct Groups {
    sandboxes: Mutex<HashMap<SandboxId, Vec<Entry>>>,
}

struct Entry {
    id: Pid,
    first: Option<Arc<First>>,
}

/// The first process of a command's namespace. A command can trace it and make it leave the group; killed by its own
/// handle it takes the whole namespace along all the same.
struct First {
    pid: Pid,
    handle: OwnedFd,
}

impl First {
    fn kill(&self) {
        // An error says that it is dead already.
        let _ = pidfd_send_signal(&self.handle, Signal::KILL);
    }

    fn is_dead(&self) -> bool {
        let mut ready = [PollFd::new(&self.handle, PollFlags::IN)];
        poll(&mut ready, Some(&Timespec::default())).is_ok_and(|count| count > 0)
    }
}

/// One group. Unless it was [let go](Self::leave_rest), dropping it kills what is left of it.
pub(super) struct Group {
    id: Pid,
    sandbox: SandboxId,
    groups: Arc<Groups>,
    first: Option<Arc<First>>,
    finished: bool,
}

impl Groups {
    /// Whether there is room for one more.
    pub(super) fn check_room(&self, sandbox: &SandboxId) -> Result<()> {
        let count = self.sandboxes.lock().get(sandbox).map_or(0, Vec::len);
        if count < MAX_GROUPS {
            return Ok(());
        }
        Err(Error::new(
            Code::Capacity,
            format!("sandbox {sandbox} has {count} commands and background processes, which is the most it may have"),
        )
        .hint("end some of its background processes first"))
    }

    /// Takes over a group that was just started. If it can't be leashed it is killed.
    pub(super) fn add(self: &Arc<Self>, sandbox: &SandboxId, id: Pid) -> Result<Group> {
        self.sandboxes.lock().entry(sandbox.clone()).or_default().push(Entry { id, first: None });
        let group = Group { id, sandbox: sandbox.clone(), groups: Arc::clone(self), first: None, finished: false };
        Leash::of_this_process().add(id)?;
        Ok(group)
    }

    /// Kills all groups of a sandbox. Their own tasks see it and forget them.
    pub(super) fn end(&self, sandbox: &SandboxId) {
        // Under the lock: a group that is forgotten meanwhile may be another's.
        let sandboxes = self.sandboxes.lock();
        Self::kill(sandboxes.get(sandbox).into_iter().flatten());
    }

    /// Kills all that is left of all commands.
    pub(super) fn end_all(&self) {
        let sandboxes = self.sandboxes.lock();
        Self::kill(sandboxes.values().flatten());
    }

    fn kill<'a>(groups: impl Iterator<Item = &'a Entry>) {
        for group in groups {
            kill_group(group.id, Signal::KILL);
            if let Some(first) = &group.first {
                first.kill();
            }
        }
    }

    /// How many groups a sandbox has.
    pub(super) fn count(&self, sandbox: &SandboxId) -> usize {
        self.sandboxes.lock().get(sandbox).map_or(0, Vec::len)
    }

    fn forget(&self, sandbox: &SandboxId, id: Pid) {
        let mut sandboxes = self.sandboxes.lock();
        if let Some(groups) = sandboxes.get_mut(sandbox) {
            if let Some(at) = groups.iter().position(|group| group.id == id) {
                groups.swap_remove(at);
            }
            if groups.is_empty() {
                sandboxes.remove(sandbox);
            }
        }
        Leash::of_this_process().remove(id);
    }
}

impl Group {
    pub(super) fn id(&self) -> Pid {
        self.id
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_group(self.id, signal);
        if signal == Signal::KILL
            && let Some(first) = &self.first
        {
            first.kill();
        }
    }

    /// Remembers the first process of the command's namespace, once it is there. True: it is known.
    pub(super) fn find_first(&mut self) -> bool {
        if self.first.is_none()
            && let Some((pid, handle)) = first_process(self.id)
        {
            let first = Arc::new(First { pid, handle });
            if let Err(error) = Leash::of_this_process().add(pid) {
                tracing::warn!(%error, "a command's first process could not be leashed");
            }
            let mut sandboxes = self.groups.sandboxes.lock();
            let entries = sandboxes.get_mut(&self.sandbox).into_iter().flatten();
            for entry in entries.filter(|entry| entry.id == self.id) {
                entry.first = Some(Arc::clone(&first));
            }
            self.first = Some(first);
        }
        self.first.is_some()
    }

    /// Whether anything is left of it. Call it only when its leader has been waited for.
    pub(super) fn is_empty(&self) -> bool {
        // Where the gateway is process 1 (a container without an init), orphans become its children.
        while let Ok(Some(_)) = waitpgid(self.id, WaitOptions::NOHANG) {}
        test_kill_process_group(self.id) == Err(Errno::SRCH) && self.first.as_ref().is_none_or(|first| first.is_dead())
    }

    /// Waits until nothing is left, up to a time: after a SIGKILL that is a matter of microseconds, if the kernel can
    /// end the processes at all.
    pub(super) async fn emptied(&self, within: Duration) -> bool {
        let mut pause = FIRST_LOOK;
        let deadline = tokio::time::Instant::now() + within;
        while !self.is_empty() {
            if tokio::time::Instant::now() >= deadline {
                return false;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(20));
        }
        true
    }

    fn forget(&self) {
        self.groups.forget(&self.sandbox, self.id);
        if let Some(first) = &self.first {
            Leash::of_this_process().remove(first.pid);
        }
    }

    /// The command has ended and may have left something in the background, which lives on until its sandbox ends.
    /// `closed` is done when nobody holds its pipes any more, which mostly is when the last of them ends.
    pub(super) async fn leave_rest(mut self, closed: impl Future<Output = ()>) {
        let mut closed = pin!(closed);
        let mut open = true;
        // Mostly it is only bubblewrap's first process that is about to end.
        let mut pause = FIRST_LOOK;
        while !self.is_empty() {
            tokio::select! {
                () = &mut closed, if open => (open, pause) = (false, FIRST_LOOK),
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(LOOK),
            }
        }
        self.finished = true;
        self.forget();
        if open {
            // With isolation `none` something may have left the group.
            closed.await;
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.finished {
            self.signal(Signal::KILL);
            self.forget();
        }
    }
}

fn kill_group(id: Pid, signal: Signal) {
    if signal == Signal::KILL {
        // Where `setsid` makes the group, its leader may not have come to that yet.
        let _ = kill_process(id, signal);
    }
    match kill_process_group(id, signal) {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(error) => tracing::warn!(group = id.as_raw_nonzero(), %error, "a process group could not be signalled"),
    }
}
