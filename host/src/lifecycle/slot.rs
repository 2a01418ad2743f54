//! One slot per sandbox id, and the guards that keep a sandbox in use.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::backend::Instance;
use super::capacity::Permit;
use super::guards::{Guard, Guards};
use super::manager::Inner;
use crate::ids::SandboxId;

/// How a sandbox came into our books.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// This gateway made it.
    Made,
    /// It was there: a peer's, or from an earlier life of this gateway.
    Found,
}

/// One stay of a sandbox in our books, from acquire or adoption to stop or loss.
#[derive(Debug, Clone)]
pub(super) struct Tenancy {
    pub(super) instance: Instance,
    pub(super) origin: Origin,
    /// It must be stopped before anything else: an earlier stop may still land, or nobody could say whose it is.
    pub(super) doomed: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) enum Phase {
    #[default]
    Vacant,
    Creating,
    Active(Arc<Tenancy>),
    Warm(Arc<Tenancy>, Duration),
    TearingDown(Arc<Tenancy>),
}

impl Phase {
    /// The sandbox that can be handed out, parked or stopped.
    pub(super) fn settled(&self) -> Option<&Arc<Tenancy>> {
        match self {
            Self::Active(tenancy) | Self::Warm(tenancy, _) => Some(tenancy),
            Self::Vacant | Self::Creating | Self::TearingDown(_) => None,
        }
    }
}

/// A sandbox that a peer took over while it was in use here.
#[derive(Debug, Clone)]
pub(super) struct Lost {
    pub(super) tenancy: Arc<Tenancy>,
    /// Since when nobody is seen to own it.
    pub(super) unowned: Option<Duration>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) phase: Phase,
    /// Changes on every transition.
    pub(super) version: u64,
    /// Consumers whose [`Hold`] lives.
    pub(super) holds: u32,
    /// Consumers that will release by id. They count for as long as the sandbox is not idle.
    pub(super) detached: u32,
    /// Operations that run. They stay counted when the sandbox is lost to a peer, so that a later stay of the same
    /// sandbox here still knows of them.
    pub(super) operations: u32,
    pub(super) last_used: Duration,
    /// What a peer took over while it was in use, until the next transition: if the peer lets go of it, it is ours again.
    pub(super) lost: Option<Lost>,
    /// Its place among the provider's sandboxes. Kept here and not with the stay: an operation that outlives the stay
    /// takes nobody's place.
    pub(super) permit: Option<Permit>,
}

impl State {
    pub(super) fn move_to(&mut self, phase: Phase) {
        self.phase = phase;
        self.version += 1;
        self.lost = None;
    }

    /// Whether somebody holds it or works in it, however it was lost.
    pub(super) fn in_use(&self) -> bool {
        self.holds > 0 || self.operations > 0
    }

    pub(super) fn vacate(&mut self) {
        self.detached = 0;
        self.permit = None;
        self.move_to(Phase::Vacant);
    }
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) id: SandboxId,
    transition: tokio::sync::Mutex<()>,
    pub(super) state: Mutex<State>,
}

/// The right to move a slot.
pub(super) struct Turn<'a> {
    _lock: Option<tokio::sync::MutexGuard<'a, ()>>,
}

impl Slot {
    pub(super) fn new(id: SandboxId) -> Self {
        Self { id, transition: tokio::sync::Mutex::new(()), state: Mutex::default() }
    }

    /// Waits for the right to move it.
    pub(super) async fn enter(&self, guards: &Guards) -> Turn<'_> {
        if guards.hold(Guard::TransitionLock) {
            Turn { _lock: Some(self.transition.lock().await) }
        } else {
            Turn { _lock: None }
        }
    }

    /// The right to move it, unless someone has it.
    pub(super) fn try_enter(&self, guards: &Guards) -> Option<Turn<'_>> {
        if guards.hold(Guard::TransitionLock) {
            self.transition.try_lock().ok().map(|lock| Turn { _lock: Some(lock) })
        } else {
            Some(Turn { _lock: None })
        }
    }
}

