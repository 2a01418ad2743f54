//! The gateway as its users see it: [`Gateway`] lends a [`Sandbox`] to a scope, and that runs commands and works on files.

mod backend;
mod grants;
mod lending;
mod open;
mod ownership;
mod policy;
mod providers;
mod running;
mod sandbox;
mod translate;

pub use open::Gateway;
pub use providers::ProviderReport;
pub use running::{DEFAULT_COLLECT_LIMIT, Output, Running};
pub use sandbox::{ExecInput, Reading, Sandbox};
