//! Providers whose sandboxes cost nothing.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::super::*;
use super::rig::*;

fn rig(remembered: usize) -> Rig {
    let features = Features { ephemeral: true, id_scheme: IdScheme::Readable, ..Features::default() };
    Rig::new(features, Settings { remembered, ..settings() })
}

#[tokio::test(start_paused = true)]
async fn what_is_known_costs_no_round_trip() {
    let rig = rig(256);
    rig.lifecycle.start();
    let id = rig.lifecycle.acquire(&scope("t")).await.unwrap().id().clone();
    assert_eq!(id.as_str(), "test:t");
    for _ in 0..10 {
        drop(rig.lifecycle.acquire(&scope("t")).await.unwrap());
    }
    assert_eq!(rig.backend.calls.load(Ordering::Relaxed), 1);
    assert_eq!(rig.store.calls.load(Ordering::Relaxed), 0);
    assert!(rig.lifecycle.get(&id).is_some(), "released, and still known");
    tokio::time::sleep(Duration::from_secs(100_000)).await;
    assert!(rig.lifecycle.get(&id).is_some(), "nothing idles out");
    assert_eq!(rig.store.calls.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn only_so_many_are_remembered_and_those_in_use_stay() {
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
    assert!(rig.lifecycle.get(&"test:t99".parse().unwrap()).is_some(), "the newest is remembered");
    assert!(rig.lifecycle.get(&"test:t0".parse().unwrap()).is_none(), "the oldest is not");
    drop(pin);
    rig.lifecycle.reset().await;
    assert_eq!(rig.lifecycle.list().len(), 1, "a reset forgets what nobody holds");
    assert_eq!(rig.backend.script.lock().stopped, [] as [u64; 0], "there is nothing to stop");
}

#[tokio::test(start_paused = true)]
async fn destroying_forgets() {
    let rig = rig(8);
    let id = rig.lifecycle.acquire(&scope("t")).await.unwrap().detach();
    assert_eq!(rig.lifecycle.destroy(&id, false).await.unwrap(), Stopped::Yes);
    assert!(rig.lifecycle.get(&id).is_none());
    assert_eq!(rig.store.calls.load(Ordering::Relaxed), 0);
}

#[test]
fn a_sandbox_takes_a_few_hundred_bytes() {
    use super::super::slot::{Slot, Tenancy};
    let size = size_of::<Slot>() + size_of::<Tenancy>();
    assert!(size <= 400, "{size} bytes, without the ids' own text");
}
