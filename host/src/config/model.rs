//! The keys of the configuration file, apart from those of a provider.
//!
//! The doc comments here are what operators read: they become the JSON Schema and the starter file.

use std::path::PathBuf;
use std::time::Duration;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::provider::PROVIDER_NAME_PATTERN;
use super::{OwnershipConfig, ProviderConfig};
use crate::ids::ProviderName;

/// The gateway's configuration, as in `sandgate.toml`.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "sandgate.toml")]
pub struct Config {
    /// The provider that a request gets if it names none: one of the names under `[providers]`.
    ///
    /// Example: `default_provider = "local"`
    #[schemars(with = "String")]
    pub default_provider: ProviderName,

    /// The gateway itself.
    #[serde(default)]
    pub gateway: GatewayConfig,

    /// The limits of the WebAssembly engine: what one call into a provider component may use.
    #[serde(default)]
    pub engine: EngineConfig,

    /// Which variables of the gateway's own environment a command on this host inherits.
    #[serde(default)]
    pub environment: EnvironmentConfig,

    /// The skills that sandboxes see.
    #[serde(default)]
    pub skills: SkillsConfig,

    /// More directories of this host that every sandbox sees.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<MountConfig>,

    /// Where gateways note which of them looks after a sandbox.
    /// Default: in memory, which is for a single gateway; in Redis if one of the environment variables
    /// `DEER_FLOW_SANDBOX_OWNERSHIP_REDIS_URL` and `DEER_FLOW_STREAM_BRIDGE_REDIS_URL` says where one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ownership: Option<OwnershipConfig>,

    /// The sandbox providers, by name: 1 to 32 characters of a-z, 0-9 and -, beginning with a letter.
    #[schemars(
        with = "IndexMap<String, ProviderConfig>",
        extend("propertyNames" = { "pattern": PROVIDER_NAME_PATTERN }, "minProperties" = 1)
    )]
    pub providers: IndexMap<ProviderName, ProviderConfig>,
}

/// The gateway itself.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GatewayConfig {
    /// Where users' files and the gateway's records are: an absolute path. Only the gateway's own user may look inside.
    /// Default: `$XDG_DATA_HOME/sandgate`, else `~/.local/share/sandgate`, else (no home) `/var/lib/sandgate`.
    ///
    /// Example: `state_dir = "/var/lib/sandgate"`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_dir: Option<PathBuf>,

    /// Where compiled components are kept: an absolute path. It may be deleted at any time.
    /// Default: `$XDG_CACHE_HOME/sandgate`, else `~/.cache/sandgate`, else (no home) `/var/cache/sandgate`.
    ///
    /// Example: `cache_dir = "/var/cache/sandgate"`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_dir: Option<PathBuf>,

    /// The name of this deployment: gateways that share one backend and have the same name share its sandboxes; those
    /// with another name leave them alone. 1 to 63 characters of a-z, 0-9 and -, beginning with a letter.
    /// Default: "sandgate".
    ///
    /// Example: `deployment = "staging"`
    #[schemars(
        regex(pattern = "^[a-z][a-z0-9-]{0,62}$"),
        extend("x-accepts" = "use 1 to 63 characters of a-z, 0-9 and -, beginning with a letter")
    )]
    pub deployment: String,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self { state_dir: None, cache_dir: None, deployment: "sandgate".to_owned() }
    }
}

/// Whether component instances come from memory that was set aside when the gateway started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Pooling {
    /// Pooled if the host has the address space for it, else not, with a warning.
    #[default]
    Auto,
    /// Pooled; the gateway does not start without the address space.
    On,
    /// Every call maps its own memory: slower, little address space.
    Off,
}

