//! What ended a guest, in words for its author and its user.

use std::sync::atomic::Ordering;

use wasmtime::Trap;

use super::limits::{CpuSpent, out_of_memory};
use super::state::CallState;
use super::streams::SourceBroke;
use crate::error::{Code, Error};

/// Who failed at what.
#[derive(Debug, Clone)]
pub(super) struct Blame {
    /// The provider's name in the configuration and its own version.
    pub(super) provider: String,
    pub(super) operation: &'static str,
}

impl Blame {
    /// The error for a call that wasmtime ended.
    pub(super) fn failure(&self, error: &wasmtime::Error, state: &CallState) -> Error {
        let Self { provider, operation } = self;
        tracing::debug!(provider, operation, ?error, "the guest failed");
        let begin = format!("provider {provider} failed in {operation}");
        if let Some(SourceBroke(cause)) = error.downcast_ref::<SourceBroke>() {
            return cause.clone();
        }
        if let Some(spent) = error.downcast_ref::<CpuSpent>() {
            return Error::new(Code::GuestCpu, format!("{begin}: {spent}"))
                .hint("it computes without end, or engine.cpu_ms is too low for it");
        }
        if state.limiter.starved || out_of_memory(error) {
            return Error::new(
                Code::Busy,
                format!("the gateway has no memory or address space left for {operation} of provider {provider}"),
            )
            .hint(
                "this is not the provider's fault: raise the limit on address space (ulimit -v, systemd LimitAS=), or lower \
                 engine.max_instances; try again when other calls have ended",
            )
            .retry_after_ms(1000);
        }
        if state.refused_memory().load(Ordering::Relaxed) {
            let limit = state.limiter.memory >> 20;
            return Error::new(
                Code::GuestMemory,
                format!(
                    "{begin}: it wanted more than {limit} MiB of memory or {} table elements",
                    state.limiter.table_elements
                ),
            )
            .hint("it grows without end, or engine.memory_limit_mib is too low for it");
        }
        match error.downcast_ref::<Trap>() {
            Some(Trap::StackOverflow) => Error::new(Code::GuestTrap, format!("{begin}: it recursed too deeply"))
                .hint("this is a bug of the provider, or engine.stack_kib is too low for it"),
            Some(trap) => Error::new(Code::GuestTrap, format!("{begin}: {trap}"))
                .hint("this is a bug of the provider; run with RUST_LOG=sandgate=debug for its backtrace"),
            None => Error::new(Code::GuestProtocol, format!("{begin}: {}", error.root_cause()))
                .hint("this is a bug of the provider; run with RUST_LOG=sandgate=debug for the details"),
        }
    }

    /// The error for a call without a sign of life.
    pub(super) fn timeout(&self, limit: std::time::Duration) -> Error {
        let Self { provider, operation } = self;
        Error::timeout(format!("provider {provider} gave no sign of progress in {operation} for {limit:?}"))
            .hint("its backend may hang; engine.call_timeout_seconds is the limit")
    }
}
