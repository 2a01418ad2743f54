//! The gateway as its users see it: [`Gateway`] lends a [`Sandbox`] to a scope, and that runs commands and works on files.

mod grants;
mod open;
#[cfg_attr(not(test), expect(dead_code, reason = "the gateway does not stand on the lifecycle yet"))]
mod policy;
mod running;
mod sandbox;
mod table;
mod translate;

pub use open::{Gateway, ProviderReport};
pub use running::{DEFAULT_COLLECT_LIMIT, Output, Running};
pub use sandbox::{ExecInput, Sandbox};