/// The limits of the WebAssembly engine.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EngineConfig {
    /// The memory of one call into a component, in MiB: 1 to 4096. File contents and command output stream past it.
    /// Default: 64.
    ///
    /// Example: `memory_limit_mib = 128`
    #[schemars(range(min = 1, max = 4096))]
    pub memory_limit_mib: u32,

    /// The entries of one table (function pointers) of a component: 100 to 1000000. A Rust component has some thousands,
    /// one that brings a language runtime more.
    /// Default: 20000.
    ///
    /// Example: `table_elements = 50000`
    #[schemars(range(min = 100, max = 1_000_000))]
    pub table_elements: u32,

    /// The CPU time of one call into a component, in milliseconds: 10 to 600000. Waiting is not counted.
    /// Default: 10000.
    ///
    /// Example: `cpu_ms = 2000`
    #[schemars(range(min = 10, max = 600_000))]
    pub cpu_ms: u64,

    /// How long a call may take that is not a running command, in seconds: 1 to 3600. Making and stopping a sandbox may take
    /// longer: see the provider's `lifecycle`.
    /// Default: 120.
    ///
    /// Example: `call_timeout_seconds = 60`
    #[schemars(range(min = 1, max = 3600))]
    pub call_timeout_seconds: u64,

    /// The calls that run at the same time, over all providers: 1 to 10000.
    /// Default: 256.
    ///
    /// Example: `max_instances = 512`
    #[schemars(range(min = 1, max = 10_000))]
    pub max_instances: u32,

    /// The calls that may wait for a free place; further ones are answered "busy". 0 (no waiting) to 100000.
    /// Default: 1024.
    ///
    /// Example: `queue = 4096`
    #[schemars(range(max = 100_000))]
    pub queue: u32,

    /// How long a call waits for a free place, in seconds, before it is answered "busy": 1 to 3600.
    /// Default: 30.
    ///
    /// Example: `queue_timeout_seconds = 10`
    #[schemars(range(min = 1, max = 3600))]
    pub queue_timeout_seconds: u64,

    /// Whether instances come from memory that was set aside at the start: "auto" (if there is the address space),
    /// "on" (else do not start) or "off".
    /// Default: "auto".
    ///
    /// Example: `pooling = "off"`
    pub pooling: Pooling,

    /// The instances that are kept for the next call of the same sandbox, over all providers' sandboxes: 0 (every call gets
    /// a fresh one) to 1000. One that has seen a command's variables is never kept.
    /// Default: 32.
    ///
    /// Example: `idle_instances = 0`
    #[schemars(range(max = 1000))]
    pub idle_instances: u32,

    /// The stack of one call into a component, in KiB: 64 to 8192.
    /// Default: 512.
    ///
    /// Example: `stack_kib = 1024`
    #[schemars(range(min = 64, max = 8192))]
    pub stack_kib: u32,
}

impl EngineConfig {
    /// The CPU time of one call.
    pub fn cpu_time(&self) -> Duration {
        Duration::from_millis(self.cpu_ms)
    }

    /// The wall-clock time of one call that is not a running command.
    pub fn call_timeout(&self) -> Duration {
        Duration::from_secs(self.call_timeout_seconds)
    }

    /// How long a call waits for a free place.
    pub fn queue_timeout(&self) -> Duration {
        Duration::from_secs(self.queue_timeout_seconds)
    }

    /// The memory of one call, in bytes.
    pub fn memory_limit_bytes(&self) -> u64 {
        u64::from(self.memory_limit_mib) << 20
    }
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            // A Rust provider needs 1 to 2 MiB and a componentized Python one some 40: 64 leaves room for both.
            memory_limit_mib: 64,
            // The pooling allocator's own default; our guests have fewer than 5,000.
            table_elements: 20_000,
            // A guest only steers: seconds of CPU time mean a loop. Ten leave room for a slow, busy host.
            cpu_ms: 10_000,
            // Longer than a container takes to start, shorter than a person waits.
            call_timeout_seconds: 120,
            // With 64 MiB each, 16 GiB at the very worst; in practice 2 MiB each.
            max_instances: 256,
            // Four rounds of full occupancy: what is further back would time out anyway.
            queue: 1024,
            queue_timeout_seconds: 30,
            pooling: Pooling::Auto,
            // An agent's calls come in bursts on one sandbox; 32 bursts at a time, some 2 MiB each.
            idle_instances: 32,
            // wasmtime's own default.
            stack_kib: 512,
        }
    }
}

