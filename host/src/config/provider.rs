//! The keys of one provider: its component, what it is granted, its settings.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::LifecycleConfig;
use crate::capability::workspace::DEFAULT_MAX_WRITE;
use crate::trust::{ComponentSource, Sha256Pin};

/// What [`ProviderName`](crate::ids::ProviderName) accepts, for the JSON Schema.
pub(super) const PROVIDER_NAME_PATTERN: &str = "^[a-z][a-z0-9-]{0,31}$";

/// One sandbox provider: a WebAssembly component and what it may do.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProviderConfig {
    /// The component: "builtin:NAME" for one that comes with Sandgate, else a `.wasm` file; a relative path begins at
    /// this file's folder.
    ///
    /// Example: `component = "builtin:local"`
    pub component: ComponentSource,

    /// The sha256 of the component file, as 64 hex digits: a file with another one does not load.
    /// `sandgate provider inspect FILE` prints it.
    /// Default: none, so any content of the file is trusted.
    ///
    /// Example: `sha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Sha256Pin>,

    /// How long its sandboxes are kept, and how many there may be.
    #[serde(default, skip_serializing_if = "LifecycleConfig::is_empty")]
    pub lifecycle: LifecycleConfig,

    /// What the component may do. A table that is absent is not granted.
    #[serde(default)]
    pub grants: Grants,

    /// The provider's own settings; the component receives them as JSON.
    #[serde(default, skip_serializing_if = "Settings::is_empty")]
    pub settings: Settings,
}

impl ProviderConfig {
    /// A provider with a component and nothing granted.
    pub fn new(component: ComponentSource) -> Self {
        Self {
            component,
            sha256: None,
            lifecycle: LifecycleConfig::default(),
            grants: Grants::default(),
            settings: Settings::default(),
        }
    }

    /// The built-in local provider: commands in namespaces of this host, and the sandbox's files.
    pub fn builtin_local() -> Self {
        let grants = Grants {
            process: Some(ProcessGrant::default()),
            workspace: Some(WorkspaceGrant::default()),
            ..Grants::default()
        };
        Self { grants, ..Self::new(ComponentSource::Builtin("local".to_owned())) }
    }
}

/// What a component may do. A capability that is absent is not granted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Grants {
    /// Run programs on this host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessGrant>,

    /// Read and write the files of the sandbox that a call is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceGrant>,

    /// The usual WASI interfaces (clocks, random numbers, an empty environment, output into the gateway's log), for
    /// components that were not written for Sandgate alone: no files, no sockets, no variables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wasi: Option<WasiGrant>,
}

/// How a program on this host is kept apart from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// Own namespaces (bubblewrap): it sees its mounts and `system_paths`, nothing else of this host.
    #[default]
    Namespace,
    /// None: it can do whatever the gateway's user can.
    None,
}

/// Permission to run programs on this host.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProcessGrant {
    /// The programs that the component may start: names without a path, looked up on the `PATH`. What they start in turn
    /// is bounded by the isolation, not by this list.
    /// Default: ["bash"].
    ///
    /// Example: `programs = ["bash", "python3"]`
    #[schemars(length(min = 1))]
    pub programs: Vec<String>,

    /// "namespace": each command runs in namespaces of its own (needs bubblewrap) and sees its mounts and
    /// `system_paths`, nothing else of this host. "none": a command can do whatever the gateway's user can; refused
    /// unless `allow_unconfined_commands_on_this_host` is true.
    /// Default: "namespace".
    ///
    /// Example: `isolation = "namespace"`
    pub isolation: Isolation,

    /// The consent that `isolation = "none"` needs: agents run commands as the gateway's user, with all its rights.
    /// Default: false.
    ///
    /// Example: `allow_unconfined_commands_on_this_host = true`
    pub allow_unconfined_commands_on_this_host: bool,

    /// Whether commands reach the network. With isolation "none" they do whatever this says, so it must be true then.
    /// Default: false.
    ///
    /// Example: `network = true`
    pub network: bool,

    /// How long a command runs that says nothing about it, in seconds: 1 to 604800.
    /// Default: 600.
    ///
    /// Example: `timeout_seconds = 120`
    #[schemars(range(min = 1, max = 604_800))]
    pub timeout_seconds: u64,

    /// The longest time that a command may ask for, in seconds: `timeout_seconds` to 604800. One that asks for more, or
    /// for no limit, is refused.
    /// Default: none, so a command may ask for any time, and for no limit.
    ///
    /// Example: `max_timeout_seconds = 3600`
    #[schemars(range(min = 1, max = 604_800))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_timeout_seconds: Option<u64>,

    /// The most output that one command delivers, in bytes (its head and its tail; what lies between is counted):
    /// 1024 to 1099511627776.
    /// Default: none, so all of it. Output streams, and a reader that is slow stops the command, so it costs no memory.
    ///
    /// Example: `output_limit = 1048576`
    #[schemars(range(min = 1024, max = 1_099_511_627_776_u64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_limit: Option<u64>,

    /// What the processes of one command may use.
    pub limits: ProcessLimits,

    /// More files and directories of this host that a command in namespaces sees read-only, at the same place: absolute paths.
    /// It sees `/usr`, `/bin`, `/sbin`, `/lib…` and what programs need of `/etc` (certificates, time zone, …) anyway, and nothing
    /// that tells of this host's users, services or secrets. Those that this host lacks are left out.
    /// Default: [].
    ///
    /// Example: `system_paths = ["/opt/tools"]`
    pub system_paths: Vec<PathBuf>,
}

