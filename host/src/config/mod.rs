//! The gateway's configuration: one TOML file, typed, checked in one place, with errors that name line, key and remedy.

mod model;
mod provider;
mod secret;

pub use model::{
    Config, EngineConfig, EnvironmentConfig, EnvironmentMode, GatewayConfig, MountConfig, OwnershipConfig,
    OwnershipType, Pooling, SkillsConfig,
};
pub use provider::{
    ComponentSource, Grants, Isolation, ProcessGrant, ProcessLimits, ProviderConfig, Settings, WasiGrant,
    WorkspaceGrant,
};
pub use secret::{REDACTED, Secret};
