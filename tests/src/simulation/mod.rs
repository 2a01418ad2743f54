//! A deterministic simulation of several gateways that share a backend and a lease store.
//!
//! The gateways run the real lifecycle code. Time is virtual, tasks run one at a time in an order that a seed decides,
//! and the seed also decides what is slow, fails, crashes, stands still or forgets. After every step the invariants are
//! checked; the same seed always gives the same run.

mod backend;
mod chaos;
mod client;
mod executor;
mod gateway;
mod random;
mod run;
mod store;
mod world;

pub use run::{Report, Sabotage, Violation, replay_command, run};
