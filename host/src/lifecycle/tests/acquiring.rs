//! Acquiring, holding, releasing and looking up.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::join_all;

use super::super::*;
use super::rig::*;
use crate::error::Code;
use crate::ownership::{Purpose, Store};

#[tokio::test(start_paused = true)]
async fn a_sandbox_is_made_once_then_reused_then_taken_back() {
    let rig = Rig::plain();
    let first = rig.lifecycle.acquire(&scope("t")).await.unwrap();
    let id = first.id().clone();
    assert_eq!(id, scope("t").hashed_id());
    let second = rig.lifecycle.acquire(&scope("t")).await.unwrap();
    assert_eq!(second.instance(), first.instance());
    assert_eq!(rig.owner(&id).await.unwrap(), "own:me");
    first.release().await;
    assert_eq!(rig.phase(&id), PhaseName::Active, "someone still holds it");
    second.release().await;
    assert_eq!(rig.phase(&id), PhaseName::Warm);
    assert!(rig.lifecycle.get(&id).is_none(), "a parked sandbox is not handed out");
    let third = rig.lifecycle.acquire(&scope("t")).await.unwrap();
    assert_eq!(rig.phase(third.id()), PhaseName::Active);
    assert_eq!(rig.backend.script.lock().made, 1);
}

#[tokio::test(start_paused = true)]
async fn get_works_while_store_and_backend_block_forever() {
    let rig = Rig::plain();
    let hold = rig.lifecycle.acquire(&scope("t")).await.unwrap();
    rig.line(Line::Hangs);
    {
        let mut script = rig.backend.script.lock();
        (script.probe, script.find, script.create) = (Step::Hangs, Step::Hangs, Step::Hangs);
    }
    let calls = || rig.store.calls.load(Ordering::Relaxed) + rig.backend.calls.load(Ordering::Relaxed);
    let before = calls();
    // Not a future: there is nothing in it that could wait.
    let pin = rig.lifecycle.get(hold.id()).unwrap();
    assert_eq!(pin.instance(), hold.instance());
    assert!(rig.lifecycle.get(&scope("other").hashed_id()).is_none());
    assert_eq!(calls(), before);
}

#[tokio::test(start_paused = true)]
async fn consumers_that_only_know_the_id_are_counted_too() {
    let rig = Rig::plain();
    let one = rig.lifecycle.acquire(&scope("t")).await.unwrap().detach();
    let two = rig.lifecycle.acquire(&scope("t")).await.unwrap().detach();
    rig.lifecycle.release(&one).await;
    assert_eq!(rig.phase(&one), PhaseName::Active);
    rig.lifecycle.release(&two).await;
    assert_eq!(rig.phase(&one), PhaseName::Warm);
    // Once too often is nothing.
    rig.lifecycle.release(&two).await;
    rig.lifecycle.release(&scope("unknown").hashed_id()).await;
}

