//! Where this gateway notes what it looks after.

use std::sync::Arc;

use crate::error::Result;
use crate::ids::ProviderName;
use crate::ownership::{
    LeaseTimes, Ledger, MemoryStore, OwnerId, RedisConnection, RedisLedger, RedisStore, Resolved, Store, lease_prefix,
    ledger_key,
};
use crate::runtime::{Runtime, TokioRuntime};

/// The gateway's name and its stores. Nothing is connected before the first lease is asked for.
pub(super) struct Ownership {
    me: OwnerId,
    resolved: Resolved,
    redis: Option<Arc<RedisConnection>>,
    clock: Arc<TokioRuntime>,
}

impl Ownership {
    pub(super) fn open(resolved: Resolved) -> Result<Self> {
        let redis = match &resolved.redis_url {
            Some(url) => Some(RedisConnection::open(url, resolved.redis_ca_file.as_deref())?),
            None => None,
        };
        Ok(Self { me: OwnerId::generate()?, resolved, redis, clock: TokioRuntime::current() })
    }

    pub(super) fn me(&self) -> &OwnerId {
        &self.me
    }

    /// Whether other gateways see our leases.
    pub(super) fn shared(&self) -> bool {
        self.redis.is_some()
    }

    pub(super) fn times(&self) -> LeaseTimes {
        self.resolved.times
    }

    pub(super) fn clock(&self) -> Arc<dyn Runtime> {
        self.clock.clone()
    }

    /// A provider's leases.
    pub(super) fn store(&self, provider: &ProviderName) -> Arc<dyn Store> {
        let ttl = self.resolved.times.ttl();
        match &self.redis {
            Some(redis) => {
                let prefix = lease_prefix(&self.resolved.key_prefix, provider);
                Arc::new(RedisStore::new(Arc::clone(redis), &prefix, self.me.clone(), ttl))
            }
            None => Arc::new(MemoryStore::new(self.me.clone(), ttl, self.clock())),
        }
    }

    /// The count of a provider's sandboxes that the whole deployment shares; none if there is nothing to share it in.
    pub(super) fn ledger(&self, provider: &ProviderName, limit: u32) -> Option<Arc<dyn Ledger>> {
        let redis = self.redis.as_ref()?;
        let key = ledger_key(&self.resolved.key_prefix, provider);
        Some(Arc::new(RedisLedger::new(Arc::clone(redis), key, limit)))
    }
}
