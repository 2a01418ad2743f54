//! What an operator allows, what a provider asks for, and whether the one covers the other.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::env_policy::check_injected;
use crate::error::{Error, Result};
use crate::ids::ProviderName;
use crate::mounts::VirtualPath;

/// How long a command may run if nobody says otherwise: long enough for a build or a test suite, short enough that a
/// forgotten prompt does not hold a sandbox for ever.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);

/// How far a command is kept from the machine that it runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Isolation {
    /// Namespaces of its own (bubblewrap): it sees the mounts of its sandbox at their virtual paths, the system's
    /// programs read-only, no other process, no network unless granted, and nothing else.
    #[default]
    Namespace,
    /// None: it runs as the gateway's user and sees all that this user sees. Virtual paths are translated in its
    /// arguments and its output. A command that leaves its process group is not found again.
    None,
}

/// Limits that the kernel enforces; none: the gateway's own limit. Those on memory and processes are of one command with
/// all its processes where the gateway may make control groups of version 2: below its own, if that was delegated to it,
/// and as root also below the root. Elsewhere the kernel's older limits have to do, and all others always are: per process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResourceLimits {
    /// Memory, in MiB. In a control group: what all processes of the command use together, with the files that they
    /// write to a `/tmp` in memory; at the limit the kernel kills one of them, and standard error says so. Else: address
    /// space of each process, where more fails in the program (malloc gives nothing).
    pub memory_mib: Option<u64>,
    /// CPU time of each process, in seconds; then it is killed.
    pub cpu_seconds: Option<u64>,
    /// Processes and threads. In a control group: of the command. Else, with isolation `namespace`: of the command as well;
    /// with `none`: of the gateway's user together. Without control groups the kernel does not count those of root, so a
    /// gateway that runs as root then refuses to start commands with this limit.
    pub processes: Option<u64>,
    /// Size of each file that is written, in MiB; a write beyond it ends the process with SIGXFSZ.
    pub file_size_mib: Option<u64>,
    /// Open files of each process.
    pub open_files: Option<u64>,
}

/// What `[providers.NAME.grants.process]` allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessGrant {
    /// Programs by bare name, found on the `PATH` that commands get. Empty: none.
    pub programs: Vec<String>,
    /// The isolation profile.
    pub isolation: Isolation,
    /// Isolation `namespace` only: commands share the gateway's network. False: they have a loopback of their own.
    pub network: bool,
    /// For requests that name no timeout; none: no limit. Defaults to [`DEFAULT_TIMEOUT`].
    pub default_timeout: Option<Duration>,
    /// The longest timeout that a request may ask for; none: any, and "no limit" as well.
    pub max_timeout: Option<Duration>,
    /// The most bytes of output that a command delivers, head and tail (at most 8 MiB); none: no limit. A request can only ask
    /// for less.
    pub output_limit: Option<u64>,
    /// Limits of the kernel.
    pub limits: ResourceLimits,
    /// Isolation `namespace` only: more directories or files of the host that commands can read, at the same paths.
    /// Absolute; `/usr` and what belongs to it is visible anyway.
    pub system_paths: Vec<PathBuf>,
    /// Where bubblewrap is; none: `bwrap` on the gateway's `PATH`.
    pub bwrap: Option<PathBuf>,
}

impl Default for ProcessGrant {
    fn default() -> Self {
        Self {
            programs: Vec::new(),
            isolation: Isolation::default(),
            network: false,
            default_timeout: Some(DEFAULT_TIMEOUT),
            max_timeout: None,
            output_limit: None,
            limits: ResourceLimits::default(),
            system_paths: Vec::new(),
            bwrap: None,
        }
    }
}

/// What a provider asks for.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct SpawnRequest {
    /// A name from the grant's programs, without a path.
    pub program: String,
    /// Its arguments, without its own name.
    pub args: Vec<String>,
    /// Added to what the environment policy lets through; these win.
    pub env: BTreeMap<String, String>,
    /// Where it starts; none: the workspace.
    pub cwd: Option<VirtualPath>,
    /// None: the grant's default; zero: no limit, if the grant has none.
    pub timeout: Option<Duration>,
    /// Keep so many bytes of output, head and tail. The grant's limit holds as well.
    pub output_limit: Option<u64>,
}

/// Shows neither values of the environment nor arguments: both may hold secrets.
impl std::fmt::Debug for SpawnRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpawnRequest")
            .field("program", &self.program)
            .field("args", &self.args.len())
            .field("env", &self.env.keys())
            .field("cwd", &self.cwd)
            .field("timeout", &self.timeout)
            .field("output_limit", &self.output_limit)
            .finish()
    }
}

