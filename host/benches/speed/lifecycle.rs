//! What lending costs the host: the lifecycle alone, with a backend that answers at once, and a real Redis.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures::future::{self, BoxFuture, FutureExt};
use sandgate::Result;
use sandgate::ids::{ProviderName, SandboxId, Scope, ThreadId, UserId};
use sandgate::lifecycle::{
    Backend, CapacityPolicy, Features, Instance, InstanceRecord, Lifecycle, Liveness, Page, Parts, Settings, Wanted,
};
use sandgate::ownership::{LeaseTimes, MemoryStore, OwnerId, RedisConnection, RedisStore, Renewal, Store};
use sandgate::runtime::TokioRuntime;

use super::counting::ALLOCATIONS;
use super::redis::RedisServer;
use super::table::{Bound, Table, Times, in_turn};

const GETS: u32 = 1_000_000;
const ACQUIRES: usize = 2_000;
const LEASES: usize = 10_000;
const SCOPES: usize = 1_000;
/// How long the slow backend takes to make a sandbox: long against the host's own work for a thousand of them.
const CREATE: Duration = Duration::from_millis(200);

/// A backend that answers at once, or makes sandboxes slowly.
struct Bench {
    create: Duration,
}

impl Backend for Bench {
    fn create<'a>(&'a self, _: &'a Wanted) -> BoxFuture<'a, Result<InstanceRecord>> {
        async {
            if !self.create.is_zero() {
                tokio::time::sleep(self.create).await;
            }
            Ok(InstanceRecord::new(b"record".to_vec()))
        }
        .boxed()
    }

    fn find<'a>(&'a self, _: &'a Wanted) -> BoxFuture<'a, Result<Option<InstanceRecord>>> {
        future::ready(Ok(None)).boxed()
    }

    fn inventory(&self, _: Option<String>) -> BoxFuture<'_, Result<Page>> {
        future::ready(Ok(Page::default())).boxed()
    }

    fn probe<'a>(&'a self, _: &'a Instance) -> BoxFuture<'a, Result<Liveness>> {
        future::ready(Ok(Liveness::Alive)).boxed()
    }

    fn destroy<'a>(&'a self, _: &'a Instance) -> BoxFuture<'a, Result<()>> {
        future::ready(Ok(())).boxed()
    }

    fn extend<'a>(&'a self, _: &'a Instance, _: Duration) -> BoxFuture<'a, Result<()>> {
        future::ready(Ok(())).boxed()
    }
}

fn lifecycle(store: Arc<dyn Store>, create: Duration) -> Lifecycle {
    Lifecycle::new(Parts {
        provider: ProviderName::new("bench").unwrap(),
        features: Features { findable: true, listable: true, ..Features::default() },
        settings: Settings { capacity: CapacityPolicy::Soft { replicas: 100_000 }, ..Settings::default() },
        backend: Arc::new(Bench { create }),
        store,
        ledger: None,
        runtime: TokioRuntime::current(),
    })
    .unwrap()
}

fn memory() -> Arc<dyn Store> {
    let ttl = LeaseTimes::default().ttl();
    Arc::new(MemoryStore::new(OwnerId::generate().unwrap(), ttl, TokioRuntime::current()))
}

fn scope(number: usize) -> Scope {
    Scope::new(UserId::default(), ThreadId::new(format!("t{number}")).unwrap())
}

pub(crate) async fn rows(table: &mut Table) {
    get(table).await;
    warm_on_memory(table).await;
    at_once(table).await;
    redis(table).await;
}

async fn get(table: &mut Table) {
    let (name, allocations) = ("get a sandbox that is lent, of 1,000", "allocations of a get");
    if !table.wants(name) && !table.wants(allocations) {
        return;
    }
    let lifecycle = lifecycle(memory(), Duration::ZERO);
    let mut holds = Vec::new();
    for number in 0..SCOPES {
        holds.push(lifecycle.acquire(&scope(number)).await.unwrap());
    }
    let ids: Vec<SandboxId> = holds.iter().map(|hold| hold.id().clone()).collect();
    let mut times = Times::default();
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let mut allocated = 0;
    for _ in 0..20 {
        let (begun, counted) = (Instant::now(), ALLOCATIONS.load(Ordering::Relaxed));
        for number in 0..GETS / 20 {
            let pin = lifecycle.get(&ids[number as usize % ids.len()]);
            assert!(std::hint::black_box(pin).is_some());
        }
        allocated += ALLOCATIONS.load(Ordering::Relaxed) - counted;
        times.push(begun.elapsed() / (GETS / 20));
    }
    assert!(before > 0, "nothing counts");
    table.add(name, times.shown(), "-".into(), times.median().as_secs_f64() * 1e9, Bound::AtMost(200.0, "ns"));
    table.add(allocations, allocated.to_string(), "-".into(), allocated as f64, Bound::AtMost(0.0, "of 1,000,000"));
}

