//! The engine room, proven on real components: what a bad guest costs, and whom.
#![allow(clippy::unwrap_used, reason = "a test that unwraps says where it failed")]

mod cache;
mod capacity;
mod components;
mod daemon;
mod fuzz;
mod gateway;
mod grants;
mod limits;
mod machine;
mod reuse;
mod streams;
mod support;
mod upload;
