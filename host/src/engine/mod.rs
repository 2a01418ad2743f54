//! Where components run: the only room that knows wasmtime.
//!
//! [`Runtime`] is the engine with its limits, made once. [`Provider`] is one loaded component: every call gets a fresh
//! instance with that call's grants in its store, which ends with the call and its streams.

mod bindings;
mod cache;
mod calls;
mod component;
mod convert;
mod deadline;
mod failure;
mod host;
mod inspect;
mod inventory;
mod limits;
mod provider;
mod runtime;
mod session;
mod sizes;
mod state;
mod streams;
mod tails;

pub use crate::instance::{IdScheme, InstanceRecord, Liveness};
pub use component::{Ask, Interfaces, ask};
pub use convert::{Description, Features};
pub use inspect::inspect;
pub use inventory::{Item, Page};
pub use provider::{MAX_INSTANCE_RECORD, Provider};
pub use runtime::{EngineOptions, Pooling, Runtime};
pub use state::{Granted, Target};
