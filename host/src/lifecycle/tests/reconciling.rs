//! Reconciliation with what the backend has.

use std::sync::Arc;
use std::time::Duration;

use super::super::*;
use super::rig::*;
use crate::ownership::{MemoryStore, OwnerId, Store};
use crate::runtime::TokioRuntime;

#[tokio::test(start_paused = true)]
async fn what_nobody_owns_is_adopted_after_a_whole_time_to_live() {
    let rig = Rig::plain();
    let id = scope("t").hashed_id();
    rig.backend.plant(&id, None);
    for _ in 0..4 {
        assert_eq!(rig.lifecycle.reconcile().await.unwrap().deferred, 1);
        tokio::time::sleep(TTL / 4).await;
    }
    assert_eq!(rig.lifecycle.reconcile().await.unwrap().adopted, 1);
    assert_eq!((rig.phase(&id), rig.owner(&id).await.unwrap()), (PhaseName::Warm, "own:me".to_owned()));
    // Its first claimant may have it: nobody knows whose it was.
    assert_eq!(rig.lifecycle.acquire(&scope("t")).await.unwrap().instance().scope, Some(scope("t")));
    assert_eq!(rig.backend.live(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_published_lease_or_an_unanswered_question_resets_the_grace() {
    let rig = Rig::plain();
    let id = scope("t").hashed_id();
    rig.backend.plant(&id, None);
    for disturbance in 0..2 {
        for _ in 0..3 {
            rig.lifecycle.reconcile().await.unwrap();
            tokio::time::sleep(TTL / 4).await;
        }
        if disturbance == 0 {
            assert!(rig.peer.take(&id).await.unwrap());
            rig.lifecycle.reconcile().await.unwrap();
            rig.peer.release(&id).await.unwrap();
        } else {
            rig.line(Line::Down);
            rig.lifecycle.reconcile().await.unwrap();
            rig.line(Line::Up);
        }
        rig.lifecycle.reconcile().await.unwrap();
        tokio::time::sleep(TTL / 2).await;
        assert_eq!(rig.lifecycle.reconcile().await.unwrap().adopted, 0, "{disturbance}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_peers_sandbox_is_neither_adopted_nor_stopped() {
    let rig = Rig::plain();
    let id = scope("t").hashed_id();
    rig.backend.plant(&id, None);
    for _ in 0..20 {
        assert!(rig.peer.take(&id).await.unwrap());
        rig.lifecycle.reconcile().await.unwrap();
        rig.lifecycle.reap().await;
        tokio::time::sleep(TTL / 4).await;
    }
    assert_eq!((rig.backend.live(), rig.phase(&id)), (1, PhaseName::Vacant));
}

#[tokio::test(start_paused = true)]
async fn a_store_without_peers_adopts_at_once() {
    let runtime = TokioRuntime::current();
    let store = MemoryStore::new(OwnerId::from_text("me"), TTL, runtime.clone());
    let backend = Arc::new(TestBackend::default());
    for number in 0..5 {
        backend.plant(&scope(&format!("t{number}")).hashed_id(), None);
    }
    let parts = Parts {
        provider: "test".parse().unwrap(),
        features: features(),
        settings: settings(),
        backend,
        store: Arc::new(store),
        ledger: None,
        runtime,
    };
    let lifecycle = Lifecycle::new(parts).unwrap();
    let report = lifecycle.reconcile().await.unwrap();
    assert_eq!((report.listed, report.complete, report.adopted), (5, true, 5));
    assert_eq!(lifecycle.reconcile().await.unwrap().adopted, 0, "what is tracked is left alone");
}

#[tokio::test(start_paused = true)]
async fn one_that_vanished_is_dropped_and_one_that_is_there_is_not_even_asked() {
    let rig = Rig::plain();
    let hold = rig.lifecycle.acquire(&scope("t")).await.unwrap();
    let id = hold.id().clone();
    hold.release().await;
    rig.backend.script.lock().probe = Step::Hangs;
    for _ in 0..5 {
        assert_eq!(rig.lifecycle.reconcile().await.unwrap().dead, 0);
    }
    rig.backend.script.lock().probe = Step::Works;
    rig.backend.script.lock().live.clear();
    assert_eq!(rig.lifecycle.reconcile().await.unwrap().dead, 1);
    assert_eq!((rig.phase(&id), rig.lifecycle.used()), (PhaseName::Vacant, 0));
}

#[tokio::test(start_paused = true)]
async fn a_failed_or_partial_inventory_proves_nothing_absent() {
    let rig = Rig::new(
        features(),
        Settings { reconcile: ReconcileBudget { max_pages: 1, ..ReconcileBudget::default() }, ..settings() },
    );
    let mut holds = Vec::new();
    for number in 0..5 {
        holds.push(rig.lifecycle.acquire(&scope(&format!("t{number}"))).await.unwrap());
    }
    rig.backend.script.lock().live.remove(&5);
    let report = rig.lifecycle.reconcile().await.unwrap();
    assert_eq!((report.listed, report.complete, report.dead), (2, false, 0));
    // The next one goes on where this one stopped, and is no whole inventory either.
    let report = rig.lifecycle.reconcile().await.unwrap();
    assert_eq!((report.listed, report.complete, report.dead), (2, false, 0));
    rig.backend.script.lock().inventory = Step::Fails;
    assert!(rig.lifecycle.reconcile().await.is_err());
    assert_eq!(rig.lifecycle.list().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_hangs_does_not_hold_up_the_start() {
    let rig = Rig::plain();
    rig.backend.script.lock().inventory = Step::Hangs;
    rig.lifecycle.start(Upkeep::Full);
    let start = tokio::time::Instant::now();
    rig.lifecycle.acquire(&scope("t")).await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_second_sandbox_of_an_id_is_stopped_after_its_grace() {
    let rig = Rig::plain();
    rig.lifecycle.start(Upkeep::Full);
    let hold = rig.lifecycle.acquire(&scope("t")).await.unwrap();
    let pin = rig.lifecycle.get(hold.id()).unwrap();
    let double = rig.backend.plant(hold.id(), Some(&scope("t")));
    tokio::time::sleep(TTL / 2).await;
    assert_eq!(rig.backend.live(), 2);
    tokio::time::sleep(TTL * 2).await;
    assert_eq!(rig.backend.script.lock().stopped, [double]);
    assert_eq!((pin.instance(), rig.owner(hold.id()).await.unwrap()), (hold.instance(), "own:me".to_owned()));
    assert_eq!(rig.phase(hold.id()), PhaseName::Active);
}
