//! Stopping what nobody uses: idle ones after their time, the oldest parked one to make room.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt};

use super::manager::{Inner, Lifecycle};
use super::slot::{Phase, Slot};
use super::teardown::{Force, Stopped};

/// Stops under way at once: enough that one slow stop does not hold up the others, few enough for a backend to bear.
const CONCURRENCY: usize = 8;

impl Lifecycle {
    /// Stops what has been idle for too long, and what an earlier stop left behind.
    pub async fn reap(&self) {
        self.inner.reap_idle().await;
    }
}

impl Inner {
    pub(super) async fn maintain_forever(self: Arc<Self>) {
        loop {
            if self.features.listable {
                match self.reconcile().await {
                    Ok(report) => tracing::debug!(provider = %self.provider, ?report, "reconciled"),
                    Err(error) => tracing::warn!(provider = %self.provider, %error, "not reconciled; trying again"),
                }
            }
            self.reap_idle().await;
            self.extend_used().await;
            if !self.rest(self.settings.check_interval).await {
                return;
            }
        }
    }

    /// For a gateway that does nothing else for its sandboxes: what it uses must not end under it.
    pub(super) async fn extend_forever(self: Arc<Self>) {
        while self.rest(self.settings.check_interval).await {
            self.extend_used().await;
        }
    }

    pub(super) async fn reap_idle(self: &Arc<Self>) {
        stream::iter(self.all_slots())
            .for_each_concurrent(CONCURRENCY, |slot| async move {
                let Some(turn) = slot.try_enter(&self.guards) else { return };
                let stopped = self.teardown(&slot, Force::Idle(self.settings.idle_timeout)).await;
                drop(turn);
                match stopped {
                    Ok(Stopped::Yes) => {
                        tracing::info!(provider = %self.provider, sandbox = %slot.id, "idle for too long")
                    }
                    Ok(Stopped::Refused) => {
                        tracing::info!(provider = %self.provider, sandbox = %slot.id, "idle, but a peer's to stop");
                    }
                    Ok(Stopped::InUse | Stopped::NotHere) => {}
                    Err(error) => {
                        tracing::warn!(provider = %self.provider, sandbox = %slot.id, %error, "idle, but not stopped")
                    }
                }
                self.tidy(slot);
            })
            .await;
    }

    /// Stops the parked sandbox that was parked first, or the next that can be stopped. False if there is none.
    pub(super) async fn evict_oldest(self: &Arc<Self>) -> bool {
        let mut parked: Vec<(bool, Duration, Arc<Slot>)> = self
            .all_slots()
            .into_iter()
            .filter_map(|slot| {
                let state = slot.state.lock();
                let Phase::Warm(tenancy, since) = &state.phase else { return None };
                // What can't be handed out any more goes first.
                let key = (!tenancy.doomed, (*since).max(state.last_used));
                drop(state);
                Some((key.0, key.1, slot))
            })
            .collect();
        parked.sort_by_key(|(wanted, since, _)| (*wanted, *since));
        for (_, _, slot) in parked {
            // A busy one is being acquired or stopped already.
            let Some(turn) = slot.try_enter(&self.guards) else { continue };
            let stopped = self.teardown(&slot, Force::Parked).await;
            drop(turn);
            self.tidy(slot);
            if matches!(stopped, Ok(Stopped::Yes)) {
                return true;
            }
        }
        false
    }

    /// Pushes the end at the backend out for what is in use. Parked ones keep the one they were parked with.
    async fn extend_used(self: &Arc<Self>) {
        if !self.features.extendable {
            return;
        }
        let slots = self.all_slots().into_iter().filter(|slot| {
            let state = slot.state.lock();
            let held = state.in_use() || state.detached > 0;
            held && (matches!(state.phase, Phase::Active(_)) || state.lost.is_some())
        });
        stream::iter(slots)
            .for_each_concurrent(CONCURRENCY, |slot| async move {
                let Some(turn) = slot.try_enter(&self.guards) else { return };
                let used = {
                    let state = slot.state.lock();
                    match (&state.phase, &state.lost) {
                        (Phase::Active(tenancy), _) => Some(Arc::clone(tenancy)),
                        (_, lost) => lost.as_ref().map(|lost| Arc::clone(&lost.tenancy)),
                    }
                };
                if let Some(tenancy) = used {
                    self.extend(&tenancy.instance).await;
                }
                drop(turn);
            })
            .await;
    }
}
