//! Checks of the host: whether what the configuration needs is there, and what to do if not. The command line prints
//! what they find.

mod backends;
mod check;
mod command;
mod folders;
mod isolation;
mod lease_store;
mod providers;
mod resources;

pub use check::{Check, DEADLINE, Status, run};