/// Which way the environment policy is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EnvironmentMode {
    /// All variables but those that look like secrets or are in `deny`; `allow` makes exceptions.
    #[default]
    DenyList,
    /// Only the variables in `allow`; `deny` makes exceptions.
    AllowList,
}

/// Which variables of the gateway's own environment a command on this host inherits.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EnvironmentConfig {
    /// "deny-list": all variables, except those whose names look like secrets and those in `deny`.
    /// "allow-list": only the variables in `allow`.
    /// Default: "deny-list".
    ///
    /// Example: `mode = "allow-list"`
    pub mode: EnvironmentMode,

    /// Names that are inherited, `*` standing for any characters: with "allow-list" the only ones, with "deny-list"
    /// exceptions for names that merely look like secrets.
    /// Default: [].
    ///
    /// Example: `allow = ["LANG", "LC_*"]`
    pub allow: Vec<String>,

    /// Names that are never inherited, `*` standing for any characters. They win over `allow`.
    /// Default: [].
    ///
    /// Example: `deny = ["CORP_*"]`
    pub deny: Vec<String>,
}

/// The skills that sandboxes see, as read-only copies.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SkillsConfig {
    /// The directory of this host that holds the skills: an absolute path. In it: `public/NAME/` for everyone,
    /// `custom/USER/NAME/` and `integrations/USER/PROVIDER/NAME/` for one user, `legacy/NAME/` for the users without
    /// custom skills of their own. Each skill is a folder with a `SKILL.md`.
    /// Default: none, so there are no skills.
    ///
    /// Example: `host_path = "/srv/skills"`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_path: Option<PathBuf>,

    /// Where sandboxes see them: an absolute path.
    /// Default: "/mnt/skills".
    ///
    /// Example: `container_path = "/mnt/skills"`
    pub container_path: String,

    /// Skills that no sandbox sees: "NAME" in every category, or "CATEGORY/NAME" with the category public, custom,
    /// legacy or integrations (there "integrations/PROVIDER/NAME").
    /// Default: [].
    ///
    /// Example: `disabled = ["pdf", "custom/draft"]`
    pub disabled: Vec<String>,
}

impl Default for SkillsConfig {
    fn default() -> Self {
        Self { host_path: None, container_path: "/mnt/skills".to_owned(), disabled: Vec::new() }
    }
}

/// A directory of this host that every sandbox sees.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MountConfig {
    /// The directory of this host: an absolute path that exists.
    ///
    /// Example: `host_path = "/srv/data"`
    pub host_path: PathBuf,

    /// Where sandboxes see it: an absolute path, not at or below a place of Sandgate's own (`/mnt/user-data`,
    /// `/mnt/acp-workspace`, the skills, `/tmp`, `/proc`, `/dev`).
    ///
    /// Example: `container_path = "/mnt/data"`
    pub container_path: String,

    /// Whether sandboxes can't change anything in it.
    /// Default: false.
    ///
    /// Example: `read_only = true`
    #[serde(default)]
    pub read_only: bool,
}

impl Default for Config {
    /// What the gateway runs with if there is no file: the built-in local provider, isolated by namespaces.
    fn default() -> Self {
        Self {
            default_provider: ProviderName::local(),
            gateway: GatewayConfig::default(),
            engine: EngineConfig::default(),
            environment: EnvironmentConfig::default(),
            skills: SkillsConfig::default(),
            mounts: Vec::new(),
            ownership: None,
            providers: IndexMap::from([(ProviderName::local(), ProviderConfig::builtin_local())]),
        }
    }
}
