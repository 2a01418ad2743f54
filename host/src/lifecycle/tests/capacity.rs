//! How many there may be.

use std::time::Duration;

use super::super::*;
use super::rig::*;
use crate::error::{Code, Error, Result};

fn rig(capacity: CapacityPolicy) -> Rig {
    Rig::new(features(), Settings { capacity, ..settings() })
}

async fn acquire(rig: &Rig, thread: &str) -> Result<Hold> {
    rig.lifecycle.acquire(&scope(thread)).await
}

#[tokio::test(start_paused = true)]
async fn a_soft_limit_evicts_the_oldest_parked_and_never_an_active_one() {
    let rig = rig(CapacityPolicy::Soft { replicas: 2 });
    let first = acquire(&rig, "a").await.unwrap();
    let second = acquire(&rig, "b").await.unwrap();
    let _third = acquire(&rig, "c").await.unwrap();
    assert_eq!(rig.backend.live(), 3, "all in use: made all the same");
    second.release().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    first.release().await;
    let _fourth = acquire(&rig, "d").await.unwrap();
    assert_eq!(rig.backend.script.lock().stopped, [2], "b was parked first");
    assert_eq!(rig.lifecycle.used(), 3);
}

#[tokio::test(start_paused = true)]
async fn reject_refuses_at_once_after_one_eviction() {
    let rig = rig(CapacityPolicy::Reject { limit: 2 });
    let first = acquire(&rig, "a").await.unwrap();
    let _second = acquire(&rig, "b").await.unwrap();
    let start = tokio::time::Instant::now();
    let error = acquire(&rig, "c").await.unwrap_err();
    assert_eq!((error.code(), start.elapsed()), (Code::Capacity, Duration::ZERO));
    assert!(error.retry_after().is_some() && error.message().contains('2'), "{error}");
    first.release().await;
    let third = acquire(&rig, "c").await.unwrap();
    assert_eq!((rig.backend.live(), rig.lifecycle.used()), (2, 2));
    // Failures give their place back.
    rig.backend.script.lock().create = Step::Fails;
    third.release().await;
    for _ in 0..5 {
        assert_eq!(acquire(&rig, "d").await.unwrap_err().code(), Code::Unavailable);
    }
    assert_eq!(rig.lifecycle.used(), 1);
}

#[tokio::test(start_paused = true)]
async fn burst_has_some_room_on_top() {
    let rig = rig(CapacityPolicy::Burst { limit: 1, extra: 1 });
    let _holds = (acquire(&rig, "a").await.unwrap(), acquire(&rig, "b").await.unwrap());
    assert_eq!(acquire(&rig, "c").await.unwrap_err().code(), Code::Capacity);
    let none = self::rig(CapacityPolicy::Burst { limit: 1, extra: 0 });
    let _hold = acquire(&none, "a").await.unwrap();
    assert_eq!(acquire(&none, "b").await.unwrap_err().code(), Code::Capacity);
}

#[tokio::test(start_paused = true)]
async fn wait_is_woken_by_a_release_and_ends_at_its_deadline() {
    let rig = rig(CapacityPolicy::Wait { limit: 1, timeout: Duration::from_secs(30) });
    let first = acquire(&rig, "a").await.unwrap();
    let start = tokio::time::Instant::now();
    let error = acquire(&rig, "b").await.unwrap_err();
    assert_eq!((error.code(), start.elapsed()), (Code::Capacity, Duration::from_secs(30)));
    assert!(error.message().contains("timed out"), "{error}");
    let start = tokio::time::Instant::now();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(2345)).await;
        first.release().await;
    });
    let second = acquire(&rig, "b").await.unwrap();
    assert_eq!(start.elapsed(), Duration::from_millis(2345), "at once, not at the next look");
    assert_eq!((rig.backend.live(), rig.lifecycle.used()), (1, 1));
    // A shutdown wakes waiters too.
    let lifecycle = rig.lifecycle.clone();
    let waiter = tokio::spawn(async move { lifecycle.acquire(&scope("c")).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let lifecycle = rig.lifecycle.clone();
    tokio::spawn(async move { lifecycle.shutdown(ShutdownMode::Stop, Duration::ZERO).await });
    assert_eq!(waiter.await.unwrap().unwrap_err().code(), Code::ShuttingDown);
    drop(second);
}

#[tokio::test(start_paused = true)]
async fn an_eviction_that_fails_keeps_its_place() {
    let rig = rig(CapacityPolicy::Reject { limit: 1 });
    acquire(&rig, "a").await.unwrap().release().await;
    rig.backend.script.lock().destroy = Step::Hangs;
    assert_eq!(acquire(&rig, "b").await.unwrap_err().code(), Code::Capacity);
    assert_eq!((rig.backend.live(), rig.lifecycle.used()), (1, 1), "a sandbox that may live takes a place");
    rig.backend.script.lock().destroy = Step::Works;
    assert!(acquire(&rig, "b").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn racing_callers_never_exceed_the_limit() {
    let rig = rig(CapacityPolicy::Reject { limit: 3 });
    rig.backend.script.lock().create = Step::Takes(Duration::from_secs(1));
    let scopes: Vec<_> = (0..20).map(|number| scope(&format!("t{number}"))).collect();
    let results = futures::future::join_all(scopes.iter().map(|scope| rig.lifecycle.acquire(scope))).await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 3);
    assert_eq!(rig.backend.script.lock().made, 3);
}

#[test]
fn refusals_become_errors_that_say_what_to_do() {
    let refusal = Refusal { reason: RefusalReason::Full, limit: 7, retry_after: Duration::from_secs(5) };
    let error = Error::from(refusal);
    assert_eq!((error.code(), error.retry_after()), (Code::Capacity, Some(5000)));
    assert!(error.to_string().contains('7') && error.hint_text().is_some());
    assert!(CapacityPolicy::Reject { limit: 0 }.check().is_err());
}
