//! What there is, for people and metrics.

use std::time::Duration;

use serde::Serialize;

use super::manager::Lifecycle;
use super::slot::Phase;
use crate::ids::{SandboxId, Scope};

/// A slot's phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum PhaseName {
    Vacant,
    Creating,
    Active,
    Warm,
    TearingDown,
}

/// One sandbox of this gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SandboxStatus {
    /// Its id.
    pub id: SandboxId,
    /// Whose it is, if that is known.
    pub scope: Option<Scope>,
    /// What it is doing.
    pub phase: PhaseName,
    /// Consumers.
    pub holds: u32,
    /// Running operations.
    pub operations: u32,
    /// Time since it was last used.
    pub idle: Duration,
    /// It will be stopped and is not handed out any more.
    pub doomed: bool,
}

impl Lifecycle {
    /// Every sandbox that this gateway has in its books, by id. Who owns which lease says
    /// [`Store::owner`](crate::ownership::Store::owner).
    pub fn list(&self) -> Vec<SandboxStatus> {
        let now = self.inner.runtime.now();
        let of = |slot: &super::slot::Slot| {
            let state = slot.state.lock();
            let (phase, tenancy) = match &state.phase {
                Phase::Vacant => (PhaseName::Vacant, None),
                Phase::Creating => (PhaseName::Creating, None),
                Phase::Active(tenancy) => (PhaseName::Active, Some(tenancy)),
                Phase::Warm(tenancy, _) => (PhaseName::Warm, Some(tenancy)),
                Phase::TearingDown(tenancy) => (PhaseName::TearingDown, Some(tenancy)),
            };
            SandboxStatus {
                id: slot.id.clone(),
                scope: tenancy.and_then(|tenancy| tenancy.instance.scope.clone()),
                phase,
                holds: state.holds + state.detached,
                operations: state.operations,
                idle: if state.operations > 0 { Duration::ZERO } else { now.saturating_sub(state.last_used) },
                doomed: tenancy.is_some_and(|tenancy| tenancy.doomed),
            }
        };
        let slots = self.inner.all_slots();
        slots
            .iter()
            .map(|slot| of(slot))
            .filter(|status| status.phase != PhaseName::Vacant || status.operations > 0)
            .collect()
    }

    /// How many places are taken: active, parked, being made, and not certainly gone.
    pub fn used(&self) -> u32 {
        self.inner.capacity.used()
    }
}
