//! Stopping: what is in use, what fails, what takes long, and what is a peer's.

use std::time::Duration;

use super::super::*;
use super::rig::*;
use crate::error::Code;
use crate::ids::SandboxId;
use crate::ownership::{Purpose, Store};

async fn parked(rig: &Rig, thread: &str) -> SandboxId {
    let hold = rig.lifecycle.acquire(&scope(thread)).await.unwrap();
    let id = hold.id().clone();
    hold.release().await;
    assert_eq!(rig.phase(&id), PhaseName::Warm);
    id
}

#[tokio::test(start_paused = true)]
async fn the_marker_is_held_for_as_long_as_the_stop_takes() {
    let rig =
        Rig::new(features(), Settings { deadlines: Deadlines { stop: TTL * 4, ..Deadlines::default() }, ..settings() });
    // Renewal does not run at all here: the heartbeat does not depend on it.
    let id = parked(&rig, "t").await;
    rig.backend.script.lock().destroy = Step::Takes(TTL * 5 / 2);
    let lifecycle = rig.lifecycle.clone();
    let stop = tokio::spawn({
        let id = id.clone();
        async move { lifecycle.destroy(&id, false).await }
    });
    tokio::time::sleep(Duration::from_millis(1)).await;
    let deadline = tokio::time::Instant::now() + TTL * 5 / 2 - Duration::from_secs(1);
    while tokio::time::Instant::now() < deadline {
        assert!(!rig.peer.take(&id).await.unwrap(), "taken after {:?}", tokio::time::Instant::now());
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(rig.phase(&id), PhaseName::TearingDown);
    assert_eq!(stop.await.unwrap().unwrap(), Stopped::Yes);
    assert!(rig.peer.take(&id).await.unwrap(), "at once after the stop");
    tokio::time::sleep(TTL / 2).await;
    assert_eq!(rig.owner(&id).await.unwrap(), "own:peer", "no late refresh");
}

#[tokio::test(start_paused = true)]
async fn a_failed_stop_keeps_the_sandbox_and_frees_the_lease_for_use() {
    let rig = Rig::plain();
    let id = parked(&rig, "t").await;
    rig.backend.script.lock().destroy = Step::Fails;
    let error = rig.lifecycle.destroy(&id, false).await.unwrap_err();
    assert_eq!((error.code(), rig.phase(&id)), (Code::Unavailable, PhaseName::Warm));
    assert_eq!(rig.owner(&id).await.unwrap(), "own:me");
    let hold = rig.lifecycle.acquire(&scope("t")).await.unwrap();
    assert_eq!((rig.backend.script.lock().made, rig.lifecycle.used()), (1, 1));
    drop(hold);
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_hangs_is_an_error_and_its_sandbox_is_never_handed_out_again() {
    let rig = Rig::plain();
    let id = parked(&rig, "t").await;
    rig.backend.script.lock().destroy = Step::Hangs;
    assert_eq!(rig.lifecycle.destroy(&id, false).await.unwrap_err().code(), Code::Timeout);
    assert!(rig.lifecycle.list()[0].doomed, "it stays in the books");
    // The stop may still land, here and at a peer that would have taken it.
    for _ in 0..10 {
        assert_eq!(rig.owner(&id).await.unwrap(), "del:me");
        assert!(!rig.peer.take(&id).await.unwrap());
        tokio::time::sleep(TTL / 4).await;
        rig.lifecycle.renew().await;
    }
    assert_eq!(rig.lifecycle.acquire(&scope("t")).await.unwrap_err().code(), Code::Timeout);
    rig.backend.script.lock().destroy = Step::Works;
    let hold = rig.lifecycle.acquire(&scope("t")).await.unwrap();
    assert_eq!((rig.backend.live(), rig.backend.script.lock().stopped.clone()), (1, vec![1]));
    assert_ne!(hold.instance().record, record(1));
}

#[tokio::test(start_paused = true)]
async fn a_running_operation_is_not_stopped_unless_it_must() {
    let rig = Rig::plain();
    let hold = rig.lifecycle.acquire(&scope("t")).await.unwrap();
    let pin = rig.lifecycle.get(hold.id()).unwrap();
    assert_eq!(rig.lifecycle.destroy(hold.id(), false).await.unwrap(), Stopped::InUse);
    let id = hold.id().clone();
    hold.release().await;
    tokio::time::sleep(Duration::from_secs(10_000)).await;
    rig.lifecycle.reap().await;
    assert_eq!(rig.phase(&id), PhaseName::Warm, "parked, but something still runs in it");
    drop(pin);
    rig.lifecycle.reap().await;
    assert_eq!(rig.phase(&id), PhaseName::Warm, "its end was just now");
    tokio::time::sleep(Duration::from_secs(601)).await;
    rig.lifecycle.renew().await;
    tokio::time::sleep(Duration::from_secs(601)).await;
    rig.store.leases.take(&id).await.unwrap();
    rig.lifecycle.reap().await;
    assert_eq!(rig.phase(&id), PhaseName::Vacant);
    let hold = rig.lifecycle.acquire(&scope("t")).await.unwrap();
    let _pin = rig.lifecycle.get(hold.id()).unwrap();
    assert_eq!(rig.lifecycle.destroy(hold.id(), true).await.unwrap(), Stopped::Yes);
}

#[tokio::test(start_paused = true)]
async fn only_the_idle_are_reaped_and_zero_means_never() {
    for (timeout, waited, left) in [(600, 600, 1), (600, 601, 0), (0, 1_000_000, 1)] {
        let idle_timeout = Duration::from_secs(timeout);
        let rig = Rig::new(features(), Settings { idle_timeout, ..settings() });
        let id = parked(&rig, "t").await;
        let held = rig.lifecycle.acquire(&scope("held")).await.unwrap();
        tokio::time::sleep(Duration::from_secs(waited)).await;
        // The leases are ours as they would be with renewal running.
        rig.store.leases.take(&id).await.unwrap();
        rig.lifecycle.reap().await;
        assert_eq!(rig.backend.live(), left + 1, "{timeout} {waited}");
        assert_eq!(rig.phase(held.id()), PhaseName::Active);
    }
}

#[tokio::test(start_paused = true)]
async fn a_detached_consumer_that_never_comes_back_does_not_keep_it_forever() {
    let rig = Rig::plain();
    let id = rig.lifecycle.acquire(&scope("t")).await.unwrap().detach();
    tokio::time::sleep(Duration::from_secs(601)).await;
    rig.store.leases.take(&id).await.unwrap();
    drop(rig.lifecycle.get(&id).unwrap());
    rig.lifecycle.reap().await;
    assert_eq!(rig.phase(&id), PhaseName::Active, "it was used");
    tokio::time::sleep(Duration::from_secs(601)).await;
    rig.store.leases.take(&id).await.unwrap();
    rig.lifecycle.reap().await;
    assert_eq!(rig.phase(&id), PhaseName::Vacant);
}

#[tokio::test(start_paused = true)]
async fn what_is_a_peers_or_nobody_knows_is_left_alone() {
    let rig = Rig::plain();
    let id = parked(&rig, "t").await;
    rig.line(Line::Down);
    assert_eq!(rig.lifecycle.destroy(&id, true).await.unwrap_err().code(), Code::LeaseStoreDown);
    tokio::time::sleep(Duration::from_secs(601)).await;
    rig.lifecycle.reap().await;
    rig.line(Line::Up);
    assert_eq!((rig.backend.live(), rig.phase(&id)), (1, PhaseName::Warm));
    assert!(rig.peer.take(&id).await.unwrap());
    assert_eq!(rig.lifecycle.destroy(&id, true).await.unwrap(), Stopped::Refused);
    rig.lifecycle.reap().await;
    assert_eq!((rig.backend.live(), rig.phase(&id)), (1, PhaseName::Warm));
}

#[tokio::test(start_paused = true)]
async fn an_absent_lease_is_no_licence_to_reap() {
    let rig = Rig::plain();
    let id = parked(&rig, "t").await;
    tokio::time::sleep(Duration::from_secs(601)).await;
    // Long lapsed by now: who knows who had it meanwhile.
    rig.lifecycle.reap().await;
    assert_eq!((rig.backend.live(), rig.owner(&id).await.unwrap()), (1, "own:me".to_owned()));
    tokio::time::sleep(Duration::from_secs(601)).await;
    rig.store.leases.take(&id).await.unwrap();
    rig.lifecycle.reap().await;
    assert_eq!(rig.backend.live(), 0);
}

#[tokio::test(start_paused = true)]
async fn shutdown_stops_ours_leaves_peers_and_refuses_newcomers() {
    let rig = Rig::plain();
    let (ours, theirs) = (parked(&rig, "ours").await, parked(&rig, "theirs").await);
    let held = rig.lifecycle.acquire(&scope("held")).await.unwrap();
    assert!(rig.peer.take(&theirs).await.unwrap());
    let report = rig.lifecycle.shutdown(ShutdownMode::Stop, Duration::from_secs(5)).await;
    assert_eq!(report, ShutdownReport { stopped: 2, left: 1, failed: 0 });
    assert_eq!((rig.backend.live(), rig.owner(&ours).await), (1, None));
    assert_eq!(rig.owner(&theirs).await.unwrap(), "own:peer");
    assert_eq!(rig.lifecycle.acquire(&scope("new")).await.unwrap_err().code(), Code::ShuttingDown);
    drop(held);
    assert_eq!(rig.lifecycle.shutdown(ShutdownMode::Stop, Duration::ZERO).await, ShutdownReport::default());
}

#[tokio::test(start_paused = true)]
async fn shutdown_gives_operations_time_but_not_forever() {
    let rig = Rig::plain();
    let hold = rig.lifecycle.acquire(&scope("t")).await.unwrap();
    let pin = rig.lifecycle.get(hold.id()).unwrap();
    let start = tokio::time::Instant::now();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(3)).await;
        drop(pin);
    });
    rig.lifecycle.shutdown(ShutdownMode::Stop, Duration::from_secs(60)).await;
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    assert_eq!(rig.backend.live(), 0);
    let rig = Rig::plain();
    let hold = rig.lifecycle.acquire(&scope("t")).await.unwrap();
    let _pin = rig.lifecycle.get(hold.id()).unwrap();
    let start = tokio::time::Instant::now();
    assert_eq!(rig.lifecycle.shutdown(ShutdownMode::Stop, Duration::from_secs(60)).await.stopped, 1);
    assert!(start.elapsed() >= Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn shutdown_can_leave_everything_running() {
    let rig = Rig::plain();
    let id = parked(&rig, "t").await;
    let report = rig.lifecycle.shutdown(ShutdownMode::Keep, Duration::ZERO).await;
    assert_eq!((report.left, rig.backend.live(), rig.owner(&id).await), (1, 1, None));
}

#[tokio::test(start_paused = true)]
async fn a_stale_marker_of_our_own_does_not_lock_us_out() {
    let rig = Rig::plain();
    let id = parked(&rig, "t").await;
    // A teardown whose stop failed and whose release was lost.
    assert!(rig.store.leases.claim(&id, Purpose::Destroy).await.unwrap());
    rig.lifecycle.renew().await;
    assert_eq!((rig.owner(&id).await.unwrap(), rig.phase(&id)), ("own:me".to_owned(), PhaseName::Warm));
    assert!(rig.store.leases.claim(&id, Purpose::Destroy).await.unwrap());
    assert!(rig.lifecycle.acquire(&scope("t")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn resets_do_what_the_policy_says() {
    for (reset, phase, live) in [
        (ResetPolicy::Nothing, PhaseName::Active, 1),
        (ResetPolicy::Park, PhaseName::Warm, 1),
        (ResetPolicy::DestroyAll, PhaseName::Vacant, 0),
    ] {
        let rig = Rig::new(features(), Settings { reset, ..settings() });
        let id = rig.lifecycle.acquire(&scope("t")).await.unwrap().detach();
        rig.lifecycle.reset().await;
        assert_eq!((rig.phase(&id), rig.backend.live()), (phase, live), "{reset:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_is_given_up_tears_no_stop_in_half() {
    let rig = Rig::plain();
    let hold = rig.lifecycle.acquire(&scope("t")).await.unwrap();
    rig.backend.script.lock().destroy = Step::Takes(TTL / 2);
    let shutdown = rig.lifecycle.shutdown(ShutdownMode::Stop, Duration::ZERO);
    assert!(tokio::time::timeout(Duration::from_secs(1), shutdown).await.is_err());
    assert_eq!(rig.owner(hold.id()).await.unwrap(), "del:me");
    tokio::time::sleep(TTL).await;
    assert_eq!((rig.backend.live(), rig.owner(hold.id()).await), (0, None));
}
