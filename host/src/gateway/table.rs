//! The sandboxes that are lent out: the least recently used ones make room, those in use never do.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;

use super::translate::Written;
use crate::engine::{InstanceRecord, Provider, Target};
use crate::error::{Code, Error};
use crate::ids::{SandboxId, Scope};

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

    /// Adds one; returns it, and those that made room. If all are in use, it is given back.
    pub(super) fn add(&self, entry: Entry) -> Result<(Arc<Entry>, Vec<Arc<Entry>>), (Error, Entry)> {
        let id = entry.target.sandbox.clone();
        let mut entries = self.entries.lock();
        let mut out = Vec::new();
        while entries.len() >= self.limit {
            let oldest = entries.iter().rev().find(|(_, entry)| Arc::strong_count(entry) == 1);
            let Some(oldest) = oldest.map(|(id, _)| id.clone()) else {
                let provider = &entry.provider.granted().provider;
                let message = format!("all {} sandboxes of provider {provider} are in use", self.limit);
                let error = Error::new(Code::Capacity, message)
                    .hint("wait until one is released, or raise max_sandboxes of the provider")
                    .retry_after_ms(RETRY_AFTER_MS);
                return Err((error, entry));
            };
            out.extend(entries.pop(&oldest));
        }
        let entry = Arc::new(entry);
        entries.put(id, Arc::clone(&entry));
        Ok((entry, out))
    }

    /// Takes one out.
    pub(super) fn remove(&self, id: &SandboxId) -> Option<Arc<Entry>> {
        self.entries.lock().pop(id)
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
