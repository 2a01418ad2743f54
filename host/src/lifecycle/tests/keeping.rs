//! Renewal.

use std::time::Duration;

use super::super::*;
use super::rig::*;
use crate::ownership::{MemoryStore, Store};

async fn pass(rig: &Rig, time: Duration) {
    let _ = rig;
    tokio::time::sleep(time).await;
}

#[tokio::test(start_paused = true)]
async fn leases_are_kept_whatever_the_idle_timeout() {
    for idle_timeout in [Duration::ZERO, Duration::from_secs(1_000_000)] {
        let rig = Rig::new(features(), Settings { idle_timeout, ..settings() });
        rig.lifecycle.start(Upkeep::Full);
        let active = rig.lifecycle.acquire(&scope("active")).await.unwrap();
        let warm = rig.lifecycle.acquire(&scope("warm")).await.unwrap();
        let id = warm.id().clone();
        warm.release().await;
        for _ in 0..100 {
            pass(&rig, TTL / 3).await;
            assert_eq!(rig.owner(active.id()).await.unwrap(), "own:me");
            assert_eq!(rig.owner(&id).await.unwrap(), "own:me");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_outage_of_any_length_costs_nothing() {
    let rig = Rig::plain();
    rig.lifecycle.start(Upkeep::Full);
    let hold = rig.lifecycle.acquire(&scope("t")).await.unwrap();
    rig.line(Line::Down);
    pass(&rig, TTL * 100).await;
    assert!(rig.lifecycle.get(hold.id()).is_some());
    rig.line(Line::Up);
    pass(&rig, TTL / 2).await;
    assert_eq!(rig.owner(hold.id()).await.unwrap(), "own:me");
}

#[tokio::test(start_paused = true)]
async fn a_lapsed_lease_is_claimed_again_and_a_lost_one_is_let_go() {
    let rig = Rig::plain();
    let hold = rig.lifecycle.acquire(&scope("t")).await.unwrap();
    let pin = rig.lifecycle.get(hold.id()).unwrap();
    pass(&rig, TTL * 2).await;
    assert_eq!(rig.owner(hold.id()).await, None);
    rig.lifecycle.renew().await;
    assert_eq!(rig.owner(hold.id()).await.unwrap(), "own:me");
    assert!(rig.peer.take(hold.id()).await.unwrap());
    rig.lifecycle.renew().await;
    assert!(rig.lifecycle.get(hold.id()).is_none());
    assert_eq!((rig.backend.live(), rig.lifecycle.used()), (1, 0), "the sandbox itself is not touched");
    // What runs in it goes on.
    assert_eq!(pin.instance(), hold.instance());
    assert_eq!(rig.owner(hold.id()).await.unwrap(), "own:peer");
    drop(hold);
    pass(&rig, TTL).await;
    assert!(rig.lifecycle.list().iter().all(|status| status.phase == PhaseName::Vacant));
}

#[tokio::test(start_paused = true)]
async fn what_a_peer_took_and_let_go_is_ours_again_while_it_is_in_use() {
    let rig = Rig::plain();
    let hold = rig.lifecycle.acquire(&scope("t")).await.unwrap();
    let pin = hold.pin();
    let id = hold.id().clone();
    assert!(rig.peer.take(&id).await.unwrap());
    rig.lifecycle.renew().await;
    assert_eq!(rig.phase(&id), PhaseName::Vacant);
    rig.lifecycle.renew().await;
    assert_eq!(rig.owner(&id).await.unwrap(), "own:peer", "the peer has it still");
    rig.peer.release(&id).await.unwrap();
    rig.lifecycle.renew().await;
    assert_eq!(rig.owner(&id).await, None, "a peer whose store lost everything looks like that, too");
    pass(&rig, TTL / 4).await;
    rig.lifecycle.renew().await;
    assert_eq!((rig.phase(&id), rig.owner(&id).await.as_deref()), (PhaseName::Active, Some("own:me")));
    assert_eq!((rig.lifecycle.used(), rig.backend.script.lock().made), (1, 1));
    // Released, and an operation goes on: it is parked, and nobody stops it under that.
    hold.release().await;
    assert_eq!(rig.phase(&id), PhaseName::Warm);
    pass(&rig, settings().idle_timeout * 2).await;
    rig.lifecycle.reap().await;
    assert_eq!(rig.backend.live(), 1);
    drop(pin);
}

#[tokio::test(start_paused = true)]
async fn what_a_peer_took_and_ended_is_not_taken_back() {
    let rig = Rig::plain();
    let hold = rig.lifecycle.acquire(&scope("t")).await.unwrap();
    assert!(rig.peer.take(hold.id()).await.unwrap());
    rig.lifecycle.renew().await;
    rig.backend.script.lock().live.clear();
    rig.peer.release(hold.id()).await.unwrap();
    for _ in 0..3 {
        rig.lifecycle.renew().await;
        pass(&rig, TTL / 4).await;
    }
    assert_eq!((rig.phase(hold.id()), rig.owner(hold.id()).await), (PhaseName::Vacant, None));
}

#[tokio::test(start_paused = true)]
async fn what_nobody_uses_any_more_is_not_taken_back() {
    let rig = Rig::plain();
    let hold = rig.lifecycle.acquire(&scope("t")).await.unwrap();
    let id = hold.id().clone();
    assert!(rig.peer.take(&id).await.unwrap());
    rig.lifecycle.renew().await;
    hold.release().await;
    rig.peer.release(&id).await.unwrap();
    for _ in 0..3 {
        rig.lifecycle.renew().await;
        pass(&rig, TTL / 4).await;
    }
    assert_eq!(rig.owner(&id).await, None);
    assert!(rig.lifecycle.list().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_gateway_for_a_single_command_keeps_its_sandbox_from_ending_at_the_backend() {
    let rig = Rig::new(Features { extendable: true, ..features() }, settings());
    rig.lifecycle.start(Upkeep::LeasesOnly);
    let hold = rig.lifecycle.acquire(&scope("t")).await.unwrap();
    let before = rig.backend.script.lock().extended;
    pass(&rig, settings().check_interval * 5).await;
    assert!(rig.backend.script.lock().extended >= before + 4);
    drop(hold);
}

#[tokio::test(start_paused = true)]
async fn a_slow_create_keeps_its_lease() {
    let rig = Rig::plain();
    rig.lifecycle.start(Upkeep::Full);
    rig.backend.script.lock().create = Step::Takes(TTL * 3);
    let lifecycle = rig.lifecycle.clone();
    let acquire = tokio::spawn(async move { lifecycle.acquire(&scope("t")).await });
    pass(&rig, Duration::from_secs(1)).await;
    let id = scope("t").hashed_id();
    for _ in 0..10 {
        pass(&rig, TTL / 4).await;
        assert_eq!(rig.owner(&id).await.unwrap(), "own:me");
        let stranger: &MemoryStore = &rig.peer;
        assert!(!stranger.claim(&id, crate::ownership::Purpose::Keep).await.unwrap());
    }
    assert!(acquire.await.unwrap().is_ok());
}