#[tokio::test(start_paused = true)]
async fn one_that_exists_is_found_and_taken_over() {
    let rig = Rig::plain();
    let id = scope("t").hashed_id();
    rig.backend.plant(&id, None);
    assert!(rig.peer.take(&id).await.unwrap());
    let hold = rig.lifecycle.acquire(&scope("t")).await.unwrap();
    assert_eq!((rig.backend.live(), rig.owner(hold.id()).await.unwrap()), (1, "own:me".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_dead_one_is_replaced_and_an_unknown_one_is_kept() {
    let rig = Rig::plain();
    let hold = rig.lifecycle.acquire(&scope("t")).await.unwrap();
    rig.backend.script.lock().probe = Step::Fails;
    let again = rig.lifecycle.acquire(&scope("t")).await.unwrap();
    assert_eq!(again.instance(), hold.instance());
    rig.backend.script.lock().probe = Step::Hangs;
    let again = rig.lifecycle.acquire(&scope("t")).await.unwrap();
    assert_eq!(again.instance(), hold.instance(), "a hung probe is unknown too");
    {
        let mut script = rig.backend.script.lock();
        script.probe = Step::Works;
        script.live.clear();
    }
    let fresh = rig.lifecycle.acquire(&scope("t")).await.unwrap();
    assert_ne!(fresh.instance(), hold.instance());
    assert_eq!(rig.backend.live(), 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_handed_out_unpublished() {
    let rig = Rig::plain();
    rig.line(Line::Down);
    let error = rig.lifecycle.acquire(&scope("t")).await.unwrap_err();
    assert_eq!((error.code(), rig.backend.live()), (Code::LeaseStoreDown, 0));
    rig.line(Line::Up);
    let hold = rig.lifecycle.acquire(&scope("t")).await.unwrap();
    rig.line(Line::Down);
    assert_eq!(rig.lifecycle.acquire(&scope("t")).await.unwrap_err().code(), Code::LeaseStoreDown);
    hold.release().await;
    assert_eq!(rig.lifecycle.acquire(&scope("t")).await.unwrap_err().code(), Code::LeaseStoreDown);
    assert_eq!(rig.phase(&scope("t").hashed_id()), PhaseName::Warm, "the entry stays");
}

#[tokio::test(start_paused = true)]
async fn a_new_one_that_cannot_be_published_is_stopped_as_soon_as_that_is_safe() {
    let rig = Rig::plain();
    // The first take works, the one after the create does not.
    *rig.store.calls_left.lock() = Some(1);
    let error = rig.lifecycle.acquire(&scope("t")).await.unwrap_err();
    assert_eq!(error.code(), Code::LeaseStoreDown);
    let id = scope("t").hashed_id();
    assert!(rig.lifecycle.get(&id).is_none());
    rig.line(Line::Up);
    rig.lifecycle.reap().await;
    assert_eq!(rig.backend.live(), 0);
    assert_eq!((rig.phase(&id), rig.owner(&id).await), (PhaseName::Vacant, None));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_found_the_unpublished_one_keeps_it() {
    let rig = Rig::plain();
    *rig.store.calls_left.lock() = Some(1);
    rig.lifecycle.acquire(&scope("t")).await.unwrap_err();
    let id = scope("t").hashed_id();
    assert!(rig.peer.take(&id).await.unwrap());
    rig.line(Line::Up);
    rig.lifecycle.reap().await;
    rig.lifecycle.renew().await;
    assert_eq!((rig.backend.live(), rig.phase(&id)), (1, PhaseName::Vacant));
    assert_eq!(rig.owner(&id).await.unwrap(), "own:peer");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_made_or_taken_while_a_peer_tears_it_down() {
    let rig = Rig::plain();
    let id = scope("t").hashed_id();
    assert!(rig.peer.claim(&id, Purpose::Destroy).await.unwrap());
    assert_eq!(rig.lifecycle.acquire(&scope("t")).await.unwrap_err().code(), Code::BeingDestroyed);
    rig.backend.plant(&id, None);
    let error = rig.lifecycle.acquire(&scope("t")).await.unwrap_err();
    assert!(error.code() == Code::BeingDestroyed && error.retry_after().is_some());
    assert_eq!((rig.backend.live(), rig.phase(&id)), (1, PhaseName::Vacant));
    rig.peer.release(&id).await.unwrap();
    assert!(rig.lifecycle.acquire(&scope("t")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_failed_create_leaves_nothing_behind() {
    let rig = Rig::plain();
    for step in [Step::Fails, Step::Hangs] {
        rig.backend.script.lock().create = step;
        let error = rig.lifecycle.acquire(&scope("t")).await.unwrap_err();
        assert!(error.to_string().contains(scope("t").hashed_id().as_str()), "{error}");
        assert_eq!(rig.lifecycle.used(), 0);
        assert!(rig.peer.take(&scope("t").hashed_id()).await.unwrap(), "a peer may try");
    }
    assert!(rig.lifecycle.list().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_leaves_a_parked_sandbox() {
    let rig = Rig::plain();
    rig.backend.script.lock().create = Step::Takes(Duration::from_secs(10));
    let given_up = tokio::time::timeout(Duration::from_secs(1), rig.lifecycle.acquire(&scope("t"))).await;
    assert!(given_up.is_err());
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!((rig.phase(&scope("t").hashed_id()), rig.backend.live()), (PhaseName::Warm, 1));
}

#[tokio::test(start_paused = true)]
async fn another_scope_with_the_same_id_is_refused() {
    // Readable ids make a collision easy to construct: the backend's own inventory names another scope.
    let rig = Rig::plain();
    let id = scope("t").hashed_id();
    rig.backend.plant(&id, Some(&scope("someone-else")));
    rig.lifecycle.reconcile().await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    rig.lifecycle.reconcile().await.unwrap();
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(rig.lifecycle.reconcile().await.unwrap().adopted, 1);
    let error = rig.lifecycle.acquire(&scope("t")).await.unwrap_err();
    assert_eq!(error.code(), Code::IdentityCollision);
    assert_eq!((rig.phase(&id), rig.backend.live()), (PhaseName::Warm, 1), "nothing was overwritten");
}

#[tokio::test(start_paused = true)]
async fn different_scopes_never_wait_for_each_other() {
    let rig = Rig::new(features(), Settings { capacity: CapacityPolicy::Soft { replicas: 2000 }, ..settings() });
    rig.backend.script.lock().create = Step::Takes(Duration::from_secs(1));
    let start = tokio::time::Instant::now();
    let scopes: Vec<_> = (0..1000).map(|number| scope(&format!("t{number}"))).collect();
    let holds = join_all(scopes.iter().map(|scope| rig.lifecycle.acquire(scope))).await;
    assert!(holds.iter().all(Result::is_ok));
    // The clock is virtual: one after the other would be a thousand seconds.
    assert!(start.elapsed() < Duration::from_millis(1100), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_hundred_callers_of_one_scope_share_one_sandbox() {
    let rig = Rig::plain();
    let one = scope("t");
    let holds = join_all((0..100).map(|_| rig.lifecycle.acquire(&one))).await;
    assert!(holds.iter().all(Result::is_ok));
    assert_eq!((rig.backend.live(), rig.lifecycle.used()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn one_that_a_peer_stopped_while_it_was_made_is_made_again() {
    let rig = Rig::plain();
    // No renewal runs, so the lease lapses while it is made.
    rig.backend.script.lock().create = Step::Takes(TTL * 2);
    let lifecycle = rig.lifecycle.clone();
    let acquire = tokio::spawn(async move { lifecycle.acquire(&scope("t")).await });
    tokio::time::sleep(TTL + Duration::from_secs(1)).await;
    let id = scope("t").hashed_id();
    assert_eq!(rig.owner(&id).await, None);
    // A peer sees it before we are told, and stops it; when we hear of it, the peer's lease is gone, too.
    rig.backend.script.lock().stop_the_next = true;
    let hold = acquire.await.unwrap().unwrap();
    assert_eq!((rig.backend.live(), rig.backend.script.lock().made), (1, 2));
    assert_eq!(hold.instance().record, record(2));
    assert_eq!(rig.owner(&id).await.unwrap(), "own:me");
}
