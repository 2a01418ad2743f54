//! Releasing: the last consumer parks the sandbox.

use std::sync::Arc;

use futures::FutureExt;
use tokio::sync::oneshot;

use super::manager::{Inner, Lifecycle};
use super::slot::{Phase, Slot};
use crate::ids::SandboxId;

impl Lifecycle {
    /// Releases one consumer that [`detached`](super::Hold::detach) its hold, and waits until the sandbox is parked if
    /// it was the last. Never fails; an id that nobody holds here is nothing to do.
    pub async fn release(&self, id: &SandboxId) {
        let Some(slot) = self.inner.slots.read().get(id).cloned() else { return };
        let last = {
            let mut state = slot.state.lock();
            if state.detached == 0 {
                return;
            }
            state.detached -= 1;
            state.detached == 0 && state.holds == 0
        };
        if last && let Some(parked) = self.inner.park_later(&slot) {
            // The task was ended with its runtime; there is nobody left to tell.
            let _ = parked.await;
        }
    }
}

impl Inner {
    /// Ends one [`Hold`](super::Hold); the receiver resolves when the sandbox is parked, if this was the last.
    pub(super) fn drop_hold(self: &Arc<Self>, slot: &Arc<Slot>) -> Option<oneshot::Receiver<()>> {
        let last = {
            let mut state = slot.state.lock();
            state.holds = state.holds.saturating_sub(1);
            state.last_used = self.runtime.now();
            state.holds == 0 && state.detached == 0
        };
        if last { self.park_later(slot) } else { None }
    }

    fn park_later(self: &Arc<Self>, slot: &Arc<Slot>) -> Option<oneshot::Receiver<()>> {
        if self.features.ephemeral && !self.is_closing() {
            self.park_ephemeral(slot);
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        let (inner, slot) = (Arc::clone(self), Arc::clone(slot));
        let task = async move {
            let turn = slot.enter(&inner.guards).await;
            inner.park(&slot).await;
            drop(turn);
            inner.tidy(slot);
            let _ = sender.send(());
        };
        self.runtime.spawn(task.boxed());
        Some(receiver)
    }

    /// Parks what nobody holds any more. The caller holds the slot's lock.
    pub(super) async fn park(self: &Arc<Self>, slot: &Arc<Slot>) {
        let (tenancy, version) = {
            let mut state = slot.state.lock();
            let Phase::Active(tenancy) = &state.phase else { return };
            // Someone acquired it again before we had our turn.
            if state.holds > 0 || state.detached > 0 {
                return;
            }
            let tenancy = Arc::clone(tenancy);
            state.move_to(Phase::Warm(Arc::clone(&tenancy), self.runtime.now()));
            (tenancy, state.version)
        };
        self.capacity.ring();
        if self.is_closing() {
            // The shutdown takes every slot's turn, and has yet to come here.
            return;
        }
        self.extend(&tenancy.instance).await;
        self.refresh(slot, version).await;
    }
}
