//! Acquiring: reuse what is active, take back what is parked, find it at the backend, make it; in this order.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::oneshot;

use super::backend::{Instance, Wanted};
use super::capacity::{Permit, Place};
use super::manager::{Inner, Lifecycle};
use super::slot::{Hold, Origin, Phase, Slot, Tenancy};
use super::teardown::{Force, Stopped};
use crate::error::{Code, Error, Result};
use crate::ids::{SandboxId, Scope};
use crate::instance::{InstanceRecord, Liveness};
use crate::ownership::Renewal;
use crate::runtime::within;

/// How often an acquire begins again when what it found was gone a moment later, or a peer made the sandbox first.
const ATTEMPTS: usize = 3;

/// What became of a sandbox while it was made.
enum Made {
    Ours,
    /// A peer is stopping it.
    BeingStopped,
    /// A peer stopped it.
    Gone,
}

/// What a look at the backend gave.
enum Sought {
    Found(Hold),
    Nothing,
    /// It took so long that what was found may be gone.
    Stale,
}

impl Lifecycle {
    /// The sandbox of a scope: the one that is there, or a new one. Nothing is handed out before its ownership is
    /// published, so a lease store that can't be reached fails the call (`lease-store-down`).
    ///
    /// Other errors: `being-destroyed` (the scope's sandbox is being stopped here or by a peer; try again),
    /// `identity-collision`, `capacity`, `shutting-down` and whatever the backend says.
    ///
    /// Runs as a task of its own: a caller that gives up leaves a whole sandbox behind, parked.
    pub async fn acquire(&self, scope: &Scope) -> Result<Hold> {
        let inner = &self.inner;
        let ephemeral = inner.features.ephemeral;
        if ephemeral && let Some(hold) = inner.hold_at_once(scope)? {
            return Ok(hold);
        }
        let (sender, receiver) = oneshot::channel();
        let task = {
            let (inner, scope) = (Arc::clone(inner), scope.clone());
            async move {
                let acquired =
                    if ephemeral { inner.acquire_ephemeral(&scope).await } else { inner.acquire_here(&scope).await };
                // If nobody waits any more, the hold is dropped here, which releases.
                let _ = sender.send(acquired);
            }
        };
        inner.runtime.spawn(task.boxed());
        receiver.await.unwrap_or_else(|_| Err(inner.shutting_down()))
    }
}

impl Inner {
    async fn acquire_here(self: Arc<Self>, scope: &Scope) -> Result<Hold> {
        let slot = self.slot(&self.id_of(scope));
        let turn = slot.enter(&self.guards).await;
        let result = if self.is_closing() { Err(self.shutting_down()) } else { self.acquire_in(&slot, scope).await };
        drop(turn);
        self.tidy(slot);
        result
    }

    async fn acquire_in(self: &Arc<Self>, slot: &Arc<Slot>, scope: &Scope) -> Result<Hold> {
        let mut prepared = None;
        for _ in 0..ATTEMPTS {
            let settled = slot.state.lock().phase.settled().cloned();
            if let Some(tenancy) = &settled {
                Self::check_identity(&tenancy.instance, scope)?;
                if tenancy.doomed {
                    // An earlier stop may still land on it: it has to be gone before its successor is made.
                    match self.teardown(slot, Force::Parked).await? {
                        Stopped::Yes | Stopped::NotHere => continue,
                        Stopped::Refused | Stopped::InUse => return Err(self.being_destroyed(&slot.id)),
                    }
                }
            }
            // Published before anything is looked at: what is seen from here on can't be stopped by a peer before it is
            // handed out.
            let mut published = None;
            if let Err(error) = self.publish(&slot.id, &mut published).await {
                if settled.is_some() && error.code() == Code::BeingDestroyed {
                    // What we have of it is worth nothing any more.
                    self.forget(slot, "a peer is stopping it");
                }
                return Err(error);
            }
            if let Some(tenancy) = settled {
                match self.reuse(slot, &tenancy, scope, &mut published).await? {
                    Some(hold) => return Ok(hold),
                    None => continue,
                }
            }
            let wanted = match &prepared {
                Some(wanted) => wanted,
                None => prepared.insert(self.prepare(&slot.id, scope).await?),
            };
            match self.adopt_found(slot, wanted, &mut published).await? {
                Sought::Found(hold) => return Ok(hold),
                Sought::Stale => continue,
                Sought::Nothing => {}
            }
            match self.create(slot, wanted, published).await {
                // Another gateway made it between our looking and our making: look again.
                Err(error) if error.code() == Code::AlreadyExists && self.features.findable => {}
                other => return other,
            }
        }
        Err(Error::unavailable(format!("sandbox {} appears and disappears while it is acquired", slot.id))
            .hint("another gateway works on the same sandbox; try again")
            .retry_after_ms(1000))
    }

