//! The lifecycle of one provider's sandboxes: its parts and its synchronous face.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt;
use futures::future::{Either, select};
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use super::backend::{Backend, Features};
use super::capacity::Capacity;
use super::guards::Guards;
use super::reconcile::Sightings;
use super::settings::Settings;
use super::slot::{Phase, Pin, Slot};
use crate::error::{Code, Error, Result};
use crate::ids::{ProviderName, SandboxId, Scope};
use crate::instance::IdScheme;
use crate::ownership::{Ledger, Store};
use crate::runtime::Runtime;

/// One provider's sandboxes on this gateway. Clones share everything.
#[derive(Clone)]
pub struct Lifecycle {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) provider: ProviderName,
    pub(super) features: Features,
    pub(super) settings: Settings,
    pub(super) backend: Arc<dyn Backend>,
    pub(super) store: Arc<dyn Store>,
    pub(super) ledger: Option<Arc<dyn Ledger>>,
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) guards: Guards,
    pub(super) capacity: Capacity,
    pub(super) slots: RwLock<HashMap<SandboxId, Arc<Slot>>>,
    pub(super) sightings: Mutex<Sightings>,
    /// Nobody reconciles here, so that whoever needs the deployment's count takes it.
    pub(super) visiting: AtomicBool,
    pub(super) closing: AtomicBool,
    /// Rung when the gateway begins to shut down.
    pub(super) closed: Notify,
    /// Rung when an operation ends.
    pub(super) drained: Notify,
}

/// How much a gateway looks after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Upkeep {
    /// Renewal, idle checks and, at once and then periodically, reconciliation: for a gateway that stays.
    #[default]
    Full,
    /// Renewal of what it has itself: for one that is here for a single command, and must not adopt what it would only
    /// leave behind.
    LeasesOnly,
}

/// What a lifecycle is put together from.
pub struct Parts {
    /// The provider's name in the configuration.
    pub provider: ProviderName,
    /// What it can do.
    pub features: Features,
    /// How its sandboxes are kept.
    pub settings: Settings,
    /// The provider.
    pub backend: Arc<dyn Backend>,
    /// The leases. Never touched for an ephemeral provider.
    pub store: Arc<dyn Store>,
    /// The count that a hard limit of the whole deployment goes by; none: the limit is this gateway's own.
    pub ledger: Option<Arc<dyn Ledger>>,
    /// Time and tasks.
    pub runtime: Arc<dyn Runtime>,
}

impl Lifecycle {
    /// Puts the parts together. Nothing runs and nothing is asked before [`start`](Self::start).
    pub fn new(parts: Parts) -> Result<Self> {
        Self::with_guards(parts, Guards::default())
    }

    /// As [`new`](Self::new), with some rules taken out for a simulation.
    pub fn with_guards(parts: Parts, guards: Guards) -> Result<Self> {
        let Parts { provider, features, settings, backend, store, ledger, runtime } = parts;
        settings.check().map_err(|error| error.context(format_args!("provider {provider}")))?;
        if ledger.is_some() && settings.capacity.hard_limit().is_some() && !features.listable {
            return Err(Error::config(format!(
                "provider {provider} can't list its sandboxes, so that nobody can count them"
            ))
            .hint("use a soft limit, or a provider with the `listable` feature"));
        }
        let ledger = ledger.filter(|_| settings.capacity.hard_limit().is_some());
        let capacity = Capacity::new(settings.capacity);
        Ok(Self {
            inner: Arc::new(Inner {
                provider,
                features,
                settings,
                backend,
                store,
                ledger,
                runtime,
                guards,
                capacity,
                slots: RwLock::default(),
                sightings: Mutex::default(),
                visiting: AtomicBool::new(false),
                closing: AtomicBool::new(false),
                closed: Notify::new(),
                drained: Notify::new(),
            }),
        })
    }

