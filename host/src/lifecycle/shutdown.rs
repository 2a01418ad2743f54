//! Shutting down and resetting.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{Either, select};
use futures::stream::{self, StreamExt};
use tokio::sync::oneshot;

use super::manager::{Inner, Lifecycle};
use super::settings::ResetPolicy;
use super::slot::{Origin, Phase, Slot};
use super::teardown::{Force, Stopped};

/// Stops under way at once.
const CONCURRENCY: usize = 8;

/// What a shutdown does with the sandboxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ShutdownMode {
    /// Stop what is ours.
    #[default]
    Stop,
    /// Stop what this gateway made, and give up what it found: for a gateway that is here for a single command.
    StopMade,
    /// Leave everything running and give our leases up: whoever looks next adopts it.
    Keep,
}

/// What a shutdown did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShutdownReport {
    /// Stopped.
    pub stopped: usize,
    /// Left running: kept on purpose, or owned by a peer.
    pub left: usize,
    /// Not stopped, though ours.
    pub failed: usize,
}

impl Lifecycle {
    /// Ends this gateway's part: nothing is acquired any more, waiters are refused, running operations get `grace` to
    /// end, then every sandbox of ours is stopped (or given up). What a peer owns is left alone. Calling it again is
    /// nothing new.
    pub async fn shutdown(&self, mode: ShutdownMode, grace: Duration) -> ShutdownReport {
        self.inner.shut_down(mode, grace).await
    }

    /// As the provider's policy says: nothing, park everything, or shut down.
    pub async fn reset(&self) {
        let inner = &self.inner;
        if inner.features.ephemeral {
            while inner.evict_oldest().await {}
            return;
        }
        match inner.settings.reset {
            ResetPolicy::Nothing => {}
            ResetPolicy::Park => {
                for slot in inner.all_slots() {
                    let turn = slot.enter(&inner.guards).await;
                    slot.state.lock().detached = 0;
                    inner.park(&slot).await;
                    drop(turn);
                    inner.tidy(slot);
                }
            }
            ResetPolicy::DestroyAll => {
                inner.shut_down(ShutdownMode::Stop, Duration::ZERO).await;
            }
        }
    }
}

impl Inner {
    async fn shut_down(self: &Arc<Self>, mode: ShutdownMode, grace: Duration) -> ShutdownReport {
        self.closing.store(true, Ordering::Release);
        self.closed.notify_waiters();
        self.capacity.ring();
        self.drain(grace).await;
        let mut report = ShutdownReport::default();
        let outcomes: Vec<_> = stream::iter(self.all_slots())
            .map(|slot| self.close_whole(slot, mode))
            .buffer_unordered(CONCURRENCY)
            .collect()
            .await;
        for outcome in outcomes {
            match outcome {
                Closed::Nothing => {}
                Closed::Stopped => report.stopped += 1,
                Closed::Left => report.left += 1,
                Closed::Failed => report.failed += 1,
            }
        }
        report
    }

    /// Waits for running operations, for as long as `grace`.
    async fn drain(&self, grace: Duration) {
        let deadline = self.runtime.now() + grace;
        loop {
            let mut ended = std::pin::pin!(self.drained.notified());
            ended.as_mut().enable();
            let running = self.all_slots().iter().any(|slot| slot.state.lock().operations > 0);
            let left = deadline.saturating_sub(self.runtime.now());
            if !running || left.is_zero() {
                return;
            }
            match select(self.runtime.sleep(left), ended).await {
                Either::Left(_) | Either::Right(_) => {}
            }
        }
    }

    /// As a task of its own: a shutdown that its caller gives up never tears a stop in half.
    async fn close_whole(self: &Arc<Self>, slot: Arc<Slot>, mode: ShutdownMode) -> Closed {
        let (sender, receiver) = oneshot::channel();
        let inner = Arc::clone(self);
        let task = async move {
            // If nobody waits for the answer, it is in the log.
            let _ = sender.send(inner.close(slot, mode).await);
        };
        self.runtime.spawn(task.boxed());
        receiver.await.unwrap_or(Closed::Failed)
    }

    async fn close(self: &Arc<Self>, slot: Arc<Slot>, mode: ShutdownMode) -> Closed {
        let turn = slot.enter(&self.guards).await;
        let closed = self.close_in(&slot, mode).await;
        drop(turn);
        self.tidy(slot);
        closed
    }

    /// The caller holds the slot's lock.
    async fn close_in(self: &Arc<Self>, slot: &Arc<Slot>, mode: ShutdownMode) -> Closed {
        let (vacant, made) = {
            let state = slot.state.lock();
            let made = state.phase.settled().is_some_and(|tenancy| tenancy.origin == Origin::Made);
            (matches!(state.phase, Phase::Vacant), made)
        };
        let keep = match mode {
            ShutdownMode::Stop => false,
            ShutdownMode::StopMade => !made,
            ShutdownMode::Keep => true,
        };
        if vacant {
            Closed::Nothing
        } else if keep && !self.features.ephemeral {
            if let Err(error) = self.store.release(&slot.id).await {
                tracing::warn!(provider = %self.provider, sandbox = %slot.id, %error, "its lease stays until it lapses");
            }
            slot.state.lock().vacate();
            Closed::Left
        } else {
            match self.teardown(slot, Force::Ours).await {
                Ok(Stopped::Yes) => Closed::Stopped,
                Ok(Stopped::NotHere) => Closed::Nothing,
                Ok(Stopped::Refused | Stopped::InUse) => {
                    self.forget(slot, "a peer owns it");
                    Closed::Left
                }
                Err(error) => {
                    tracing::error!(provider = %self.provider, sandbox = %slot.id, %error, "left running at shutdown");
                    Closed::Failed
                }
            }
        }
    }
}

enum Closed {
    Nothing,
    Stopped,
    Left,
    Failed,
}