    /// Publishes our ownership, unless that was done a moment ago (`published`) and is certainly still so. True if it was:
    /// what was seen since then still holds.
    async fn publish(&self, id: &SandboxId, published: &mut Option<Duration>) -> Result<bool> {
        let now = self.runtime.now();
        if published.is_some_and(|at| now.saturating_sub(at) < self.settings.lease.ttl() / 2) {
            return Ok(true);
        }
        if !self.take(id).await? {
            return Err(self.being_destroyed(id));
        }
        *published = Some(now);
        Ok(false)
    }

    /// Makes ready what a sandbox needs here.
    pub(super) async fn prepare(&self, id: &SandboxId, scope: &Scope) -> Result<Wanted> {
        let attachment = self.backend.prepare(id, scope).await?;
        Ok(Wanted { id: id.clone(), scope: scope.clone(), attachment })
    }

    /// Refuses to hand a sandbox to anyone but its scope.
    pub(super) fn check_identity(instance: &Instance, scope: &Scope) -> Result<()> {
        match &instance.scope {
            Some(known) if known != scope => Err(Error::new(
                Code::IdentityCollision,
                format!("sandbox {} belongs to {known}, so {scope} can't have it", instance.id),
            )
            .hint("two scopes have the same short hash; use another thread id")),
            _ => Ok(()),
        }
    }

    /// What we have already, if it lives, and if that was not so long ago that it may have been stopped since.
    async fn reuse(
        self: &Arc<Self>,
        slot: &Arc<Slot>,
        tenancy: &Arc<Tenancy>,
        scope: &Scope,
        published: &mut Option<Duration>,
    ) -> Result<Option<Hold>> {
        let instance = &tenancy.instance;
        let probe = within(&*self.runtime, self.settings.deadlines.probe, "the probe", self.backend.probe(instance));
        match probe.await {
            Ok(Liveness::Alive) => {}
            Ok(Liveness::Dead) => {
                self.drop_dead(slot).await;
                return Ok(None);
            }
            Err(error) => {
                tracing::warn!(provider = %self.provider, sandbox = %slot.id, %error, "can't tell whether it lives; keeping it");
            }
        }
        if !self.publish(&slot.id, published).await? {
            return Ok(None);
        }
        self.extend(instance).await;
        let tenancy = if instance.scope.is_some() && !instance.attachment.is_none() {
            Arc::clone(tenancy)
        } else {
            // It was adopted: only now is it known whose it is, and what it needs here.
            self.tenancy(self.prepare(&slot.id, scope).await?, instance.record.clone(), Origin::Found)
        };
        Ok(Some(self.hand_out(slot, tenancy, None)))
    }

