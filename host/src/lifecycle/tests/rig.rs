//! The parts that the tests put together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::{self, BoxFuture, FutureExt};
use parking_lot::Mutex;

use super::super::*;
use crate::error::{Code, Error, Result};
use crate::ids::{SandboxId, Scope};
use crate::ownership::{Lease, LeaseTimes, MemoryStore, OwnerId, Purpose, Renewal, Store};
use crate::runtime::TokioRuntime;

pub(super) const TTL: Duration = Duration::from_secs(120);

/// What a step of the backend does next.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum Step {
    #[default]
    Works,
    Takes(Duration),
    Fails,
    Hangs,
}

#[derive(Default)]
pub(super) struct Script {
    pub(super) live: BTreeMap<u64, (SandboxId, Option<Scope>)>,
    pub(super) create: Step,
    pub(super) find: Step,
    pub(super) probe: Step,
    pub(super) destroy: Step,
    pub(super) inventory: Step,
    pub(super) stopped: Vec<u64>,
    pub(super) made: u64,
    pub(super) extended: u64,
    /// The next one is stopped by somebody else before its maker hears of it.
    pub(super) stop_the_next: bool,
}

/// A backend that remembers what it was asked.
#[derive(Default)]
pub(super) struct TestBackend {
    pub(super) script: Mutex<Script>,
    pub(super) calls: AtomicU64,
}

pub(super) fn record(serial: u64) -> InstanceRecord {
    InstanceRecord::new(serial.to_be_bytes().to_vec())
}

fn serial(instance: &Instance) -> u64 {
    instance.record.as_bytes().try_into().map_or(0, u64::from_be_bytes)
}

impl TestBackend {
    async fn step(&self, of: impl Fn(&Script) -> Step) -> Result<()> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let step = of(&self.script.lock());
        match step {
            Step::Works => Ok(()),
            Step::Takes(time) => {
                tokio::time::sleep(time).await;
                Ok(())
            }
            Step::Fails => Err(Error::unavailable("the backend is scripted to fail")),
            Step::Hangs => future::pending().await,
        }
    }

    pub(super) fn live(&self) -> usize {
        self.script.lock().live.len()
    }

    /// One that somebody else made.
    pub(super) fn plant(&self, id: &SandboxId, scope: Option<&Scope>) -> u64 {
        let mut script = self.script.lock();
        script.made += 1;
        let serial = script.made;
        script.live.insert(serial, (id.clone(), scope.cloned()));
        serial
    }
}

/// What is kept beside a sandbox.
#[derive(Debug)]
pub(super) struct Kept(pub(super) Scope);

impl Backend for TestBackend {
    fn prepare<'a>(&'a self, _: &'a SandboxId, scope: &'a Scope) -> BoxFuture<'a, Result<Attachment>> {
        future::ready(Ok(Attachment::new(Arc::new(Kept(scope.clone()))))).boxed()
    }

    fn create<'a>(&'a self, wanted: &'a Wanted) -> BoxFuture<'a, Result<InstanceRecord>> {
        async move {
            self.step(|script| script.create).await?;
            let serial = self.plant(&wanted.id, Some(&wanted.scope));
            let mut script = self.script.lock();
            if std::mem::take(&mut script.stop_the_next) {
                script.live.remove(&serial);
            }
            Ok(record(serial))
        }
        .boxed()
    }

    fn find<'a>(&'a self, wanted: &'a Wanted) -> BoxFuture<'a, Result<Option<InstanceRecord>>> {
        async move {
            self.step(|script| script.find).await?;
            let script = self.script.lock();
            Ok(script.live.iter().find(|(_, (live, _))| *live == wanted.id).map(|(serial, _)| record(*serial)))
        }
        .boxed()
    }

    fn inventory(&self, cursor: Option<String>) -> BoxFuture<'_, Result<Page>> {
        async move {
            self.step(|script| script.inventory).await?;
            let after: u64 = cursor.map_or(0, |cursor| cursor.parse().unwrap());
            let script = self.script.lock();
            let items: Vec<_> = script
                .live
                .range(after + 1..)
                .take(2)
                .map(|(serial, (id, scope))| {
                    let instance = Instance {
                        id: id.clone(),
                        scope: scope.clone(),
                        record: record(*serial),
                        attachment: Attachment::default(),
                    };
                    (*serial, Item { instance, created_ms: Some(*serial) })
                })
                .collect();
            let last = items.last().map(|(serial, _)| *serial);
            let next = last.filter(|last| script.live.range(last + 1..).next().is_some()).map(|last| last.to_string());
            Ok(Page { items: items.into_iter().map(|(_, item)| item).collect(), next })
        }
        .boxed()
    }

    fn probe<'a>(&'a self, instance: &'a Instance) -> BoxFuture<'a, Result<Liveness>> {
        async move {
            self.step(|script| script.probe).await?;
            let alive = self.script.lock().live.contains_key(&serial(instance));
            Ok(if alive { Liveness::Alive } else { Liveness::Dead })
        }
        .boxed()
    }

    fn destroy<'a>(&'a self, instance: &'a Instance) -> BoxFuture<'a, Result<()>> {
        async move {
            self.step(|script| script.destroy).await?;
            let mut script = self.script.lock();
            script.live.remove(&serial(instance));
            script.stopped.push(serial(instance));
            Ok(())
        }
        .boxed()
    }

    fn extend<'a>(&'a self, _: &'a Instance, _: Duration) -> BoxFuture<'a, Result<()>> {
        self.script.lock().extended += 1;
        self.step(|_| Step::Works).boxed()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    Up,
    Down,
    Hangs,
}

