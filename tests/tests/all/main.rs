//! The cross-cutting tests, in one program that is linked once.
#![allow(clippy::unwrap_used, reason = "a test that unwraps says where it failed")]

mod cli;
mod containment;
mod environment;
mod isolation;
mod lending;
mod local;
mod shell_only;
mod simulation;
mod skills;
mod translation;
mod unconfined;
mod volume;
