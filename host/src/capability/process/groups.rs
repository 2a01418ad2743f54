//! Which process groups each sandbox has, from the start of a command until nothing is left of its group.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, kill_process, kill_process_group, pidfd_send_signal, test_kill_process_group, waitpgid,
};
use tokio::process::Child;

use super::cgroup::Cgroup;
use super::leash::{Leash, Target};
use super::members::{any_alive, first_process};
use crate::error::{Code, Error, Result};
use crate::ids::SandboxId;

/// How many groups one sandbox may have: commands that run, and those that left something in the background. Far more
/// than an agent starts, and few enough that one sandbox can't take the machine's process table.
pub const MAX_GROUPS: usize = 256;

/// How often a group with background processes is looked at. Its number is free for others once it is empty; the kernel
/// comes back to a number only after all others, at least 32768, which takes much longer than this.
const LOOK: Duration = Duration::from_millis(500);

/// How soon a group is looked at for the first time after its leader has ended.
const FIRST_LOOK: Duration = Duration::from_millis(1);

/// The groups of all sandboxes of one provider. A sandbox without any has no entry.
#[derive(Default)]
pub(super) struct Groups {
    sandboxes: Mutex<HashMap<SandboxId, Sandbox>>,
}

#[derive(Default)]
struct Sandbox {
    /// Places for groups that are about to start.
    reserved: usize,
    groups: Vec<Entry>,
}

struct Entry {
    id: Pid,
    first: Option<Arc<First>>,
    /// All of its processes are in it, also those that left the group.
    cgroup: Option<Cgroup>,
    /// The leader has not been waited for, so that its number is its own. Changes under the lock, together with that.
    led: bool,
}

impl Entry {
    fn signal(&self, signal: Signal) {
        if signal == Signal::KILL {
            if let Some(cgroup) = &self.cgroup {
                cgroup.kill();
            }
            if let Some(first) = &self.first {
                // All others of its namespace die with it.
                first.kill();
                if !self.led {
                    return;
                }
            }
            if self.led {
                // Where `setsid` makes the group, its leader may not have come to that yet.
                let _ = kill_process(self.id, signal);
            }
        }
        // The number is the group's while the leader or any other member is there, and it is forgotten when none is.
        match kill_process_group(self.id, signal) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => tracing::warn!(group = self.id.as_raw_nonzero(), %error, "a group could not be signalled"),
        }
    }

    /// Whether anything is left of it.
    fn is_empty(&self) -> bool {
        if self.led {
            return false;
        }
        // Where the gateway is process 1 (a container without an init), orphans become its children.
        while let Ok(Some(_)) = waitpgid(self.id, WaitOptions::NOHANG) {}
        (test_kill_process_group(self.id) == Err(Errno::SRCH) || !any_alive(self.id))
            && self.first.as_ref().is_none_or(|first| first.is_dead())
            && self.cgroup.as_ref().is_none_or(Cgroup::is_empty)
    }
}

/// A place for one group of a sandbox. Dropping it gives it back.
pub(super) struct Place {
    sandbox: SandboxId,
    groups: Arc<Groups>,
    taken: bool,
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
    has_first: bool,
    /// Nothing is left of it, and it is forgotten.
    finished: bool,
}

impl Groups {
    /// Takes a place for one more, if there is room.
    pub(super) fn reserve(self: &Arc<Self>, sandbox: &SandboxId) -> Result<Place> {
        let mut sandboxes = self.sandboxes.lock();
        let entry = sandboxes.entry(sandbox.clone()).or_default();
        let count = entry.reserved + entry.groups.len();
        if count < MAX_GROUPS {
            entry.reserved += 1;
            return Ok(Place { sandbox: sandbox.clone(), groups: Arc::clone(self), taken: false });
        }
        Err(Error::new(
            Code::Capacity,
            format!("sandbox {sandbox} has {count} commands and background processes, which is the most it may have"),
        )
        .hint("end some of its background processes first"))
    }

    /// Kills all groups of a sandbox. Their own tasks see it and forget them.
    pub(super) fn end(&self, sandbox: &SandboxId) {
        // Under the lock: a group that is forgotten meanwhile may be another's.
        let sandboxes = self.sandboxes.lock();
        sandboxes.get(sandbox).into_iter().for_each(Sandbox::kill);
    }

    /// Kills all that is left of all commands.
    pub(super) fn end_all(&self) {
        let sandboxes = self.sandboxes.lock();
        sandboxes.values().for_each(Sandbox::kill);
    }

    /// How many groups a sandbox has.
    pub(super) fn count(&self, sandbox: &SandboxId) -> usize {
        self.sandboxes.lock().get(sandbox).map_or(0, |sandbox| sandbox.groups.len())
    }
}

impl Sandbox {
    fn kill(&self) {
        self.groups.iter().for_each(|group| group.signal(Signal::KILL));
    }

    fn is_unused(&self) -> bool {
        self.reserved == 0 && self.groups.is_empty()
    }
}

impl Place {
    /// Takes over a group that was just started, in this place. If it can't be leashed it is killed.
    pub(super) fn take(mut self, id: Pid, cgroup: Option<Cgroup>) -> Result<Group> {
        {
            let mut sandboxes = self.groups.sandboxes.lock();
            let sandbox = sandboxes.entry(self.sandbox.clone()).or_default();
            sandbox.reserved = sandbox.reserved.saturating_sub(1);
            sandbox.groups.push(Entry { id, first: None, cgroup, led: true });
            self.taken = true;
        }
        let (sandbox, groups) = (self.sandbox.clone(), Arc::clone(&self.groups));
        let group = Group { id, sandbox, groups, has_first: false, finished: false };
        // By its leader as well, which for a moment after the start may not yet have made the group.
        Leash::of_this_process().add(Target::Group(id))?;
        Leash::of_this_process().add(Target::Process(id))?;
        Ok(group)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.taken {
            return;
        }
        let mut sandboxes = self.groups.sandboxes.lock();
        if let Some(sandbox) = sandboxes.get_mut(&self.sandbox) {
            sandbox.reserved = sandbox.reserved.saturating_sub(1);
            if sandbox.is_unused() {
                sandboxes.remove(&self.sandbox);
            }
        }
    }
}

