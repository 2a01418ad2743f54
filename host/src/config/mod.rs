//! The gateway's configuration: one TOML file, typed, checked in one place, with errors that name line, key and remedy.

mod check;
mod dirs;
mod init;
mod lifecycle;
mod load;
mod model;
mod ownership;
mod print;
mod problem;
mod provider;
mod resolve;
mod schema;
mod secret;
mod shape;

#[cfg(test)]
mod tests;

pub use init::init;
pub use lifecycle::{CapacityPolicy, LifecycleConfig, Reset};
pub use load::{Loaded, load, parse};

pub use model::{
    Config, EngineConfig, EnvironmentConfig, EnvironmentMode, GatewayConfig, MountConfig, Pooling, SkillsConfig,
};
pub use ownership::{OwnershipConfig, OwnershipType};
pub use provider::{
    Grants, Isolation, ProcessGrant, ProcessLimits, ProviderConfig, Settings, WasiGrant, WorkspaceGrant,
};
pub use schema::schema;
pub use secret::Secret;

pub use crate::trust::ComponentSource;