impl ProcessGrant {
    /// How long a command runs that says nothing about it.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds)
    }

    /// The longest time that a command may ask for; none: any.
    pub fn max_timeout(&self) -> Option<Duration> {
        self.max_timeout_seconds.map(Duration::from_secs)
    }
}

impl Default for ProcessGrant {
    fn default() -> Self {
        Self {
            programs: vec!["bash".to_owned()],
            isolation: Isolation::Namespace,
            allow_unconfined_commands_on_this_host: false,
            network: false,
            // As in the system that Sandgate takes over from.
            timeout_seconds: 600,
            max_timeout_seconds: None,
            output_limit: None,
            limits: ProcessLimits::default(),
            system_paths: Vec::new(),
        }
    }
}

/// What the processes of one command may use. The limits on memory and processes hold for all processes of a command
/// together where the gateway may make control groups of version 2: below its own if nothing else runs in it (systemd:
/// `Delegate=yes`), and as root also below the root. Elsewhere they hold for each process, as the others always do.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProcessLimits {
    /// The memory of one command, in MiB: 16 to 1048576. At the limit the kernel kills one of its processes (exit code 137),
    /// and a line on its standard error says so. Without control groups: the address space of each process, of which some
    /// language runtimes reserve far more than they use.
    /// Default: none, so no limit.
    ///
    /// Example: `memory_mib = 4096`
    #[schemars(range(min = 16, max = 1_048_576))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,

    /// The CPU time of one process, in seconds: 1 to 604800.
    /// Default: none; the command's timeout ends it.
    ///
    /// Example: `cpu_seconds = 300`
    #[schemars(range(min = 1, max = 604_800))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<u64>,

    /// The processes and threads of one command: 1 to 1000000. Without control groups the kernel does not count those of
    /// root, so a gateway that runs as root then refuses to start commands with this limit.
    /// Default: none.
    ///
    /// Example: `processes = 256`
    #[schemars(range(min = 1, max = 1_000_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,

    /// The largest file that a process may write, in MiB: 1 to 1048576.
    /// Default: none.
    ///
    /// Example: `file_size_mib = 512`
    #[schemars(range(min = 1, max = 1_048_576))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_size_mib: Option<u64>,

    /// The files that one process has open: 16 to 1048576.
    /// Default: none, so the gateway's own limit.
    ///
    /// Example: `open_files = 4096`
    #[schemars(range(min = 16, max = 1_048_576))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
}

/// Permission to read and write the files of the sandbox that a call is about.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WorkspaceGrant {
    /// The largest file that one write may make, in MiB: 1 to 1048576.
    /// Default: 1024.
    ///
    /// Example: `max_write_mib = 100`
    #[schemars(range(min = 1, max = 1_048_576))]
    pub max_write_mib: u64,
}

impl WorkspaceGrant {
    /// The largest file that one write may make, in bytes.
    pub fn max_write_bytes(&self) -> u64 {
        self.max_write_mib << 20
    }
}

impl Default for WorkspaceGrant {
    fn default() -> Self {
        // Contents stream, so the limit guards the disk, not memory.
        Self { max_write_mib: DEFAULT_MAX_WRITE >> 20 }
    }
}

/// Permission to use the usual WASI interfaces, without files, sockets or variables.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WasiGrant {}

/// A provider's own settings. They may hold secrets, so printing them shows the names only.
#[derive(Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Settings(serde_json::Map<String, serde_json::Value>);

impl Settings {
    /// Wraps settings.
    pub fn new(map: serde_json::Map<String, serde_json::Value>) -> Self {
        Self(map)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The settings, secrets included: for the component, never for a message.
    pub fn expose(&self) -> &serde_json::Map<String, serde_json::Value> {
        &self.0
    }

    /// The settings as the JSON text that the component receives, secrets included.
    pub fn expose_json(&self) -> String {
        serde_json::Value::Object(self.0.clone()).to_string()
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