impl ProcessGrant {
    /// Checks a request before anything is started.
    pub(super) fn check(&self, provider: &ProviderName, request: &SpawnRequest) -> Result<()> {
        if !self.programs.contains(&request.program) {
            return Err(Error::capability_denied(format!(
                "program {:?} is not granted to provider {provider}",
                request.program
            ))
            .hint(format!("an operator can add it to providers.{provider}.grants.process.programs")));
        }
        if let Some(at) = request.args.iter().position(|arg| arg.contains('\0')) {
            return Err(Error::invalid_argument(format!("argument {} of {:?} holds a NUL", at + 1, request.program)));
        }
        check_injected(&request.env)
    }

    /// The timeout that a request gets; none: no limit.
    pub(super) fn timeout(&self, provider: &ProviderName, asked: Option<Duration>) -> Result<Option<Duration>> {
        let Some(asked) = asked else {
            return Ok(match (self.default_timeout, self.max_timeout) {
                (Some(default), Some(max)) => Some(default.min(max)),
                (default, max) => default.or(max),
            });
        };
        let asked = (!asked.is_zero()).then_some(asked);
        match self.max_timeout {
            Some(max) if asked.is_none_or(|asked| asked > max) => Err(Error::invalid_argument(format!(
                "a timeout of {} is more than the {} that provider {provider} is granted",
                asked.map_or_else(|| "0 (no limit)".to_owned(), seconds),
                seconds(max)
            ))
            .hint(format!("ask for less, or raise providers.{provider}.grants.process.max_timeout_seconds"))),
            _ => Ok(asked),
        }
    }

    /// The output limit that a request gets; none: no limit.
    pub(super) fn output_limit(&self, asked: Option<u64>) -> Option<u64> {
        match (asked, self.output_limit) {
            (Some(asked), Some(granted)) => Some(asked.min(granted)),
            (asked, granted) => asked.or(granted),
        }
    }
}

/// A duration as people write it: `1 second`, `1.5 seconds`.
pub(super) fn seconds(duration: Duration) -> String {
    let value = duration.as_secs_f64();
    format!("{value} second{}", if duration == Duration::from_secs(1) { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    fn provider() -> ProviderName {
        ProviderName::new("local").unwrap()
    }

    #[test]
    fn a_program_that_is_not_granted_is_denied_by_its_key() {
        let grant = ProcessGrant { programs: vec!["bash".into()], ..ProcessGrant::default() };
        for program in ["sh", "", "/bin/bash", "../bash", "bash "] {
            let request = SpawnRequest { program: program.into(), ..SpawnRequest::default() };
            let error = grant.check(&provider(), &request).unwrap_err();
            assert_eq!(error.code(), Code::CapabilityDenied);
            assert!(error.to_string().contains("providers.local.grants.process.programs"), "{error}");
        }
    }

    #[test]
    fn a_request_can_only_ask_for_less_time() {
        let max = |max, default| ProcessGrant { max_timeout: max, default_timeout: default, ..ProcessGrant::default() };
        let second = Duration::from_secs(1);
        let bounded = max(Some(second * 60), Some(second * 600));
        assert_eq!(bounded.timeout(&provider(), None).unwrap(), Some(second * 60));
        assert_eq!(bounded.timeout(&provider(), Some(second)).unwrap(), Some(second));
        for over in [second * 61, Duration::ZERO] {
            let error = bounded.timeout(&provider(), Some(over)).unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument);
            assert!(error.to_string().contains("60 seconds"), "{error}");
        }
        let free = max(None, Some(second * 600));
        assert_eq!(free.timeout(&provider(), None).unwrap(), Some(second * 600));
        assert_eq!(free.timeout(&provider(), Some(Duration::ZERO)).unwrap(), None);
        assert_eq!(free.timeout(&provider(), Some(Duration::MAX)).unwrap(), Some(Duration::MAX));
    }

    #[test]
    fn output_limits_combine_to_the_smaller() {
        let grant = ProcessGrant { output_limit: Some(10), ..ProcessGrant::default() };
        assert_eq!([None, Some(5), Some(20)].map(|asked| grant.output_limit(asked)), [Some(10), Some(5), Some(10)]);
    }

    #[test]
    fn a_request_shows_no_secrets() {
        let request = SpawnRequest {
            args: vec!["s3cret".into()],
            env: BTreeMap::from([("NAME".into(), "s3cret".into())]),
            ..SpawnRequest::default()
        };
        let text = format!("{request:?}");
        assert!(text.contains("NAME") && !text.contains("s3cret"), "{text}");
    }
}