async fn warm_on_memory(table: &mut Table) {
    let name = "acquire a parked sandbox, leases in memory";
    if !table.wants(name) {
        return;
    }
    let lifecycle = lifecycle(memory(), Duration::ZERO);
    let scope = scope(0);
    lifecycle.acquire(&scope).await.unwrap().release().await;
    // In a task, as a server's requests are: the thread that blocks on this bench would wait for another to be woken.
    let times = tokio::spawn(async move {
        let mut times = Times::default();
        for _ in 0..ACQUIRES {
            let begun = Instant::now();
            let hold = lifecycle.acquire(&scope).await.unwrap();
            times.push(begun.elapsed());
            hold.release().await;
        }
        times
    });
    let times = times.await.unwrap();
    table.add(name, times.shown(), "-".into(), times.median().as_secs_f64() * 1e6, Bound::AtMost(50.0, "µs"));
}

async fn at_once(table: &mut Table) {
    let name = "1,000 acquires at once against one";
    if !table.wants(name) {
        return;
    }
    let (mut many, mut one) = (Times::default(), Times::default());
    for _ in 0..3 {
        let lifecycle = lifecycle(memory(), CREATE);
        let begun = Instant::now();
        let _hold = lifecycle.acquire(&scope(SCOPES)).await.unwrap();
        one.push(begun.elapsed());
        let begun = Instant::now();
        let scopes: Vec<Scope> = (0..SCOPES).map(scope).collect();
        let holds = future::join_all(scopes.iter().map(|scope| lifecycle.acquire(scope))).await;
        assert!(holds.iter().all(Result::is_ok));
        many.push(begun.elapsed());
    }
    // If they waited for one another, it would be a thousand times as long.
    table.time(name, &many, &one, 1.5);
}

async fn redis(table: &mut Table) {
    let (acquire, renew) = ("acquire a parked sandbox, leases in Redis", "renew 10,000 leases in Redis");
    if !table.wants(acquire) && !table.wants(renew) {
        return;
    }
    let server = RedisServer::start(&[]);
    let connection = RedisConnection::open(&server.url(), None).unwrap();
    let me = OwnerId::generate().unwrap();
    let store = Arc::new(RedisStore::new(connection, "bench:owner", me, LeaseTimes::default().ttl()));
    if table.wants(acquire) {
        let lifecycle = lifecycle(store.clone(), Duration::ZERO);
        let (mine, other) = (scope(0), scope(1).hashed_id());
        lifecycle.acquire(&mine).await.unwrap().release().await;
        let (mut ours, mut theirs) = (Times::default(), Times::default());
        for _ in 0..ACQUIRES {
            let begun = Instant::now();
            let hold = lifecycle.acquire(&mine).await.unwrap();
            ours.push(begun.elapsed());
            hold.release().await;
            // The probe of this backend costs nothing, so that the lease's round trip is all that there is.
            let begun = Instant::now();
            assert!(store.take(&other).await.unwrap());
            theirs.push(begun.elapsed());
        }
        table.time(acquire, &ours, &theirs, 1.3);
    }
    if table.wants(renew) {
        let ids: Vec<SandboxId> = (0..LEASES).map(|number| scope(number).hashed_id()).collect();
        future::join_all(ids.iter().map(|id| store.take(id)))
            .await
            .into_iter()
            .for_each(|taken| assert!(taken.unwrap()));
        let (together, one_by_one) = in_turn(
            10,
            || async {
                let renewed = store.renew(&ids).await.unwrap();
                assert!(renewed.len() == LEASES && renewed.iter().all(|renewal| *renewal == Renewal::Renewed));
            },
            || async {
                // A hundredth of it: ten thousand round trips take a while.
                for id in &ids[..LEASES / 100] {
                    store.renew(std::slice::from_ref(id)).await.unwrap();
                }
            },
        )
        .await;
        let rate = |times: &Times, leases: usize| leases as f64 / times.median().as_secs_f64();
        let shown = |rate: f64| format!("{rate:.0}/s");
        let (ours, theirs) = (rate(&together, LEASES), rate(&one_by_one, LEASES / 100));
        table.add(renew, shown(ours), shown(theirs), ours, Bound::AtLeast(100_000.0, "leases/s"));
    }
}