impl Group {
    pub(super) fn id(&self) -> Pid {
        self.id
    }

    pub(super) fn signal(&self, signal: Signal) {
        self.with_entry(|entry| entry.signal(signal));
    }

    fn with_entry<T>(&self, act: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        let mut sandboxes = self.groups.sandboxes.lock();
        sandboxes.get_mut(&self.sandbox)?.groups.iter_mut().find(|entry| entry.id == self.id).map(act)
    }

    /// Waits for its leader. From then on the leader's number may become another's: under the same lock it is made known
    /// that it is not to be used any more.
    pub(super) async fn led_by(&self, leader: &mut Child) -> std::io::Result<ExitStatus> {
        let mut wait = pin!(leader.wait());
        let ended = std::future::poll_fn(|context| {
            let mut sandboxes = self.groups.sandboxes.lock();
            let ended = wait.as_mut().poll(context);
            if ended.is_ready() {
                // After an error as well: somebody else may have waited for it.
                let entries = sandboxes.get_mut(&self.sandbox).map(|sandbox| &mut sandbox.groups);
                for entry in entries.into_iter().flatten().filter(|entry| entry.id == self.id) {
                    entry.led = false;
                }
            }
            ended
        })
        .await;
        Leash::of_this_process().remove(Target::Process(self.id));
        ended
    }

    /// The limit on memory, in MiB, if the kernel has killed a process of the group for that.
    pub(super) fn killed_for_memory(&self) -> Option<u64> {
        self.with_entry(|entry| entry.cgroup.as_ref()?.killed_for_memory()).flatten()
    }

    /// Remembers the first process of the command's namespace, once it is there. True: it is known.
    pub(super) fn find_first(&mut self) -> bool {
        if !self.has_first
            && let Some((pid, handle)) = first_process(self.id)
        {
            if let Err(error) = Leash::of_this_process().add(Target::Process(pid)) {
                tracing::warn!(%error, "a command's first process could not be leashed");
            }
            let first = Arc::new(First { pid, handle });
            self.has_first = self.with_entry(|entry| entry.first = Some(first)).is_some();
        }
        self.has_first
    }

    /// Looks whether anything is left; if not, it is forgotten at once, since its number may become another's.
    fn look(&mut self) {
        if !self.finished && self.with_entry(|entry| entry.is_empty()).unwrap_or(true) {
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.finished = true;
        let mut gone = None;
        let mut sandboxes = self.groups.sandboxes.lock();
        if let Some(sandbox) = sandboxes.get_mut(&self.sandbox) {
            if let Some(at) = sandbox.groups.iter().position(|group| group.id == self.id) {
                gone = Some(sandbox.groups.swap_remove(at));
            }
            if sandbox.is_unused() {
                sandboxes.remove(&self.sandbox);
            }
        }
        drop(sandboxes);
        let leash = Leash::of_this_process();
        leash.remove(Target::Process(self.id));
        leash.remove(Target::Group(self.id));
        if let Some(first) = gone.and_then(|gone| gone.first) {
            leash.remove(Target::Process(first.pid));
        }
    }

    /// Waits until nothing is left and it is forgotten.
    async fn ended(&mut self, mut pause: Duration, longest: Duration) {
        loop {
            self.look();
            if self.finished {
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
    }

    /// Waits until nothing is left, up to a time: after a SIGKILL that is a matter of microseconds, if the kernel can
    /// end the processes at all.
    pub(super) async fn emptied(&mut self, within: Duration) -> bool {
        tokio::time::timeout(within, self.ended(FIRST_LOOK, Duration::from_millis(20))).await.is_ok()
    }

    /// Sees something through, however long it takes, and forgets the group meanwhile if nothing is left of it.
    pub(super) async fn while_doing<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        tokio::select! {
            biased;
            // What is ready at once needs no look.
            done = &mut work => return done,
            () = self.ended(FIRST_LOOK, LOOK) => {}
        }
        work.await
    }

    /// The command has ended and may have left something in the background, which lives on until its sandbox ends.
    /// `closed` is done when nobody holds its pipes any more, which mostly is when the last of them ends.
    pub(super) async fn leave_rest(mut self, closed: impl Future<Output = ()>) {
        let mut closed = pin!(closed);
        tokio::select! {
            () = &mut closed => self.ended(FIRST_LOOK, LOOK).await,
            () = self.ended(FIRST_LOOK, LOOK) => {
                // With isolation `none` something may have left the group.
                closed.await;
            }
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.finished {
            self.look();
        }
        if !self.finished {
            self.signal(Signal::KILL);
            self.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Scope;

    #[test]
    fn no_more_than_the_most_are_started_at_once() {
        let (groups, sandbox) = (Arc::new(Groups::default()), Scope::default().hashed_id());
        let places: Vec<Place> = std::thread::scope(|scope| {
            let thread = || (0..MAX_GROUPS).filter_map(|_| groups.reserve(&sandbox).ok()).collect::<Vec<_>>();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(thread)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(places.len(), MAX_GROUPS);
        assert_eq!(groups.reserve(&sandbox).err().unwrap().code(), Code::Capacity);
        drop(places);
        assert!(groups.sandboxes.lock().is_empty() && groups.reserve(&sandbox).is_ok());
    }
}