    /// What the backend has already, made by a peer or by an earlier life of this gateway.
    async fn adopt_found(
        self: &Arc<Self>,
        slot: &Arc<Slot>,
        wanted: &Wanted,
        published: &mut Option<Duration>,
    ) -> Result<Sought> {
        if !self.features.findable {
            return Ok(Sought::Nothing);
        }
        let find = self.backend.find(wanted);
        let record = match within(&*self.runtime, self.settings.deadlines.find, "the lookup", find).await {
            Ok(Some(record)) => record,
            Ok(None) => return Ok(Sought::Nothing),
            Err(error) => {
                tracing::warn!(provider = %self.provider, sandbox = %slot.id, %error, "can't look for it; making a new one");
                return Ok(Sought::Nothing);
            }
        };
        let permit = match self.capacity.admit() {
            Ok(permit) => permit,
            // It exists, so it takes a place of its own; make room as for a new one.
            Err(_) => self.reserve_here().await?,
        };
        if let Some(ledger) = &self.ledger {
            ledger.track(&slot.id, None).await?;
        }
        if !self.publish(&slot.id, published).await? {
            return Ok(Sought::Stale);
        }
        let tenancy = self.tenancy(wanted.clone(), record, Origin::Found);
        self.extend(&tenancy.instance).await;
        Ok(Sought::Found(self.hand_out(slot, tenancy, Some(permit))))
    }

    async fn create(
        self: &Arc<Self>,
        slot: &Arc<Slot>,
        wanted: &Wanted,
        mut published: Option<Duration>,
    ) -> Result<Hold> {
        let Place { permit, token } = self.reserve().await?;
        // Published before it exists: a peer that is stopping an earlier one of this id refuses us now, and no peer
        // sees the new one unowned, however long it takes to make.
        slot.state.lock().move_to(Phase::Creating);
        // Nothing was seen that could have become stale.
        if let Err(error) = self.publish(&wanted.id, &mut published).await {
            self.unreserve(token.as_deref()).await;
            slot.state.lock().vacate();
            return Err(error);
        }
        let record = match self.make(wanted).await {
            Ok(record) => record,
            Err(error) => {
                if error.code() == Code::AlreadyExists {
                    self.unreserve(token.as_deref()).await;
                }
                slot.state.lock().vacate();
                return Err(error);
            }
        };
        // If this fails, the reservation keeps its place until a reconciliation has seen the sandbox. So does that of a
        // sandbox whose making failed: nobody knows for certain that nothing was made.
        if let Some(ledger) = &self.ledger
            && let Err(error) = ledger.track(&slot.id, token.as_deref()).await
        {
            tracing::warn!(provider = %self.provider, sandbox = %slot.id, %error, "not in the shared count yet");
        }
        let tenancy = self.tenancy(wanted.clone(), record, Origin::Made);
        let error = match self.publish_made(&tenancy.instance).await {
            Ok(Made::Ours) if !self.is_closing() => return Ok(self.hand_out(slot, tenancy, Some(permit))),
            Ok(Made::Gone) => {
                self.uncount(&slot.id).await;
                slot.state.lock().vacate();
                return Err(Error::new(
                    Code::AlreadyExists,
                    format!("sandbox {} was found and stopped by a peer", slot.id),
                ));
            }
            Ok(Made::Ours) => self.shutting_down(),
            Ok(Made::BeingStopped) => self.being_destroyed(&slot.id),
            Err(error) => error,
        };
        self.roll_back(slot, self.doomed(tenancy.instance.clone()), permit).await;
        Err(error)
    }

    /// Publishes a new sandbox, whose making may have outlasted the lease: then a peer may have found it, and stopped it.
    async fn publish_made(&self, instance: &Instance) -> Result<Made> {
        if let [Renewal::Renewed] = self.store.renew(std::slice::from_ref(&instance.id)).await?[..] {
            return Ok(Made::Ours);
        }
        if !self.take(&instance.id).await? {
            return Ok(Made::BeingStopped);
        }
        let probe = within(&*self.runtime, self.settings.deadlines.probe, "the probe", self.backend.probe(instance));
        Ok(if matches!(probe.await, Ok(Liveness::Dead)) { Made::Gone } else { Made::Ours })
    }

