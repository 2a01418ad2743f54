//! Keeping the leases of what we have, active and parked alike, whatever the idle timeout.
//!
//! Renewal fails open: a store that can't answer means *unknown*, and the sandbox is kept and tried again, forever.

use std::sync::Arc;

use futures::stream::{self, StreamExt};

use super::guards::Guard;
use super::manager::{Inner, Lifecycle};
use super::slot::{Lost, Phase, Slot};
use crate::error::Result;
use crate::ids::SandboxId;
use crate::instance::Liveness;
use crate::ownership::{Lease, LeaseState, Purpose, Renewal};
use crate::runtime::within;

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
        let mut lost: Vec<Arc<Slot>> = Vec::new();
        for slot in self.all_slots() {
            let state = slot.state.lock();
            // A teardown keeps its own marker; a sandbox that is being made may take longer than a lease lasts.
            if matches!(state.phase, Phase::Creating | Phase::Active(_) | Phase::Warm(..)) {
                let version = state.version;
                drop(state);
                ids.push(slot.id.clone());
                ours.push((slot, version));
            } else if state.lost.is_some() {
                drop(state);
                lost.push(slot);
            }
        }
        if !ids.is_empty() {
            self.renew_these(ours, &ids).await;
        }
        stream::iter(lost).for_each_concurrent(CONCURRENCY, |slot| self.regain(slot)).await;
    }

    async fn renew_these(self: &Arc<Self>, ours: Vec<(Arc<Slot>, u64)>, ids: &[SandboxId]) {
        let outcomes = match self.store.renew(ids).await {
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
            Renewal::Lost => self.recover(&slot.id, doomed).await,
        };
        match kept {
            // Its marker is as it was.
            Ok(true) if doomed => {}
            Ok(true) => {
                tracing::info!(provider = %self.provider, sandbox = %slot.id, "lease had lapsed; claimed it again")
            }
            Ok(false) if unchanged() => self.lose(slot),
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(provider = %self.provider, sandbox = %slot.id, %error, "its lease is unknown; trying again");
            }
        }
    }

    /// A lost lease may be a marker of our own: one that a failed teardown could not take back, or that of a stop that may
    /// still land, which stays. Or it is lost no more.
    async fn recover(&self, id: &SandboxId, doomed: bool) -> Result<bool> {
        if doomed {
            return Ok(self.marked_by_us(id).await? && self.store.claim(id, Purpose::Destroy).await?);
        }
        Ok(self.nothing_in_the_way(id).await? && self.store.claim(id, Purpose::Keep).await?)
    }

    /// Whether the lease is a `del:` of our own.
    pub(super) async fn marked_by_us(&self, id: &SandboxId) -> Result<bool> {
        Ok(self.store.owner(id).await?.is_some_and(|lease| self.is_our_marker(&lease)))
    }

    fn is_our_marker(&self, lease: &Lease) -> bool {
        lease.owner == *self.store.me() && lease.state == LeaseState::Destroying
    }

    /// Whether what kept us from the lease is gone: nobody has it any more, or it was a `del:` of our own, which is cleared.
    /// Only meaningful under the slot's lock, outside of a teardown.
    pub(super) async fn nothing_in_the_way(&self, id: &SandboxId) -> Result<bool> {
        match self.store.owner(id).await? {
            None => Ok(true),
            Some(lease) if self.is_our_marker(&lease) => {
                self.store.release(id).await?;
                Ok(true)
            }
            Some(_) => Ok(false),
        }
    }

    /// Lets go of what a peer took over. Who uses it here goes on; if the peer lets go of it first, they need us again.
    fn lose(&self, slot: &Slot) {
        let in_use = {
            let state = slot.state.lock();
            state.phase.settled().filter(|tenancy| !tenancy.doomed && state.in_use()).cloned()
        };
        self.forget(slot, "a peer took it over");
        slot.state.lock().lost = in_use.map(|tenancy| Lost { tenancy, unowned: None });
    }

    /// Takes back what is in use here and nobody owns any more: else nobody would ever stop it.
    async fn regain(self: &Arc<Self>, slot: Arc<Slot>) {
        let Some(turn) = slot.try_enter(&self.guards) else { return };
        if !self.is_closing()
            && let Err(error) = self.regain_in(&slot).await
        {
            tracing::warn!(provider = %self.provider, sandbox = %slot.id, %error, "in use, and its lease is unknown; trying again");
        }
        drop(turn);
        self.tidy(slot);
    }

    /// The caller holds the slot's lock.
    async fn regain_in(self: &Arc<Self>, slot: &Arc<Slot>) -> Result<()> {
        let lost = {
            let mut state = slot.state.lock();
            if !state.in_use() {
                state.lost = None;
            }
            state.lost.clone()
        };
        let Some(Lost { tenancy, unowned }) = lost else { return Ok(()) };
        let now = self.runtime.now();
        let free = self.store.owner(&slot.id).await.map(|lease| lease.is_none());
        let since = unowned.unwrap_or(now);
        if let Some(lost) = &mut slot.state.lock().lost {
            lost.unowned = matches!(free, Ok(true)).then_some(since);
        }
        // After a store lost everything, a peer that has it is as invisible as one that let go, until it renews.
        if !free? || now.saturating_sub(since) < self.settings.lease.renewal_interval() {
            return Ok(());
        }
        let probe = self.backend.probe(&tenancy.instance);
        let alive = within(&*self.runtime, self.settings.deadlines.probe, "the probe", probe).await;
        if matches!(alive, Ok(Liveness::Dead)) {
            slot.state.lock().lost = None;
            return Ok(());
        }
        if !self.store.claim(&slot.id, Purpose::Keep).await? {
            return Ok(());
        }
        tracing::info!(provider = %self.provider, sandbox = %slot.id, "in use, and its peer let go of it; ours again");
        let permit = self.capacity.admit().ok();
        let mut state = slot.state.lock();
        state.permit = permit;
        let phase = if state.holds > 0 { Phase::Active(tenancy) } else { Phase::Warm(tenancy, self.runtime.now()) };
        state.move_to(phase);
        Ok(())
    }
}
