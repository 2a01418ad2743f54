//! The sandboxes that are lent out: the least recently used ones make room, those in use never do.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;

use super::translate::Written;
use crate::engine::{InstanceRecord, Provider, Target};
use crate::error::{Code, Error};
use crate::ids::{ProviderName, SandboxId, Scope};

/// One sandbox. Whoever holds it besides the table has it in use.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) scope: Scope,
    pub(super) target: Target,
    pub(super) instance: InstanceRecord,
    pub(super) provider: Arc<Provider>,
    /// What its agent wrote, where commands don't see virtual paths as real ones; none: nothing is translated.
    pub(super) written: Option<Written>,
}

/// The sandboxes of one provider.
#[derive(Debug)]
pub(super) struct Table {
    entries: Mutex<LruCache<SandboxId, Arc<Entry>>>,
    limit: usize,
}

/// When a full house is worth another try: commands mostly take seconds.
const RETRY_AFTER_MS: u64 = 5_000;

impl Table {
    pub(super) fn new(limit: NonZeroUsize) -> Self {
        // Unbounded, since it is bounded here: an entry in use must not be pushed out.
        Self { entries: Mutex::new(LruCache::unbounded()), limit: limit.get() }
    }

    /// A sandbox that is there; it counts as used now.
    pub(super) fn get(&self, id: &SandboxId) -> Option<Arc<Entry>> {
        self.entries.lock().get(id).map(Arc::clone)
    }

    /// Adds one; false if the house is full.
    pub(super) fn add(&self, entry: &Arc<Entry>) -> bool {
        let mut entries = self.entries.lock();
        let room = entries.len() < self.limit;
        if room {
            entries.put(entry.target.sandbox.clone(), Arc::clone(entry));
        }
        room
    }

    /// The sandboxes that nobody uses, the least recently used first; at most `most`.
    pub(super) fn idle(&self, most: usize) -> Vec<SandboxId> {
        let entries = self.entries.lock();
        let idle = entries.iter().rev().filter(|(_, entry)| Arc::strong_count(entry) == 1);
        idle.take(most).map(|(id, _)| id.clone()).collect()
    }

    /// Takes one out, unless somebody uses it (again).
    pub(super) fn take_idle(&self, id: &SandboxId) -> Option<Arc<Entry>> {
        let mut entries = self.entries.lock();
        let idle = entries.peek(id).is_some_and(|entry| Arc::strong_count(entry) == 1);
        if idle { entries.pop(id) } else { None }
    }

    /// Takes one out, whoever uses it.
    pub(super) fn take(&self, id: &SandboxId) -> Option<Arc<Entry>> {
        self.entries.lock().pop(id)
    }

    /// Puts back one that could not be ended, so that it can be tried again.
    pub(super) fn put_back(&self, entry: Arc<Entry>) {
        self.entries.lock().put(entry.target.sandbox.clone(), entry);
    }

    /// The error of a full house.
    pub(super) fn full(&self, provider: &ProviderName) -> Error {
        Error::new(Code::Capacity, format!("all {} sandboxes of provider {provider} are in use", self.limit))
            .hint("wait until one is released, or raise max_sandboxes of the provider")
            .retry_after_ms(RETRY_AFTER_MS)
    }

    /// Takes all out.
    pub(super) fn drain(&self) -> Vec<Arc<Entry>> {
        let mut entries = self.entries.lock();
        std::iter::from_fn(|| entries.pop_lru().map(|(_, entry)| entry)).collect()
    }

    /// All that are there, the most recently used first.
    pub(super) fn list(&self) -> Vec<Arc<Entry>> {
        self.entries.lock().iter().map(|(_, entry)| Arc::clone(entry)).collect()
    }
}