/// Real leases behind a line that can be cut.
pub(super) struct TestStore {
    pub(super) leases: MemoryStore,
    pub(super) line: Mutex<Line>,
    /// The line goes down after so many more calls.
    pub(super) calls_left: Mutex<Option<u64>>,
    pub(super) calls: AtomicU64,
    pub(super) sees_peers: bool,
}

impl TestStore {
    fn through<'a, T: Send + 'a>(&'a self, call: BoxFuture<'a, Result<T>>) -> BoxFuture<'a, Result<T>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if let Some(left) = &mut *self.calls_left.lock() {
            if *left == 0 {
                *self.line.lock() = Line::Down;
            }
            *left = left.saturating_sub(1);
        }
        match *self.line.lock() {
            Line::Up => call,
            Line::Down => future::ready(Err(Error::new(Code::LeaseStoreDown, "the line is cut"))).boxed(),
            Line::Hangs => future::pending().boxed(),
        }
    }
}

impl Store for TestStore {
    fn me(&self) -> &OwnerId {
        self.leases.me()
    }

    fn sees_peers(&self) -> bool {
        self.sees_peers
    }

    fn take<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, Result<bool>> {
        self.through(self.leases.take(id))
    }

    fn claim<'a>(&'a self, id: &'a SandboxId, purpose: Purpose) -> BoxFuture<'a, Result<bool>> {
        self.through(self.leases.claim(id, purpose))
    }

    fn renew<'a>(&'a self, ids: &'a [SandboxId]) -> BoxFuture<'a, Result<Vec<Renewal>>> {
        self.through(self.leases.renew(ids))
    }

    fn release<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, Result<()>> {
        self.through(self.leases.release(id))
    }

    fn owner<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, Result<Option<Lease>>> {
        self.through(self.leases.owner(id))
    }
}

pub(super) struct Rig {
    pub(super) backend: Arc<TestBackend>,
    pub(super) store: Arc<TestStore>,
    /// The same leases as a peer sees them.
    pub(super) peer: MemoryStore,
    pub(super) lifecycle: Lifecycle,
}

pub(super) fn features() -> Features {
    Features { findable: true, listable: true, ..Features::default() }
}

impl Rig {
    /// Nothing runs in the background unless it is started.
    pub(super) fn new(features: Features, settings: Settings) -> Self {
        let runtime = TokioRuntime::current();
        let leases = MemoryStore::new(OwnerId::from_text("me"), TTL, runtime.clone());
        let peer = leases.seen_by(OwnerId::from_text("peer"));
        let store = Arc::new(TestStore {
            leases,
            line: Mutex::new(Line::Up),
            calls_left: Mutex::new(None),
            calls: AtomicU64::new(0),
            sees_peers: true,
        });
        let backend = Arc::new(TestBackend::default());
        let name = "test".parse().unwrap();
        let parts = Parts {
            provider: name,
            features,
            settings,
            backend: backend.clone(),
            store: store.clone(),
            ledger: None,
            runtime,
        };
        let lifecycle = Lifecycle::new(parts).unwrap();
        Self { backend, store, peer, lifecycle }
    }

    pub(super) fn plain() -> Self {
        Self::new(features(), settings())
    }

    pub(super) fn line(&self, line: Line) {
        *self.store.line.lock() = line;
        *self.store.calls_left.lock() = None;
    }

    pub(super) fn phase(&self, id: &SandboxId) -> PhaseName {
        self.lifecycle.list().iter().find(|status| status.id == *id).map_or(PhaseName::Vacant, |status| status.phase)
    }

    pub(super) async fn owner(&self, id: &SandboxId) -> Option<String> {
        let lease = self.peer.owner(id).await.unwrap()?;
        Some(format!("{}{}", lease.state.prefix(), lease.owner))
    }
}

pub(super) fn settings() -> Settings {
    let lease = LeaseTimes::new(TTL / 4, 4.0).unwrap();
    Settings { lease, capacity: CapacityPolicy::Soft { replicas: 100 }, ..Settings::default() }
}

pub(super) fn scope(thread: &str) -> Scope {
    Scope::new("default".parse().unwrap(), thread.parse().unwrap())
}