    async fn make(self: &Arc<Self>, wanted: &Wanted) -> Result<InstanceRecord> {
        let create = self.backend.create(wanted);
        let made = within(&*self.runtime, self.settings.deadlines.create, "the backend", create).await;
        // The lease of a sandbox that was not made is left to lapse: it keeps nobody from taking the id, while a
        // release that the network delivers late could undo a later teardown's marker.
        made.map_err(|error| error.context(format_args!("sandbox {} can't be made", wanted.id)))
    }

    /// A new sandbox that can't be published is stopped, not left for others to adopt. It is stopped like any other,
    /// under a claim: in the meantime a peer may have found it and handed it out. Where the claim can't be had now, it
    /// stays in our books, never handed out again, until it can.
    async fn roll_back(self: &Arc<Self>, slot: &Arc<Slot>, tenancy: Arc<Tenancy>, permit: Permit) {
        {
            let mut state = slot.state.lock();
            state.permit = Some(permit);
            state.move_to(Phase::Warm(tenancy, self.runtime.now()));
        }
        match self.teardown(slot, Force::Parked).await {
            Ok(Stopped::Yes | Stopped::NotHere) => {}
            // A peer took it, or is stopping this id: it is the peer's, or the next reconciliation's.
            Ok(Stopped::Refused | Stopped::InUse) => self.forget(slot, "a peer has it"),
            Err(error) => {
                tracing::warn!(provider = %self.provider, sandbox = %slot.id, %error, "a new sandbox could not be published and not stopped; trying again");
            }
        }
    }

    pub(super) fn tenancy(&self, wanted: Wanted, record: InstanceRecord, origin: Origin) -> Arc<Tenancy> {
        Arc::new(Tenancy { instance: wanted.found(record), origin, doomed: false })
    }

    pub(super) fn doomed(&self, instance: Instance) -> Arc<Tenancy> {
        Arc::new(Tenancy { instance, origin: Origin::Made, doomed: true })
    }

    pub(super) fn hand_out(self: &Arc<Self>, slot: &Arc<Slot>, tenancy: Arc<Tenancy>, permit: Option<Permit>) -> Hold {
        let mut state = slot.state.lock();
        if permit.is_some() {
            state.permit = permit;
        }
        state.move_to(Phase::Active(Arc::clone(&tenancy)));
        Hold::new(self, slot, &mut state, &tenancy)
    }

    pub(super) fn being_destroyed(&self, id: &SandboxId) -> Error {
        Error::new(Code::BeingDestroyed, format!("sandbox {id} is being stopped"))
            .hint("try again in a moment; a new one is made when it is gone")
            .retry_after_ms(1000)
    }

    /// Publishes our ownership; false if the sandbox is being torn down. The caller holds the slot's lock, so a
    /// `del:` of our own is what a teardown could not take back (its stop failed and the store was away), and is cleared.
    pub(super) async fn take(&self, id: &SandboxId) -> Result<bool> {
        Ok(self.store.take(id).await? || (self.nothing_in_the_way(id).await? && self.store.take(id).await?))
    }

    /// Pushes the backend's own end out. Never fails: the backend then keeps its earlier one.
    pub(super) async fn extend(&self, instance: &Instance) {
        if !self.features.extendable {
            return;
        }
        let extend = self.backend.extend(instance, self.settings.remote_timeout());
        let extended = within(&*self.runtime, self.settings.deadlines.extend, "the backend", extend).await;
        if let Err(error) = extended {
            tracing::warn!(provider = %self.provider, sandbox = %instance.id, %error, "its end at the backend could not be pushed out");
        }
    }

    /// Lets go of a sandbox without touching it. The caller holds the slot's lock.
    pub(super) fn forget(&self, slot: &Slot, why: &str) {
        slot.state.lock().vacate();
        tracing::info!(provider = %self.provider, sandbox = %slot.id, why, "let go of a sandbox without stopping it");
    }
}