/// A running operation: while it lives, no reaper takes the sandbox.
///
/// It keeps working when the sandbox is lost to a peer in the meantime: losing a lease never cuts an operation off.
pub struct Pin {
    inner: Arc<Inner>,
    slot: Arc<Slot>,
    tenancy: Arc<Tenancy>,
}

impl std::fmt::Debug for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Pin").field(&self.tenancy.instance.id).finish()
    }
}

impl Pin {
    /// Counts the operation; `state` is the slot's. What runs is not idle, whatever the clock says: asking for the time
    /// can wait until it ends.
    pub(super) fn new(inner: &Arc<Inner>, slot: &Arc<Slot>, state: &mut State, tenancy: &Arc<Tenancy>) -> Self {
        state.operations += 1;
        Self { inner: Arc::clone(inner), slot: Arc::clone(slot), tenancy: Arc::clone(tenancy) }
    }

    /// The sandbox.
    pub fn instance(&self) -> &Instance {
        &self.tenancy.instance
    }
}

/// Another operation in the same sandbox.
impl Clone for Pin {
    fn clone(&self) -> Self {
        Self::new(&self.inner, &self.slot, &mut self.slot.state.lock(), &self.tenancy)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut state = self.slot.state.lock();
        state.operations = state.operations.saturating_sub(1);
        state.last_used = self.inner.runtime.now();
        drop(state);
        self.inner.operation_ended();
    }
}

/// A consumer of a sandbox. The last one that goes parks it.
///
/// Dropping it releases in the background; [`Lifecycle::release`](super::Lifecycle::release) and
/// [`detach`](Self::detach) are for consumers that only know the id.
pub struct Hold {
    inner: Arc<Inner>,
    slot: Arc<Slot>,
    tenancy: Arc<Tenancy>,
    live: bool,
}

impl std::fmt::Debug for Hold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Hold").field(&self.tenancy.instance.id).finish()
    }
}

impl Hold {
    /// Counts the consumer; `state` is the slot's.
    pub(super) fn new(inner: &Arc<Inner>, slot: &Arc<Slot>, state: &mut State, tenancy: &Arc<Tenancy>) -> Self {
        state.holds += 1;
        state.last_used = inner.runtime.now();
        Self { inner: Arc::clone(inner), slot: Arc::clone(slot), tenancy: Arc::clone(tenancy), live: true }
    }

    /// The sandbox's id.
    pub fn id(&self) -> &SandboxId {
        &self.tenancy.instance.id
    }

    /// The sandbox.
    pub fn instance(&self) -> &Instance {
        &self.tenancy.instance
    }

    /// An operation in it. It may outlive the hold.
    pub fn pin(&self) -> Pin {
        Pin::new(&self.inner, &self.slot, &mut self.slot.state.lock(), &self.tenancy)
    }

    /// Turns it into one that is released by id. Nobody can drop it any more: if nothing uses the sandbox for the idle
    /// timeout, it counts as released.
    pub fn detach(mut self) -> SandboxId {
        let mut state = self.slot.state.lock();
        state.holds = state.holds.saturating_sub(1);
        state.detached += 1;
        drop(state);
        self.live = false;
        self.tenancy.instance.id.clone()
    }

    /// Releases it and waits until that is done.
    pub async fn release(mut self) {
        self.live = false;
        let parked = self.inner.drop_hold(&self.slot);
        if let Some(parked) = parked {
            // The task was ended with its runtime; there is nobody left to tell.
            let _ = parked.await;
        }
    }
}

/// One more consumer.
impl Clone for Hold {
    fn clone(&self) -> Self {
        Self::new(&self.inner, &self.slot, &mut self.slot.state.lock(), &self.tenancy)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.live {
            drop(self.inner.drop_hold(&self.slot));
        }
    }
}
