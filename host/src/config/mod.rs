//! The gateway's configuration: one TOML file, typed, checked in one place, with errors that name line, key and remedy.

mod check;
mod dirs;
mod init;
mod load;
mod model;
mod print;
mod problem;
mod provider;
mod resolve;
mod schema;
mod shape;

#[cfg(test)]
mod tests;

pub use init::init;
pub use load::{Loaded, load, parse};

pub use model::{
    Config, EngineConfig, EnvironmentConfig, EnvironmentMode, GatewayConfig, MountConfig, OwnershipConfig,
    OwnershipType, Pooling, SkillsConfig,
};
pub use provider::{
    Grants, Isolation, ProcessGrant, ProcessLimits, ProviderConfig, Settings, WasiGrant, WorkspaceGrant,
};
pub use schema::schema;

pub use crate::trust::ComponentSource;
