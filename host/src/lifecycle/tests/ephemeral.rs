//! Providers whose sandboxes cost nothing.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::super::*;
use super::rig::*;
use crate::error::Code;

fn rig(limit: u32) -> Rig {
    let features = Features { ephemeral: true, id_scheme: IdScheme::Readable, ..Features::default() };
    let capacity = CapacityPolicy::Reject { limit };
    Rig::new(features, Settings { capacity, idle_timeout: Duration::ZERO, ..settings() })
}

#[tokio::test(start_paused = true)]
async fn what_is_known_costs_no_round_trip() {
    let rig = rig(256);
    rig.lifecycle.start(Upkeep::Full);
    let id = rig.lifecycle.acquire(&scope("t")).await.unwrap().id().clone();
    assert_eq!(id.as_str(), "test:t");
    for _ in 0..10 {
        drop(rig.lifecycle.acquire(&scope("t")).await.unwrap());
    }
    assert_eq!(rig.backend.calls.load(Ordering::Relaxed), 1);
    assert!(rig.lifecycle.get(&id).is_none(), "released, and so not handed out");
    tokio::time::sleep(Duration::from_secs(100_000)).await;
    assert_eq!(rig.phase(&id), PhaseName::Warm, "nothing idles out");
    assert_eq!(rig.store.calls.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn an_idle_timeout_holds_for_them_too() {
    let features = Features { ephemeral: true, ..Features::default() };
    let rig = Rig::new(features, settings());
    rig.lifecycle.start(Upkeep::Full);
    let held = rig.lifecycle.acquire(&scope("held")).await.unwrap();
    let id = rig.lifecycle.acquire(&scope("t")).await.unwrap().id().clone();
    tokio::time::sleep(settings().idle_timeout * 2).await;
    assert_eq!((rig.phase(&id), rig.phase(held.id())), (PhaseName::Vacant, PhaseName::Active));
    assert_eq!(rig.backend.live(), 1);
    assert_eq!(rig.store.calls.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn those_parked_first_make_room_and_those_in_use_stay() {
    let rig = rig(8);
    let held = rig.lifecycle.acquire(&scope("held")).await.unwrap();
    let pinned = rig.lifecycle.acquire(&scope("pinned")).await.unwrap().detach();
    let pin = rig.lifecycle.get(&pinned).unwrap();
    for number in 0..100 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(rig.lifecycle.acquire(&scope(&format!("t{number}"))).await.unwrap());
        assert!(rig.lifecycle.list().len() <= 8);
    }
    assert!(rig.lifecycle.get(held.id()).is_some() && rig.lifecycle.get(&pinned).is_some());
    assert_eq!(rig.phase(&"test:t99".parse().unwrap()), PhaseName::Warm, "the newest is there");
    assert_eq!(rig.phase(&"test:t0".parse().unwrap()), PhaseName::Vacant, "the oldest is not");
    assert_eq!(rig.backend.live(), 8, "what made room was ended");
    drop(pin);
    rig.lifecycle.release(&pinned).await;
    rig.lifecycle.reset().await;
    assert_eq!(rig.lifecycle.list().len(), 1, "a reset ends what nobody holds");
    assert_eq!(rig.backend.live(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_full_house_is_refused_and_a_running_operation_is_use_enough() {
    let rig = rig(1);
    let hold = rig.lifecycle.acquire(&scope("a")).await.unwrap();
    let pin = hold.pin();
    drop(hold);
    assert_eq!(rig.lifecycle.acquire(&scope("b")).await.unwrap_err().code(), Code::Capacity);
    drop(pin);
    assert!(rig.lifecycle.acquire(&scope("b")).await.is_ok());
    assert_eq!(rig.backend.live(), 1);
}

#[tokio::test(start_paused = true)]
async fn destroying_ends_it_and_a_failed_stop_keeps_it() {
    let rig = rig(8);
    let id = rig.lifecycle.acquire(&scope("t")).await.unwrap().detach();
    rig.backend.script.lock().destroy = Step::Fails;
    assert!(rig.lifecycle.destroy(&id, false).await.is_err());
    assert_eq!(rig.phase(&id), PhaseName::Active);
    rig.backend.script.lock().destroy = Step::Works;
    assert_eq!(rig.lifecycle.destroy(&id, false).await.unwrap(), Stopped::Yes);
    assert!(rig.lifecycle.get(&id).is_none());
    assert_eq!((rig.backend.live(), rig.store.calls.load(Ordering::Relaxed)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn one_whose_last_consumer_goes_while_its_stop_fails_is_parked() {
    let rig = rig(1);
    let hold = rig.lifecycle.acquire(&scope("t")).await.unwrap();
    let id = hold.id().clone();
    rig.backend.script.lock().destroy = Step::Hangs;
    let lifecycle = rig.lifecycle.clone();
    let stop = tokio::spawn({
        let id = id.clone();
        async move { lifecycle.destroy(&id, true).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    hold.release().await;
    assert!(stop.await.unwrap().is_err());
    assert_eq!(rig.phase(&id), PhaseName::Warm);
    rig.backend.script.lock().destroy = Step::Works;
    assert!(rig.lifecycle.acquire(&scope("other")).await.is_ok(), "its place is not lost");
}

#[test]
fn a_sandbox_takes_a_few_hundred_bytes() {
    use super::super::slot::{Slot, Tenancy};
    let size = size_of::<Slot>() + size_of::<Tenancy>();
    assert!(size <= 400, "{size} bytes, without the ids' own text");
}
