//! What a store knows: which call it runs, for whom, and what its provider was granted.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::oneshot;
use wasmtime::component::{HasData, ResourceTable};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

use super::deadline::Deadline;
use super::limits::{CpuMeter, Limiter};
use crate::capability::process::Processes;
use crate::capability::workspace::{Limits as WorkspaceLimits, Workspace};
use crate::error::Error;
use crate::ids::{ProviderName, SandboxId};
use crate::mounts::MountTable;
use crate::rewrite::Redactor;

/// What a provider may use: the operator's grants, made ready.
#[derive(Debug)]
pub struct Granted {
    /// The provider's name in the configuration.
    pub provider: ProviderName,
    /// Spawning programs.
    pub process: Option<Processes>,
    /// The call's files.
    pub workspace: Option<WorkspaceLimits>,
    /// The usual WASI interfaces, without files, sockets and environment.
    pub wasi: bool,
    /// The provider's settings, as JSON.
    pub settings: String,
    /// How long making or stopping a sandbox may take, where that is longer than any other call may.
    pub slow_call_timeout: Duration,
}

/// Whose call it is.
#[derive(Debug, Clone)]
pub struct Target {
    /// The sandbox.
    pub sandbox: SandboxId,
    /// What it sees of the host's files.
    pub mounts: Arc<MountTable>,
}

/// The most log lines of one call.
const LOG_LINES: u32 = 1_000;

/// A store's data.
pub(super) struct CallState {
    pub(super) limiter: Limiter,
    pub(super) meter: Arc<CpuMeter>,
    pub(super) deadline: Arc<Deadline>,
    pub(super) granted: Arc<Granted>,
    pub(super) target: Option<Target>,
    pub(super) log_lines: u32,
    /// Streams that the guest makes for a capability; the instance must be run until they are closed.
    pub(super) open_streams: Vec<oneshot::Receiver<()>>,
    /// Takes what a command was given out of what the guest logs meanwhile.
    pub(super) secrets: Redactor,
    wasi: Option<Box<Wasi>>,
}

struct Wasi {
    ctx: WasiCtx,
    table: ResourceTable,
}

impl CallState {
    pub(super) fn new(limiter: Limiter, meter: Arc<CpuMeter>, deadline: Arc<Deadline>, granted: Arc<Granted>) -> Self {
        // An empty context: no files, no sockets, no environment, no arguments, no standard streams.
        let wasi =
            granted.wasi.then(|| Box::new(Wasi { ctx: WasiCtx::builder().build(), table: ResourceTable::new() }));
        Self {
            limiter,
            meter,
            deadline,
            granted,
            target: None,
            log_lines: LOG_LINES,
            open_streams: Vec::new(),
            secrets: Redactor::default(),
            wasi,
        }
    }

    /// Ready for another call of the same sandbox.
    pub(super) fn begin(&mut self, target: Option<&Target>) {
        self.target = target.cloned();
        self.log_lines = LOG_LINES;
        self.open_streams.clear();
        self.limiter.forget();
        self.deadline.touch();
    }

    pub(super) fn refused_memory(&self) -> Arc<AtomicBool> {
        self.limiter.refused()
    }

    /// The files of this call, for a capability that works on them.
    pub(super) fn workspace(&self) -> Result<Workspace, Error> {
        let limits = self.granted.workspace.ok_or_else(|| not_linked("workspace"))?;
        let target = self.target.as_ref().ok_or_else(|| no_sandbox("workspace"))?;
        Ok(Workspace::new(Arc::clone(&target.mounts), limits))
    }
}

/// The linker keeps this from happening; if it ever fails, nothing is done.
pub(super) fn not_linked(capability: &str) -> Error {
    Error::capability_denied(format!("the capability {capability} is not granted"))
}

/// A call that belongs to no sandbox (`describe`) has no files and starts no programs.
pub(super) fn no_sandbox(capability: &str) -> Error {
    Error::capability_denied(format!(
        "this call belongs to no sandbox, so the capability {capability} has nothing to work on"
    ))
}

impl WasiView for CallState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let wasi = self
            .wasi
            .get_or_insert_with(|| Box::new(Wasi { ctx: WasiCtx::builder().build(), table: ResourceTable::new() }));
        WasiCtxView { ctx: &mut wasi.ctx, table: &mut wasi.table }
    }
}

/// How the generated bindings find a call's state.
pub(super) struct Capabilities;

impl HasData for Capabilities {
    type Data<'a> = &'a mut CallState;
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::error::Code;
    use crate::mounts::VirtualPath;

    #[test]
    fn a_call_without_a_sandbox_or_a_grant_has_no_files() {
        let state = |workspace| {
            let granted = Granted {
                provider: ProviderName::new("acme").unwrap(),
                process: None,
                workspace,
                wasi: false,
                settings: String::new(),
                slow_call_timeout: Duration::ZERO,
            };
            let meter = CpuMeter::new(Duration::from_secs(1));
            let deadline = Deadline::new(Duration::from_secs(1), Arc::clone(&meter));
            CallState::new(Limiter::new(1, 1), meter, deadline, Arc::new(granted))
        };
        let sandbox = crate::ids::Scope::new("ann".parse().unwrap(), "one".parse().unwrap()).readable_id("acme");
        let mounts = Arc::new(MountTable::new(Vec::new(), VirtualPath::root()).unwrap());
        let target = Target { sandbox, mounts };

        let mut state_with = state(Some(WorkspaceLimits::default()));
        state_with.begin(None);
        let error = state_with.workspace().unwrap_err();
        assert!(error.code() == Code::CapabilityDenied && error.to_string().contains("no sandbox"), "{error}");
        state_with.begin(Some(&target));
        assert!(state_with.workspace().is_ok());
        state_with.begin(None);
        assert!(state_with.workspace().is_err(), "the next call has nothing of the one before");

        let mut state_without = state(None);
        state_without.begin(Some(&target));
        assert_eq!(state_without.workspace().unwrap_err().code(), Code::CapabilityDenied);
    }
}
