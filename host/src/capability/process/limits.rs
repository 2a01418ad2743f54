//! How the kernel's limits are put on a command: by its control group where one can be had, else on each process.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use super::cgroup::{Cgroup, Cgroups};
use super::grant::ResourceLimits;
use crate::error::{Error, Result};
use crate::ids::ProviderName;

/// Bubblewrap's own processes, which are in a command's group and not the command's: the leader, and the first process of
/// the namespace.
const AROUND: u64 = 2;

/// The limits of one grant.
#[derive(Debug)]
pub(super) struct Limits {
    provider: ProviderName,
    limits: ResourceLimits,
    /// Looked for with the first command that needs it; what the machine offers does not change.
    cgroups: OnceLock<std::result::Result<Arc<Cgroups>, String>>,
    always: bool,
}

impl Limits {
    pub(super) fn new(provider: ProviderName, limits: ResourceLimits) -> Self {
        Self { provider, limits, cgroups: OnceLock::new(), always: false }
    }

    #[cfg(test)]
    pub(super) fn always_in(&mut self, cgroups: Arc<Cgroups>) {
        self.cgroups = OnceLock::from(Ok(cgroups));
        self.always = true;
    }

    /// The control group of a command that is about to start; none: it needs none, or there are none here.
    pub(super) fn cgroup(&self, namespace: bool) -> Result<Option<Cgroup>> {
        let limits = &self.limits;
        if limits.memory_mib.is_none() && limits.processes.is_none() && !self.always {
            return Ok(None);
        }
        let cgroups = self.cgroups.get_or_init(|| {
            Cgroups::of_this_process().inspect_err(|why| {
                tracing::warn!(provider = %self.provider, why, "limits on memory and processes are put on each process");
            })
        });
        let Ok(cgroups) = cgroups else { return Ok(None) };
        if !cgroups.can(limits) && !self.always {
            return Ok(None);
        }
        let around = if namespace { AROUND } else { 0 };
        cgroups.make(limits, around).map(Some).map_err(|error| {
            Error::unavailable(format!("the command's control group can't be made: {error}"))
                .hint("the gateway's own control group was changed or removed; restart the gateway")
        })
    }

    /// The prefix that sets what the control group does not: inside of a namespace, so that bubblewrap is not counted.
    pub(super) fn push(
        &self,
        words: &mut Vec<OsString>,
        cgroup: Option<&Cgroup>,
        prlimit: impl FnOnce() -> Result<PathBuf>,
    ) -> Result<()> {
        let limits = &self.limits;
        let memory = limits.memory_mib.filter(|_| !cgroup.is_some_and(Cgroup::has_memory));
        let processes = limits.processes.filter(|_| !cgroup.is_some_and(Cgroup::has_pids));
        if processes.is_some() && rustix::process::geteuid().is_root() {
            let why = match self.cgroups.get() {
                Some(Err(why)) => why,
                _ => "control groups have no pids controller here",
            };
            let why = format!("the limit on processes can't be had while the gateway runs as root: {why}");
            return Err(Error::unavailable(why).hint(format!(
                "run the gateway as another user or with control groups of version 2 of its own (systemd: Delegate=yes), \
                 or remove providers.{}.grants.process.limits.processes",
                self.provider
            )));
        }
        let mib = |value: Option<u64>| value.map(|value| value.saturating_mul(1 << 20));
        let values = [
            ("as", mib(memory)),
            ("cpu", limits.cpu_seconds),
            ("nproc", processes),
            ("fsize", mib(limits.file_size_mib)),
            ("nofile", limits.open_files),
        ];
        let set: Vec<OsString> =
            values.into_iter().filter_map(|(name, value)| Some(format!("--{name}={}", value?).into())).collect();
        if !set.is_empty() {
            words.push(prlimit()?.into());
            words.extend(set);
            words.push("--".into());
        }
        Ok(())
    }
}
