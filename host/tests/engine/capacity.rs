//! Places for calls: queued for, refused when there are too many, and never lost.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use sandgate::engine::{EngineOptions, InstanceRecord};
use sandgate::error::Code;
use sandgate::values::{Event, ExecRequest};

use crate::support::{Bench, PATIENCE, drain, options};

#[tokio::test]
async fn one_call_too_many_waits_and_the_next_is_refused() {
    let bench = Arc::new(Bench::hostile(EngineOptions { max_instances: 2, queue: 1, ..options() }).await);
    let busy = [bench.exec("silent").await.unwrap(), bench.exec("silent").await.unwrap()];
    let waiting = bench.still_works();
    tokio::pin!(waiting);
    assert!(futures::poll!(&mut waiting).is_pending());
    let error = bench.exec("pass:true").await.unwrap_err();
    assert_eq!(error.code(), Code::Busy);
    assert!(error.retry_after().is_some() && error.to_string().contains("engine.max_instances"), "{error}");
    assert!(error.to_string().contains("all 2 places"), "{error}");
    drop(busy);
    tokio::time::timeout(PATIENCE, waiting).await.expect("nobody let it in");
    bench.still_works().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_calls_than_places_all_come_to_their_turn() {
    let bench = Arc::new(Bench::hostile(EngineOptions { max_instances: 3, queue: 64, ..options() }).await);
    let calls: Vec<_> = (0..60)
        .map(|number| {
            let bench = Arc::clone(&bench);
            tokio::spawn(async move {
                let events = drain(bench.exec(&format!("upper:echo call {number}")).await.unwrap()).await;
                assert_eq!(crate::support::text(&events), format!("CALL {number}\n"));
            })
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
}

#[tokio::test]
async fn no_place_is_lost_however_a_call_ends() {
    for pooling in [sandgate::engine::Pooling::Auto, sandgate::engine::Pooling::Off] {
        let bench = Bench::hostile(EngineOptions {
            max_instances: 1,
            pooling,
            // The time in polls counts, and a busy machine makes them long.
            cpu_limit: Duration::from_secs(1),
            call_timeout: Duration::from_secs(3),
            ..options()
        })
        .await;
        let record = InstanceRecord::default();
        for round in 0..30 {
            for command in ["panic", "huge-error", "nothing-such", "foreign-program", "pass:exit 1"] {
                match bench.exec(command).await {
                    Ok(events) => drop(drain(events).await),
                    Err(error) => assert_ne!(error.code(), Code::Busy, "{command} in round {round}: {error}"),
                }
            }
            for command in ["trap-midway", "two-exits", "huge-event", "no-exit"] {
                drop(drain(bench.exec(command).await.unwrap()).await);
            }
            for command in ["endless", "silent", "upper:yes", "pass:yes", "feed:cat"] {
                drop(bench.exec(command).await.unwrap());
            }
            // Given up at its first, second, … await.
            let request = ExecRequest { command: "wait".into(), ..ExecRequest::default() };
            let call = bench.provider.exec(&bench.room.target, &record, &request, None, None);
            tokio::pin!(call);
            for _ in 0..round {
                if let Poll::Ready(answer) = futures::poll!(&mut call) {
                    assert_eq!(answer.unwrap_err().code(), Code::Timeout);
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        // On a busy machine the clock may be faster than the guest.
        let code = bench.exec("spin").await.unwrap_err().code();
        assert!(matches!(code, Code::GuestCpu | Code::Timeout), "{code:?}");
        assert_eq!(bench.exec("wait").await.unwrap_err().code(), Code::Timeout);
        let events = drain(bench.exec("spin-midway").await.unwrap()).await;
        assert!(matches!(events.last(), Some(Event::Failed(_))));
        bench.still_works().await;
    }
}
