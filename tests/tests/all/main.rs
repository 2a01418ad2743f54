//! The cross-cutting tests, in one program that is linked once.
#![allow(clippy::unwrap_used, reason = "a test that unwraps says where it failed")]

mod cli;
mod containment;
mod deployment;
mod environment;
mod gateways;
mod isolation;
mod lending;
mod local;
#[path = "../../../host/src/ownership/test_server.rs"]
#[allow(dead_code, reason = "shared with other crates' tests, which use the rest")]
mod redis_server;
mod sandboxes;
mod shell_only;
mod simulation;
mod skills;
mod translation;
mod unconfined;
mod volume;
