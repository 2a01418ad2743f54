//! Stopping a sandbox under a claim that is held until the stop has returned.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{Either, select};
use tokio::sync::oneshot;

use super::backend::Instance;
use super::guards::Guard;
use super::manager::{Inner, Lifecycle};
use super::slot::{Phase, Slot, State, Tenancy};
use crate::error::{Code, Error, Result};
use crate::ids::SandboxId;
use crate::ownership::{OPERATION_TIMEOUT, Purpose, Renewal};
use crate::runtime::within;

/// How long a finished stop waits for its heartbeat: one refresh in flight and the release, each bounded by the store,
/// and some slack. After that the heartbeat ends by itself.
const HEARTBEAT_END: Duration = Duration::from_secs(OPERATION_TIMEOUT.as_secs() * 2 + 2);

/// What became of a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// It is gone.
    Yes,
    /// A peer owns it. It was left alone.
    Refused,
    /// It is in use. It was left alone.
    InUse,
    /// This gateway has no such sandbox.
    NotHere,
}

/// Which sandboxes a teardown takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Force {
    /// Whatever its use.
    Always,
    /// If no operation runs.
    UnlessRunning,
    /// If no operation runs, nobody holds it, and it has been idle for longer than this.
    Idle(Duration),
    /// A parked one that nothing runs in, however fresh.
    Parked,
    /// Whatever its use, if the lease is certainly ours.
    Ours,
}

impl Force {
    fn allows(self, state: &State, now: Duration, pins: bool) -> bool {
        let running = pins && state.operations > 0;
        let held = pins && state.holds > 0;
        let idle = now.saturating_sub(state.last_used);
        match (self, &state.phase) {
            (Self::Always | Self::Ours, _) => true,
            (_, Phase::Warm(tenancy, _)) if tenancy.doomed && !running => true,
            (Self::UnlessRunning, _) => !running,
            (Self::Idle(limit), Phase::Warm(_, since)) => {
                !running && !limit.is_zero() && now.saturating_sub(*since).min(idle) > limit
            }
            (Self::Idle(limit), Phase::Active(_)) => !running && !held && !limit.is_zero() && idle > limit,
            (Self::Parked, Phase::Warm(..)) => !running,
            (Self::Idle(_) | Self::Parked, _) => false,
        }
    }
}

impl Lifecycle {
    /// Stops the sandbox of an id, if this gateway has it and no peer owns it. One in which an operation runs is left
    /// alone unless `even_if_running`.
    ///
    /// Errors: `lease-store-down` (nobody knows whose it is: nothing was touched), and what the backend says if the stop
    /// fails or takes too long; the sandbox then stays in the books.
    pub async fn destroy(&self, id: &SandboxId, even_if_running: bool) -> Result<Stopped> {
        let Some(slot) = self.inner.slots.read().get(id).cloned() else { return Ok(Stopped::NotHere) };
        let (sender, receiver) = oneshot::channel();
        let inner = Arc::clone(&self.inner);
        let force = if even_if_running { Force::Always } else { Force::UnlessRunning };
        let task = async move {
            let turn = slot.enter(&inner.guards).await;
            let result = inner.teardown(&slot, force).await;
            drop(turn);
            inner.tidy(slot);
            // If nobody waits for the answer, it is in the log.
            let _ = sender.send(result);
        };
        self.inner.runtime.spawn(task.boxed());
        receiver.await.unwrap_or_else(|_| Err(self.inner.shutting_down()))
    }
}

