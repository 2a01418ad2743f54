//! The rules of leases as plain data, without a clock or a lock: what the memory store and the simulation run on.

use std::collections::BTreeMap;
use std::time::Duration;

use super::lease::{Lease, LeaseState, OwnerId};
use super::store::{Purpose, Renewal};
use crate::ids::SandboxId;

/// The rules that a simulation may take out, to show that it would notice. All of them hold in a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableGuards {
    /// `take` is refused while the sandbox is being torn down.
    pub take_refused_while_destroying: bool,
    /// A claim to keep never turns our own `del:` back into an `own:`.
    pub claim_keeps_own_marker: bool,
}

impl Default for TableGuards {
    fn default() -> Self {
        Self { take_refused_while_destroying: true, claim_keeps_own_marker: true }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    owner: OwnerId,
    state: LeaseState,
    expires: Duration,
}

/// All leases, by sandbox. `now` is any monotonic time; a lease is gone from the moment that it expires.
#[derive(Debug, Default)]
pub struct LeaseTable {
    entries: BTreeMap<SandboxId, Entry>,
    guards: TableGuards,
}

impl LeaseTable {
    /// An empty one with some rules taken out.
    #[cfg(any(test, feature = "simulation"))]
    pub fn with_guards(guards: TableGuards) -> Self {
        Self { entries: BTreeMap::new(), guards }
    }

    fn live(&self, id: &SandboxId, now: Duration) -> Option<&Entry> {
        self.entries.get(id).filter(|entry| now < entry.expires)
    }

    fn put(&mut self, id: &SandboxId, me: &OwnerId, state: LeaseState, expires: Duration) {
        self.entries.insert(id.clone(), Entry { owner: me.clone(), state, expires });
    }

    /// As [`Store::take`](super::Store::take).
    pub fn take(&mut self, id: &SandboxId, me: &OwnerId, now: Duration, ttl: Duration) -> bool {
        let destroying = self.live(id, now).is_some_and(|entry| entry.state == LeaseState::Destroying);
        if destroying && self.guards.take_refused_while_destroying {
            return false;
        }
        self.put(id, me, LeaseState::Owned, now + ttl);
        true
    }

    /// As [`Store::claim`](super::Store::claim).
    pub fn claim(&mut self, id: &SandboxId, me: &OwnerId, purpose: Purpose, now: Duration, ttl: Duration) -> bool {
        if let Some(entry) = self.live(id, now) {
            if entry.owner != *me {
                return false;
            }
            let unwinds = entry.state == LeaseState::Destroying && purpose == Purpose::Keep;
            if unwinds && self.guards.claim_keeps_own_marker {
                return false;
            }
        }
        let state = match purpose {
            Purpose::Keep => LeaseState::Owned,
            Purpose::Destroy => LeaseState::Destroying,
        };
        self.put(id, me, state, now + ttl);
        true
    }

    /// As [`Store::renew`](super::Store::renew), for one.
    pub fn renew(&mut self, id: &SandboxId, me: &OwnerId, now: Duration, ttl: Duration) -> Renewal {
        match self.entries.get_mut(id).filter(|entry| now < entry.expires) {
            None => Renewal::Lapsed,
            Some(entry) if entry.owner == *me && entry.state == LeaseState::Owned => {
                entry.expires = now + ttl;
                Renewal::Renewed
            }
            Some(_) => Renewal::Lost,
        }
    }

    /// As [`Store::release`](super::Store::release).
    pub fn release(&mut self, id: &SandboxId, me: &OwnerId, now: Duration) {
        if self.live(id, now).is_none_or(|entry| entry.owner == *me) {
            self.entries.remove(id);
        }
    }

    /// As [`Store::owner`](super::Store::owner).
    pub fn owner(&self, id: &SandboxId, now: Duration) -> Option<Lease> {
        let entry = self.live(id, now)?;
        Some(Lease { owner: entry.owner.clone(), state: entry.state, left: entry.expires.saturating_sub(now) })
    }

    /// Every lease that has not lapsed.
    pub fn leases(&self, now: Duration) -> impl Iterator<Item = (&SandboxId, Lease)> {
        self.entries.keys().filter_map(move |id| Some((id, self.owner(id, now)?)))
    }

    /// Forgets the lapsed ones, which only take room.
    pub fn sweep(&mut self, now: Duration) {
        self.entries.retain(|_, entry| now < entry.expires);
    }

    /// How many entries there are, lapsed ones included.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Forgets everything, as a store that restarts without its data.
    pub fn clear(&mut self) {
        self.entries.clear();
    }
}
