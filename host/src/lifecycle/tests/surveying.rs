//! Looking at everything that there is, ending one of it by its id, and what a single command leaves behind.

use std::sync::Arc;
use std::time::Duration;

use super::super::*;
use super::rig::*;
use crate::error::Code;
use crate::ids::SandboxId;
use crate::ownership::{LeaseState, Store};

/// A peer's sandbox, with its lease.
async fn peers(rig: &Rig, thread: &str) -> SandboxId {
    let id = scope(thread).hashed_id();
    rig.backend.plant(&id, Some(&scope(thread)));
    assert!(rig.peer.take(&id).await.unwrap());
    id
}

#[tokio::test(start_paused = true)]
async fn a_survey_shows_ours_the_peers_and_the_unowned_and_changes_nothing() {
    let rig = Rig::plain();
    let hold = rig.lifecycle.acquire(&scope("ours")).await.unwrap();
    let theirs = peers(&rig, "theirs").await;
    let orphan = scope("orphan").hashed_id();
    rig.backend.plant(&orphan, None);
    rig.backend.plant(&orphan, None);
    let stopped = scope("stopped").hashed_id();
    rig.backend.plant(&stopped, None);
    assert!(rig.peer.claim(&stopped, crate::ownership::Purpose::Destroy).await.unwrap());

    let survey = rig.lifecycle.survey().await.unwrap();
    assert!(survey.complete);
    let of = |id: &SandboxId| survey.sandboxes.iter().find(|sighted| sighted.id == *id).unwrap();
    let ours = of(hold.id());
    assert_eq!(ours.here.as_ref().map(|here| (here.phase, here.holds)), Some((PhaseName::Active, 1)));
    assert_eq!(ours.lease.as_ref().unwrap().owner.as_str(), "me");
    let theirs = of(&theirs);
    assert_eq!((&theirs.here, &theirs.scope), (&None, &Some(scope("theirs"))));
    assert_eq!(theirs.lease.as_ref().unwrap().owner.as_str(), "peer");
    assert_eq!((of(&orphan).lease.clone(), of(&orphan).listed), (None, 2));
    assert_eq!(of(&stopped).lease.as_ref().unwrap().state, LeaseState::Destroying);
    assert_eq!(rig.lifecycle.list().len(), 1, "looking is not adopting");
    assert_eq!(rig.backend.live(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_is_ended_by_its_id_unless_a_peer_has_it() {
    let rig = Rig::plain();
    let orphan = scope("orphan").hashed_id();
    rig.backend.plant(&orphan, None);
    rig.backend.plant(&orphan, None);
    let theirs = peers(&rig, "theirs").await;
    let destroy = |id, take_over| rig.lifecycle.destroy_anywhere(id, None, take_over);

    let nobody = scope("nobody").hashed_id();
    assert_eq!(destroy(&nobody, false).await.unwrap(), Stopped::NotHere);
    assert_eq!(destroy(&orphan, false).await.unwrap(), Stopped::Yes);
    assert_eq!((rig.backend.live(), rig.owner(&orphan).await), (1, None), "both of them, and no marker stays");
    assert_eq!(destroy(&theirs, false).await.unwrap(), Stopped::Refused);
    assert_eq!(rig.owner(&theirs).await.as_deref(), Some("own:peer"));
    assert_eq!((rig.backend.live(), rig.lifecycle.list().len()), (1, 0));
    rig.line(Line::Down);
    assert_eq!(destroy(&theirs, true).await.unwrap_err().code(), Code::LeaseStoreDown);
    assert_eq!((rig.backend.live(), rig.lifecycle.list().len()), (1, 0), "nobody knows whose it is");
    rig.line(Line::Up);
    assert_eq!(destroy(&theirs, true).await.unwrap(), Stopped::Yes);
    assert_eq!((rig.backend.live(), rig.owner(&theirs).await), (0, None));
}

#[tokio::test(start_paused = true)]
async fn a_stranger_that_could_not_be_stopped_is_left_for_others() {
    let rig = Rig::plain();
    let id = scope("t").hashed_id();
    rig.backend.plant(&id, Some(&scope("t")));
    rig.backend.script.lock().destroy = Step::Fails;
    assert_eq!(rig.lifecycle.destroy_anywhere(&id, None, false).await.unwrap_err().code(), Code::Unavailable);
    assert_eq!((rig.owner(&id).await, rig.lifecycle.list().len()), (None, 0));
    // One that may still be stopped is not.
    rig.backend.script.lock().destroy = Step::Hangs;
    assert_eq!(rig.lifecycle.destroy_anywhere(&id, None, false).await.unwrap_err().code(), Code::Timeout);
    assert_eq!(rig.owner(&id).await.as_deref(), Some("del:me"));
}

#[tokio::test(start_paused = true)]
async fn the_sandbox_of_another_scope_is_not_ended_for_this_one() {
    let rig = Rig::plain();
    let id = scope("t").hashed_id();
    rig.backend.plant(&id, Some(&scope("somebody-else")));
    let error = rig.lifecycle.destroy_anywhere(&id, Some(&scope("t")), true).await.unwrap_err();
    assert_eq!((error.code(), rig.backend.live()), (Code::IdentityCollision, 1));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_listed_is_found_by_its_scope() {
    let rig = Rig::new(Features { findable: true, ..Features::default() }, settings());
    let id = scope("t").hashed_id();
    rig.backend.plant(&id, None);
    assert!(!rig.lifecycle.survey().await.unwrap().complete);
    assert_eq!(rig.lifecycle.look_up(&id, None).await.unwrap(), None);
    let found = rig.lifecycle.look_up(&id, Some(&scope("t"))).await.unwrap().unwrap();
    assert_eq!((found.id, found.scope), (id.clone(), Some(scope("t"))));
    assert_eq!(rig.lifecycle.destroy_anywhere(&id, None, false).await.unwrap(), Stopped::NotHere);
    assert_eq!(rig.lifecycle.destroy_anywhere(&id, Some(&scope("t")), false).await.unwrap(), Stopped::Yes);
    assert_eq!(rig.backend.live(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_single_command_ends_what_it_made_and_leaves_what_it_found() {
    let rig = Rig::plain();
    rig.lifecycle.start(Upkeep::LeasesOnly);
    let found = scope("found").hashed_id();
    rig.backend.plant(&found, Some(&scope("found")));
    let orphan = scope("orphan").hashed_id();
    rig.backend.plant(&orphan, None);
    let made = rig.lifecycle.acquire(&scope("made")).await.unwrap();
    let hold = rig.lifecycle.acquire(&scope("found")).await.unwrap();
    // Leases are kept for as long as it takes, and nothing is adopted.
    tokio::time::sleep(TTL * 5).await;
    assert_eq!(rig.owner(made.id()).await.as_deref(), Some("own:me"));
    assert_eq!((rig.owner(&orphan).await, rig.lifecycle.list().len()), (None, 2));
    drop((made, hold));
    let report = rig.lifecycle.shutdown(ShutdownMode::StopMade, Duration::ZERO).await;
    assert_eq!(report, ShutdownReport { stopped: 1, left: 1, failed: 0 });
    assert_eq!((rig.backend.live(), rig.owner(&found).await), (2, None), "given up, for a gateway to adopt");
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_beside_a_sandbox_lives_as_long_as_its_stay() {
    let rig = Rig::plain();
    let kept = |hold: &Hold| hold.instance().attachment.get::<Kept>().unwrap();
    let hold = rig.lifecycle.acquire(&scope("t")).await.unwrap();
    let first = Arc::downgrade(&kept(&hold));
    hold.release().await;
    let again = rig.lifecycle.acquire(&scope("t")).await.unwrap();
    assert!(std::ptr::eq(&*kept(&again), first.as_ptr()), "parked and taken back: the same one");
    let pin = again.pin();
    rig.lifecycle.destroy(again.id(), true).await.unwrap();
    drop(again);
    assert!(first.upgrade().is_some(), "an operation still uses it");
    drop(pin);
    assert!(first.upgrade().is_none());

    let id = scope("adopted").hashed_id();
    rig.backend.plant(&id, Some(&scope("adopted")));
    for _ in 0..6 {
        rig.lifecycle.reconcile().await.unwrap();
        tokio::time::sleep(TTL / 4).await;
    }
    assert_eq!(rig.phase(&id), PhaseName::Warm);
    let hold = rig.lifecycle.acquire(&scope("adopted")).await.unwrap();
    assert_eq!(kept(&hold).0, scope("adopted"), "made when it is known whose it is");
}

#[tokio::test(start_paused = true)]
async fn a_release_that_meets_a_shutdown_does_what_the_shutdown_does() {
    for (mode, left) in [(ShutdownMode::Keep, 2), (ShutdownMode::StopMade, 1), (ShutdownMode::Stop, 0)] {
        let rig = Rig::plain();
        let found = scope("found").hashed_id();
        rig.backend.plant(&found, Some(&scope("found")));
        let hold = rig.lifecycle.acquire(&scope("found")).await.unwrap();
        let made = rig.lifecycle.acquire(&scope("made")).await.unwrap();
        // The shutdown waits for an operation in one of them when the other is released.
        let pin = made.pin();
        let lifecycle = rig.lifecycle.clone();
        let closing = tokio::spawn(async move { lifecycle.shutdown(mode, Duration::from_secs(60)).await });
        tokio::time::sleep(Duration::from_secs(1)).await;
        hold.release().await;
        drop((pin, made));
        closing.await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(rig.backend.live(), left, "{mode:?}");
        assert_eq!((rig.owner(&found).await, rig.lifecycle.list().len()), (None, 0), "{mode:?}");
    }
}