impl Inner {
    /// Stops what is in the slot. The caller holds the slot's lock. Where it is not stopped, for whatever reason, the
    /// slot is as it was.
    pub(super) async fn teardown(self: &Arc<Self>, slot: &Arc<Slot>, force: Force) -> Result<Stopped> {
        let (tenancy, before) = {
            let mut state = slot.state.lock();
            let Some(tenancy) = state.phase.settled().cloned() else { return Ok(Stopped::NotHere) };
            // Judged and marked in one go: from here on nobody gets hold of it.
            if !force.allows(&state, self.runtime.now(), self.guards.hold(Guard::Pins)) {
                return Ok(Stopped::InUse);
            }
            let before = state.phase.clone();
            state.move_to(Phase::TearingDown(Arc::clone(&tenancy)));
            (tenancy, before)
        };
        if self.features.ephemeral {
            let stop = self.backend.destroy(&tenancy.instance);
            let stopped = within(&*self.runtime, self.settings.deadlines.stop, "the backend", stop).await;
            let mut state = slot.state.lock();
            return match stopped {
                Ok(()) => {
                    state.vacate();
                    Ok(Stopped::Yes)
                }
                Err(error) => {
                    state.move_to(before);
                    drop(state);
                    // Its last consumer may have gone meanwhile.
                    self.park_ephemeral(slot);
                    Err(error.context(format_args!("sandbox {} was not stopped", slot.id)))
                }
            };
        }
        let claimed = match force {
            Force::Idle(_) | Force::Parked => self.claim_what_is_ours(slot, !tenancy.doomed).await,
            Force::Ours => self.claim_what_is_ours(slot, false).await,
            Force::Always | Force::UnlessRunning => self.claim_for_stop(&slot.id).await,
        };
        if !matches!(claimed, Ok(true)) {
            slot.state.lock().move_to(before);
            return claimed.map(|_| Stopped::Refused);
        }
        match self.stop_held(&slot.id, &tenancy.instance, true).await {
            Ok(()) => {
                slot.state.lock().vacate();
                tracing::info!(provider = %self.provider, sandbox = %slot.id, "stopped");
                Ok(Stopped::Yes)
            }
            Err(error) => {
                tracing::error!(provider = %self.provider, sandbox = %slot.id, %error, "not stopped; it stays in the books");
                let error = error.context(format_args!("sandbox {} was not stopped", slot.id));
                if error.code() == Code::Timeout {
                    // The stop may still come through: never hand this one out again, here or elsewhere. Its marker stays.
                    let doomed = Arc::new(Tenancy { doomed: true, ..(*tenancy).clone() });
                    let mut state = slot.state.lock();
                    state.detached = 0;
                    state.move_to(Phase::Warm(doomed, self.runtime.now()));
                    return Err(error);
                }
                slot.state.lock().move_to(before);
                // The marker is gone and the sandbox probably lives: it is ours again, or a peer's by now.
                match self.store.claim(&slot.id, Purpose::Keep).await {
                    Ok(true) => {}
                    Ok(false) => self.forget(slot, "a peer took it after its stop had failed"),
                    Err(error) => {
                        tracing::warn!(provider = %self.provider, sandbox = %slot.id, %error, "its lease is unknown; trying again");
                    }
                }
                Err(error)
            }
        }
    }

    /// Drops a sandbox that is certainly dead, and what may be left of it at the backend. The caller holds the slot's
    /// lock. Where a peer owns it, or nobody can say, what is left is left to the next reconciliation.
    pub(super) async fn drop_dead(self: &Arc<Self>, slot: &Arc<Slot>) {
        tracing::warn!(provider = %self.provider, sandbox = %slot.id, "it is dead; dropping it");
        match self.teardown(slot, Force::Ours).await {
            Ok(Stopped::Yes | Stopped::NotHere) => {}
            // Its place in a shared count is left too: under this id a peer may have made another one already.
            Ok(Stopped::Refused | Stopped::InUse) => self.forget(slot, "it is dead, and not ours to remove"),
            Err(error) => {
                // No stop that may still land can harm what is dead: its marker keeps nobody from making another.
                if error.code() == Code::Timeout
                    && let Err(error) = self.store.release(&slot.id).await
                {
                    tracing::warn!(provider = %self.provider, sandbox = %slot.id, %error, "its teardown marker stays until it lapses");
                }
                // What is left of it is free again when our lease has lapsed.
                self.forget(slot, error.message());
            }
        }
    }

    /// Claims the right to stop what nobody asked us to stop. An absent lease is no licence here either: after the store lost
    /// everything, a peer that just took the sandbox from us is as invisible as one that died. The lease may be claimed
    /// back (`back`); then the sandbox counts as fresh.
    async fn claim_what_is_ours(&self, slot: &Slot, back: bool) -> Result<bool> {
        let renewed = self.store.renew(std::slice::from_ref(&slot.id)).await?;
        match renewed.first() {
            Some(Renewal::Renewed) => self.claim_for_stop(&slot.id).await,
            Some(Renewal::Lapsed) if self.guards.hold(Guard::DestroyClaim) => {
                if back && self.store.claim(&slot.id, Purpose::Keep).await? {
                    slot.state.lock().last_used = self.runtime.now();
                }
                Ok(false)
            }
            _ if !self.guards.hold(Guard::DestroyClaim) => Ok(true),
            // An earlier stop of ours may still land.
            Some(Renewal::Lost) if self.marked_by_us(&slot.id).await? => self.claim_for_stop(&slot.id).await,
            _ => Ok(false),
        }
    }

