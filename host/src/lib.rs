//! Sandgate lends code-execution sandboxes to AI agents. This crate is the trusted host: it loads sandbox providers as
//! WebAssembly components, grants each what its operator allowed, and runs commands and file operations through them.

pub mod capability;
mod componentize;
pub mod config;
pub mod doctor;
pub mod engine;
pub mod env_policy;
pub mod error;
pub mod gateway;
pub mod ids;
pub mod mounts;
pub mod rewrite;
pub mod trust;
pub mod values;

pub use componentize::componentize;
pub use error::{Code, Error, Result};
pub use gateway::{DEFAULT_COLLECT_LIMIT, ExecInput, Gateway, Output, ProviderReport, Running, Sandbox};
pub use ids::Scope;
