//! A hard limit of a whole deployment: two gateways, one backend, and a real Redis for leases and count.

use std::sync::Arc;
use std::time::Duration;

use super::super::*;
use super::rig::*;
use crate::error::Code;
use crate::ownership::test_server::RedisServer;
use crate::ownership::{OwnerId, RedisConnection, RedisLedger, RedisStore, ledger_key};
use crate::runtime::TokioRuntime;

fn gateway(server: &RedisServer, backend: &Arc<TestBackend>, name: &str) -> Lifecycle {
    let connection = RedisConnection::open(&server.url(), None).unwrap();
    let provider = "e2b".parse().unwrap();
    let ledger = RedisLedger::new(connection.clone(), ledger_key("test:owner", &provider), 2);
    let parts = Parts {
        provider,
        features: features(),
        settings: Settings { capacity: CapacityPolicy::Reject { limit: 2 }, ..settings() },
        backend: backend.clone(),
        store: Arc::new(RedisStore::new(connection, "test:owner:e2b", OwnerId::from_text(name), TTL)),
        ledger: Some(Arc::new(ledger)),
        runtime: TokioRuntime::current(),
    };
    Lifecycle::new(parts).unwrap()
}

#[tokio::test]
async fn a_limit_of_the_deployment_holds_for_all_gateways_together() {
    let server = RedisServer::start(&[]);
    let backend = Arc::new(TestBackend::default());
    let (one, two) = (gateway(&server, &backend, "one"), gateway(&server, &backend, "two"));
    let error = one.acquire(&scope("a")).await.unwrap_err();
    assert_eq!(error.code(), Code::CapacityInitializing, "nobody has counted yet: {error}");
    one.reconcile().await.unwrap();
    let a = one.acquire(&scope("a")).await.unwrap();
    let b = two.acquire(&scope("b")).await.unwrap();
    for gateway in [&one, &two] {
        assert_eq!(gateway.acquire(&scope("c")).await.unwrap_err().code(), Code::Capacity);
    }
    assert_eq!(backend.live(), 2);
    // A gateway can only evict what it has parked itself.
    b.release().await;
    assert_eq!(one.acquire(&scope("c")).await.unwrap_err().code(), Code::Capacity);
    let c = two.acquire(&scope("c")).await.unwrap();
    assert_eq!(backend.live(), 2);
    // The sandbox of the other gateway is found and needs no second place.
    assert_eq!(two.acquire(&scope("a")).await.unwrap().instance(), a.instance());
    // A failed create keeps its place: who knows what it left.
    assert_eq!(two.destroy(c.id(), false).await.unwrap(), Stopped::Yes);
    backend.script.lock().create = Step::Fails;
    assert_eq!(two.acquire(&scope("d")).await.unwrap_err().code(), Code::Unavailable);
    backend.script.lock().create = Step::Works;
    assert_eq!(one.acquire(&scope("e")).await.unwrap_err().code(), Code::Capacity);
}

#[tokio::test]
async fn without_the_count_nothing_is_made() {
    let mut server = RedisServer::start(&[]);
    let backend = Arc::new(TestBackend::default());
    let gateway = gateway(&server, &backend, "one");
    gateway.reconcile().await.unwrap();
    server.stop();
    let error = gateway.acquire(&scope("a")).await.unwrap_err();
    assert!(matches!(error.code(), Code::CapacityBackend | Code::LeaseStoreDown), "{error}");
    // A server that comes back empty knows no count either.
    server.restart();
    assert_eq!(gateway.acquire(&scope("a")).await.unwrap_err().code(), Code::CapacityInitializing);
    assert_eq!(backend.live(), 0);
    gateway.reconcile().await.unwrap();
    assert!(gateway.acquire(&scope("a")).await.is_ok());
}

#[tokio::test]
async fn a_single_command_counts_for_itself_and_still_fails_closed() {
    let server = RedisServer::start(&[]);
    let backend = Arc::new(TestBackend::default());
    backend.plant(&scope("x").hashed_id(), None);
    let visitor = gateway(&server, &backend, "one");
    visitor.start(Upkeep::LeasesOnly);
    backend.script.lock().inventory = Step::Fails;
    assert_eq!(visitor.acquire(&scope("a")).await.unwrap_err().code(), Code::CapacityInitializing);
    backend.script.lock().inventory = Step::Works;
    let hold = visitor.acquire(&scope("a")).await.unwrap();
    let error = visitor.acquire(&scope("b")).await.unwrap_err();
    assert_eq!((error.code(), backend.live()), (Code::Capacity, 2), "what was there is counted");
    assert_eq!(visitor.list().len(), 1, "and not adopted");
    drop(hold);
}

#[tokio::test]
async fn what_cannot_be_listed_cannot_be_counted() {
    let server = RedisServer::start(&[]);
    let connection = RedisConnection::open(&server.url(), None).unwrap();
    let parts = Parts {
        provider: "e2b".parse().unwrap(),
        features: Features { findable: true, ..Features::default() },
        settings: Settings { capacity: CapacityPolicy::Wait { limit: 1, timeout: Duration::ZERO }, ..settings() },
        backend: Arc::new(TestBackend::default()),
        store: Arc::new(RedisStore::new(connection.clone(), "p", OwnerId::from_text("a"), TTL)),
        ledger: Some(Arc::new(RedisLedger::new(connection, "k".to_owned(), 1))),
        runtime: TokioRuntime::current(),
    };
    assert_eq!(Lifecycle::new(parts).err().unwrap().code(), Code::Config);
}
