//! Leases in this process's memory: for a deployment of one gateway.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{self, BoxFuture, FutureExt};
use parking_lot::Mutex;

use super::lease::{Lease, OwnerId};
use super::store::{Purpose, Renewal, Store};
use super::table::LeaseTable;
use crate::error::Result;
use crate::ids::SandboxId;
use crate::runtime::Runtime;

/// Lapsed leases are swept out when the table has grown to twice what it held after the last sweep, and to this at least.
const SWEEP_FROM: usize = 1024;

struct Shared {
    table: LeaseTable,
    sweep_at: usize,
}

/// A store that only this process sees: [`Store::sees_peers`] is false. Several gateways that share a backend need
/// [`RedisStore`](super::RedisStore).
#[derive(Clone)]
pub struct MemoryStore {
    me: OwnerId,
    ttl: Duration,
    runtime: Arc<dyn Runtime>,
    shared: Arc<Mutex<Shared>>,
}

impl MemoryStore {
    /// An empty one whose leases last for `ttl`.
    pub fn new(me: OwnerId, ttl: Duration, runtime: Arc<dyn Runtime>) -> Self {
        let shared = Arc::new(Mutex::new(Shared { table: LeaseTable::default(), sweep_at: SWEEP_FROM }));
        Self { me, ttl, runtime, shared }
    }

    /// The same leases as another instance in this process sees them.
    pub fn seen_by(&self, other: OwnerId) -> Self {
        Self { me: other, ..self.clone() }
    }

    fn with<T: Send + 'static>(
        &self,
        action: impl FnOnce(&mut LeaseTable, Duration) -> T,
    ) -> BoxFuture<'static, Result<T>> {
        let now = self.runtime.now();
        let mut shared = self.shared.lock();
        if shared.table.len() >= shared.sweep_at {
            shared.table.sweep(now);
            shared.sweep_at = (shared.table.len() * 2).max(SWEEP_FROM);
        }
        future::ready(Ok(action(&mut shared.table, now))).boxed()
    }
}

impl Store for MemoryStore {
    fn me(&self) -> &OwnerId {
        &self.me
    }

    fn sees_peers(&self) -> bool {
        false
    }

    fn take<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, Result<bool>> {
        self.with(|table, now| table.take(id, &self.me, now, self.ttl))
    }

    fn claim<'a>(&'a self, id: &'a SandboxId, purpose: Purpose) -> BoxFuture<'a, Result<bool>> {
        self.with(|table, now| table.claim(id, &self.me, purpose, now, self.ttl))
    }

    fn renew<'a>(&'a self, ids: &'a [SandboxId]) -> BoxFuture<'a, Result<Vec<Renewal>>> {
        self.with(|table, now| ids.iter().map(|id| table.renew(id, &self.me, now, self.ttl)).collect())
    }

    fn release<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, Result<()>> {
        self.with(|table, now| table.release(id, &self.me, now))
    }

    fn owner<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, Result<Option<Lease>>> {
        self.with(|table, now| table.owner(id, now))
    }
}
