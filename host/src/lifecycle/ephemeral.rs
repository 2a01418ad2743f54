//! Providers whose sandboxes cost nothing to make and end with this gateway: no leases, no probes, no round trips.
//!
//! They are lent, parked and taken back in memory; the one that was parked first makes room for a new one.

use std::sync::Arc;

use super::manager::Inner;
use super::slot::{Hold, Origin, Phase, Slot};
use crate::error::Result;
use crate::ids::Scope;
use crate::runtime::within;

impl Inner {
    pub(super) async fn acquire_ephemeral(self: Arc<Self>, scope: &Scope) -> Result<Hold> {
        let slot = self.slot(&self.id_of(scope));
        let turn = slot.enter(&self.guards).await;
        let result = self.acquire_ephemeral_in(&slot, scope).await;
        drop(turn);
        self.tidy(slot);
        result
    }

    async fn acquire_ephemeral_in(self: &Arc<Self>, slot: &Arc<Slot>, scope: &Scope) -> Result<Hold> {
        if self.is_closing() {
            return Err(self.shutting_down());
        }
        if let Some(hold) = self.hold_known(slot, scope)? {
            return Ok(hold);
        }
        let permit = self.reserve_here().await?;
        let wanted = self.prepare(&slot.id, scope).await?;
        let create = self.backend.create(&wanted);
        let record = within(&*self.runtime, self.settings.deadlines.create, "the backend", create).await?;
        let tenancy = self.tenancy(wanted, record, Origin::Made);
        Ok(self.hand_out(slot, tenancy, Some(permit)))
    }

    /// What is known costs no task and no turn.
    pub(super) fn hold_at_once(self: &Arc<Self>, scope: &Scope) -> Result<Option<Hold>> {
        let slot = self.slots.read().get(&self.id_of(scope)).cloned();
        match slot {
            Some(slot) if !self.is_closing() => self.hold_known(&slot, scope),
            _ => Ok(None),
        }
    }

    /// What is here already, lent or parked.
    fn hold_known(self: &Arc<Self>, slot: &Arc<Slot>, scope: &Scope) -> Result<Option<Hold>> {
        let mut state = slot.state.lock();
        let Some(tenancy) = state.phase.settled().cloned() else { return Ok(None) };
        Self::check_identity(&tenancy.instance, scope)?;
        if matches!(state.phase, Phase::Warm(..)) {
            state.move_to(Phase::Active(Arc::clone(&tenancy)));
        }
        Ok(Some(Hold::new(self, slot, &mut state, &tenancy)))
    }

    /// Parks what nobody holds any more.
    pub(super) fn park_ephemeral(&self, slot: &Slot) {
        let mut state = slot.state.lock();
        let Phase::Active(tenancy) = &state.phase else { return };
        if state.holds > 0 || state.detached > 0 {
            return;
        }
        let tenancy = Arc::clone(tenancy);
        state.move_to(Phase::Warm(tenancy, self.runtime.now()));
        drop(state);
        self.capacity.ring();
    }
}
