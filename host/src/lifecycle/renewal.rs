//! Keeping the leases of what we have, active and parked alike, whatever the idle timeout.
//!
//! Renewal fails open: a store that can't answer means *unknown*, and the sandbox is kept and tried again, forever.

use std::sync::Arc;

use futures::stream::{self, StreamExt};

use super::guards::Guard;
use super::manager::{Inner, Lifecycle};
use super::slot::{Phase, Slot};
use crate::ids::SandboxId;
use crate::ownership::{Purpose, Renewal};

/// Lapsed and lost leases looked after at once. After a store lost everything that is all of them.
const CONCURRENCY: usize = 64;

impl Lifecycle {
    /// Renews all leases once, in one pass over the store.
    pub async fn renew(&self) {
        self.inner.renew_all().await;
    }
}

impl Inner {
    pub(super) async fn renew_forever(self: Arc<Self>) {
        while self.rest(self.settings.lease.renewal_interval()).await {
            self.renew_all().await;
        }
    }

    async fn renew_all(self: &Arc<Self>) {
        let mut ours: Vec<(Arc<Slot>, u64)> = Vec::new();
        let mut ids: Vec<SandboxId> = Vec::new();
        for slot in self.all_slots() {
            let state = slot.state.lock();
            // A teardown keeps its own marker; a sandbox that is being made may take longer than a lease lasts.
            if matches!(state.phase, Phase::Creating | Phase::Active(_) | Phase::Warm(..)) {
                let version = state.version;
                drop(state);
                ids.push(slot.id.clone());
                ours.push((slot, version));
            }
        }
        if ids.is_empty() {
            return;
        }
        let outcomes = match self.store.renew(&ids).await {
            Ok(outcomes) => outcomes,
            Err(error) => {
                tracing::warn!(provider = %self.provider, leases = ids.len(), %error, "leases not renewed; trying again");
                return;
            }
        };
        let doubtful = ours.into_iter().zip(outcomes).filter(|(_, outcome)| *outcome != Renewal::Renewed);
        stream::iter(doubtful)
            .for_each_concurrent(CONCURRENCY, |((slot, version), outcome)| async move {
                self.settle(slot, version, outcome).await;
            })
            .await;
    }

    /// Acts on a renewal that did not go through, unless the slot moved since or is moving.
    async fn settle(self: &Arc<Self>, slot: Arc<Slot>, version: u64, outcome: Renewal) {
        let Some(turn) = slot.try_enter(&self.guards) else { return };
        self.judge(&slot, version, outcome).await;
        drop(turn);
        self.tidy(slot);
    }

    /// Renews one lease. The caller holds the slot's lock.
    pub(super) async fn refresh(self: &Arc<Self>, slot: &Arc<Slot>, version: u64) {
        match self.store.renew(std::slice::from_ref(&slot.id)).await.as_deref() {
            Ok([Renewal::Renewed]) => {}
            Ok([outcome]) => self.judge(slot, version, *outcome).await,
            Ok(_) => tracing::warn!(provider = %self.provider, sandbox = %slot.id, "its renewal was not answered"),
            Err(error) => {
                tracing::warn!(provider = %self.provider, sandbox = %slot.id, %error, "lease not renewed; trying again");
            }
        }
    }

    /// The caller holds the slot's lock; `version` is the slot's from before the store was asked.
    async fn judge(self: &Arc<Self>, slot: &Arc<Slot>, version: u64, outcome: Renewal) {
        let unchanged = || {
            let state = slot.state.lock();
            let same = state.version == version || !self.guards.hold(Guard::VersionCheck);
            same && state.phase.settled().is_some()
        };
        if !unchanged() {
            return;
        }
        let doomed = slot.state.lock().phase.settled().is_some_and(|tenancy| tenancy.doomed);
        let kept = match outcome {
            Renewal::Renewed | Renewal::Unknown => return,
            // It was never published, or its stop hung, and then the store forgot it. A peer may have it by now and be
            // just as forgotten: this one is for reconciliation, with its grace, not for us to claim and stop.
            Renewal::Lapsed if doomed && self.features.listable && self.store.sees_peers() => Ok(false),
            Renewal::Lapsed => self.store.claim(&slot.id, Purpose::Keep).await,
            Renewal::Lost => self.recover(&slot.id).await,
        };
        match kept {
            Ok(true) => {
                tracing::info!(provider = %self.provider, sandbox = %slot.id, "lease had lapsed; claimed it again")
            }
            Ok(false) if unchanged() => self.forget(slot, "a peer took it over"),
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(provider = %self.provider, sandbox = %slot.id, %error, "its lease is unknown; trying again");
            }
        }
    }

    /// A lost lease may be a marker of our own that a failed teardown could not take back. Anything else stays lost.
    async fn recover(&self, id: &SandboxId) -> crate::error::Result<bool> {
        if !self.left_over_marker(id).await? {
            return Ok(false);
        }
        self.store.release(id).await?;
        self.store.claim(id, Purpose::Keep).await
    }
}