    /// Starts the background work. Never waits for a backend or a store.
    pub fn start(&self, upkeep: Upkeep) {
        let inner = &self.inner;
        if inner.features.ephemeral {
            if upkeep == Upkeep::Full && !inner.settings.idle_timeout.is_zero() {
                inner.runtime.spawn(Arc::clone(inner).maintain_forever().boxed());
            }
            return;
        }
        if upkeep == Upkeep::LeasesOnly {
            inner.visiting.store(true, Ordering::Release);
            inner.runtime.spawn(Arc::clone(inner).renew_forever().boxed());
            if inner.features.extendable {
                inner.runtime.spawn(Arc::clone(inner).extend_forever().boxed());
            }
            return;
        }
        if !inner.store.sees_peers() {
            tracing::warn!(
                provider = %inner.provider,
                "leases are kept in this process's memory: no other gateway may use the same backend; \
                 set `ownership.type = \"redis\"` for several gateways"
            );
        }
        inner.runtime.spawn(Arc::clone(inner).renew_forever().boxed());
        inner.runtime.spawn(Arc::clone(inner).maintain_forever().boxed());
    }

    /// What the provider can do.
    pub fn features(&self) -> &Features {
        &self.inner.features
    }

    /// The sandbox of an id, pinned for one operation; none if it is not handed out here.
    ///
    /// Looks into memory only: it can't reach the store or the backend, never waits and allocates nothing.
    pub fn get(&self, id: &SandboxId) -> Option<Pin> {
        let slots = self.inner.slots.read();
        let slot = slots.get(id)?;
        let mut state = slot.state.lock();
        let Phase::Active(tenancy) = &state.phase else { return None };
        let tenancy = Arc::clone(tenancy);
        Some(Pin::new(&self.inner, slot, &mut state, &tenancy))
    }

    /// The id of a scope's sandbox.
    pub fn id_of(&self, scope: &Scope) -> SandboxId {
        self.inner.id_of(scope)
    }
}

impl Inner {
    pub(super) fn id_of(&self, scope: &Scope) -> SandboxId {
        match self.features.id_scheme {
            IdScheme::Hashed => scope.hashed_id(),
            IdScheme::Readable => scope.readable_id(self.provider.as_str()),
        }
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    pub(super) fn shutting_down(&self) -> Error {
        Error::new(Code::ShuttingDown, format!("the gateway is shutting down its {} sandboxes", self.provider))
            .hint("try again on another gateway, or in half a minute")
            .retry_after_ms(30_000)
    }

    /// The slot of an id, made if there is none.
    pub(super) fn slot(&self, id: &SandboxId) -> Arc<Slot> {
        if let Some(slot) = self.slots.read().get(id) {
            return Arc::clone(slot);
        }
        let mut slots = self.slots.write();
        Arc::clone(slots.entry(id.clone()).or_insert_with(|| Arc::new(Slot::new(id.clone()))))
    }

    /// All slots, in the order of their ids so that a simulation can be repeated.
    pub(super) fn all_slots(&self) -> Vec<Arc<Slot>> {
        let mut slots: Vec<_> = self.slots.read().values().cloned().collect();
        slots.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        slots
    }

    /// Drops a slot that says nothing any more.
    pub(super) fn tidy(&self, slot: Arc<Slot>) {
        let mut slots = self.slots.write();
        // The map's and ours: nobody else can get at it while the map is locked, so nobody waits for it either.
        if Arc::strong_count(&slot) > 2 {
            return;
        }
        let state = slot.state.lock();
        let empty = matches!(state.phase, Phase::Vacant) && state.holds == 0 && state.operations == 0;
        drop(state);
        if empty {
            slots.remove(&slot.id);
        }
    }

    /// Waits for so long; false if the gateway shuts down first.
    pub(super) async fn rest(&self, time: std::time::Duration) -> bool {
        let mut closed = std::pin::pin!(self.closed.notified());
        closed.as_mut().enable();
        if self.is_closing() {
            return false;
        }
        match select(self.runtime.sleep(time), closed).await {
            Either::Left(_) => !self.is_closing(),
            Either::Right(_) => false,
        }
    }

    pub(super) fn operation_ended(&self) {
        if self.is_closing() {
            self.drained.notify_waiters();
        }
    }
}
