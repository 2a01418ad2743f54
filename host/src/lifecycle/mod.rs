//! The life of sandboxes: acquired, used, parked, taken back, stopped, adopted, never killed under a user, never lost.
//!
//! Every sandbox id has a *slot* with a phase, a version that changes on every transition, and one lock. Whoever moves
//! a slot holds its lock for the whole transition, round trips to the lease store and the backend included. Reapers and
//! renewal only try the lock and leave a busy slot alone; what they decided without it counts only if the version is
//! still the same. Transitions run as tasks of their own: a caller that gives up never tears one in half.
//!
//! This room knows neither WebAssembly nor Docker nor Redis: it works on a [`Backend`], a
//! [`Store`](crate::ownership::Store) and a [`Runtime`](crate::runtime::Runtime), which is how the simulation runs it.

mod acquire;
mod backend;
mod capacity;
mod ephemeral;
mod guards;
mod manager;
mod reap;
mod reconcile;
mod release;
mod renewal;
mod settings;
mod shutdown;
mod slot;
mod status;
mod survey;
mod teardown;
#[cfg(test)]
mod tests;

pub use crate::instance::{IdScheme, InstanceRecord, Liveness};
pub use backend::{Attachment, Backend, Features, Instance, Item, Page, Wanted};
pub use capacity::{CapacityPolicy, Refusal, RefusalReason};
pub use guards::{Guard, Guards};
pub use manager::{Lifecycle, Parts, Upkeep};
pub use reconcile::ReconcileReport;
pub use settings::{Deadlines, ReconcileBudget, ResetPolicy, Settings};
pub use shutdown::{ShutdownMode, ShutdownReport};
pub use slot::{Hold, Pin};
pub use status::{PhaseName, SandboxStatus};
pub use survey::{Sighted, Survey};
pub use teardown::Stopped;