    /// Claims the right to stop it, and makes sure that the claim is fresh when this returns: a process that was
    /// suspended between the answer and the stop would otherwise stop a sandbox that a peer has taken meanwhile.
    pub(super) async fn claim_for_stop(&self, id: &SandboxId) -> Result<bool> {
        if !self.guards.hold(Guard::DestroyClaim) {
            return Ok(true);
        }
        loop {
            let asked = self.runtime.now();
            if !self.store.claim(id, Purpose::Destroy).await? {
                return Ok(false);
            }
            let fresh = self.runtime.now().saturating_sub(asked) < self.settings.lease.ttl() / 2;
            if fresh || !self.guards.hold(Guard::ClaimAge) {
                return Ok(true);
            }
        }
    }

    /// Stops it while a heartbeat keeps the claim, which was just made. The release is the heartbeat's last act. If the id
    /// is gone with it (`last`), its place in a shared count is freed before that: after it a peer may make and count a
    /// new one. A last stop that timed out may still land, so that its claim is not released.
    pub(super) async fn stop_held(self: &Arc<Self>, id: &SandboxId, instance: &Instance, last: bool) -> Result<()> {
        let heartbeat = Heartbeat::start(self, id);
        let stop = self.backend.destroy(instance);
        let stopped = within(&*self.runtime, self.settings.deadlines.stop, "the backend", stop).await;
        if last && stopped.is_ok() {
            self.uncount(id).await;
        }
        if !self.guards.hold(Guard::ReleaseLast) {
            // What the guard is there to prevent: a refresh may still be under way.
            let _ = self.store.release(id).await;
        }
        let pending = last && matches!(&stopped, Err(error) if error.code() == Code::Timeout);
        heartbeat.end(self, id, if pending { Afterwards::Keep } else { Afterwards::Release }).await;
        stopped
    }
}

/// What becomes of a claim when its stop has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Afterwards {
    Release,
    /// It lapses, unless it is claimed again.
    Keep,
}

/// Keeps a claim to destroy until told to end.
struct Heartbeat {
    end: oneshot::Sender<Afterwards>,
    ended: oneshot::Receiver<()>,
}

impl Heartbeat {
    fn start(inner: &Arc<Inner>, id: &SandboxId) -> Self {
        let (end, told) = oneshot::channel();
        let (sender, ended) = oneshot::channel();
        let (task_inner, id) = (Arc::clone(inner), id.clone());
        let task = async move {
            task_inner.keep_claim(&id, told).await;
            let _ = sender.send(());
        };
        inner.runtime.spawn(task.boxed());
        Self { end, ended }
    }

    /// Waits until the claim is released, for a bounded time; the task goes on without us if it must.
    async fn end(self, inner: &Inner, id: &SandboxId, afterwards: Afterwards) {
        let _ = self.end.send(afterwards);
        let ended = async { self.ended.await.map_err(|_| Error::internal("the heartbeat was ended")) };
        if let Err(error) = within(&*inner.runtime, HEARTBEAT_END, "the heartbeat", ended).await {
            tracing::warn!(provider = %inner.provider, sandbox = %id, %error, "its teardown marker is released later");
        }
    }
}

impl Inner {
    async fn keep_claim(&self, id: &SandboxId, mut told: oneshot::Receiver<Afterwards>) {
        let mut ours = true;
        let afterwards = loop {
            told = match select(told, self.runtime.sleep(self.settings.lease.renewal_interval())).await {
                Either::Left((Ok(afterwards), _)) => break afterwards,
                // The teardown's task is gone, and nobody knows how far its stop came.
                Either::Left((Err(_), _)) => break Afterwards::Keep,
                Either::Right(((), told)) => told,
            };
            if !ours || !self.guards.hold(Guard::Heartbeat) {
                continue;
            }
            match self.store.claim(id, Purpose::Destroy).await {
                Ok(true) => {}
                Ok(false) => {
                    tracing::error!(provider = %self.provider, sandbox = %id, "a peer took it while its stop was under way");
                    ours = false;
                }
                Err(error) => {
                    tracing::warn!(provider = %self.provider, sandbox = %id, %error, "its teardown marker could not be refreshed; trying again");
                }
            }
        };
        if afterwards == Afterwards::Release
            && self.guards.hold(Guard::ReleaseLast)
            && let Err(error) = self.store.release(id).await
        {
            tracing::warn!(provider = %self.provider, sandbox = %id, %error, "its teardown marker stays until it lapses");
        }
    }
}
