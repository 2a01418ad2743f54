//! The lease store: which gateway *reaps* a sandbox. It never says who may use one.
//!
//! A lease is `own:` (responsible for it) or `del:` (tearing it down). [`Store::take`] transfers ownership when a
//! sandbox is acquired; [`Store::claim`] succeeds only if nobody else holds it, and gates whatever adopts or stops.
//! Definitive answers are values; a store that can't be reached is an error and never a false answer.

mod connection;
#[cfg(test)]
mod contract;
mod lease;
mod ledger;
mod memory;
mod probe;
mod redis;
mod resolve;
mod store;
mod table;
#[cfg(test)]
pub(crate) mod test_server;

pub use connection::{OPERATION_TIMEOUT, RedisConnection};
pub use lease::{Lease, LeaseState, LeaseTimes, OwnerId, lease_prefix};
pub use ledger::{Admission, Applied, Ledger, RedisLedger, ledger_key};
pub use memory::MemoryStore;
pub use probe::{ProbeFailure, Trouble};
pub use redis::RedisStore;
pub use resolve::{DEFAULT_KEY_PREFIX, DEFAULT_REDIS_URL, OwnershipConfig, Resolved, StoreKind, resolve};
pub use store::{Purpose, Renewal, Store};
pub use table::{LeaseTable, TableGuards};
