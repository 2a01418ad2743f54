//! Sandgate lends code-execution sandboxes to AI agents. This crate is the trusted host: it loads sandbox providers as
//! WebAssembly components, grants each what its operator allowed, and runs commands and file operations through them.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that unwraps says where it failed"))]

pub mod error;
pub mod ids;
pub mod lifecycle;
pub mod mounts;
pub mod ownership;
pub mod runtime;
pub mod values;

pub use error::{Code, Error, Result};
