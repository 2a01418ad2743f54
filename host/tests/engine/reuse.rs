//! What one call leaves is seen by the same sandbox's next one at most.

use std::collections::BTreeMap;
use std::sync::Arc;

use sandgate::engine::{EngineOptions, InstanceRecord, Target};
use sandgate::mounts::MountTable;
use sandgate::values::ExecRequest;

use crate::support::{Bench, Room, drain, hostile, options};

async fn bench(idle_instances: usize) -> Bench {
    Bench::new(EngineOptions { idle_instances, ..options() }, hostile(), r#"{"create":"remember"}"#).await
}

/// How often the instance that answers was asked before.
async fn asked(bench: &Bench, room: &Room, target: &Target) -> String {
    let record = bench.provider.create(target, &room.scope, "test").await.unwrap();
    String::from_utf8(record.as_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn without_idle_instances_every_call_is_the_first() {
    let bench = bench(0).await;
    for _ in 0..3 {
        assert_eq!(asked(&bench, &bench.room, &bench.room.target).await, "0");
    }
}

#[tokio::test]
async fn an_instance_serves_its_own_sandbox_only() {
    let bench = bench(4).await;
    let (mine, other) = (&bench.room, Room::new("two"));
    assert_eq!(asked(&bench, mine, &mine.target).await, "0");
    assert_eq!(asked(&bench, mine, &mine.target).await, "1");
    assert_eq!(asked(&bench, &other, &other.target).await, "0");
    assert_eq!(asked(&bench, mine, &mine.target).await, "2");
}

#[tokio::test]
async fn an_instance_that_saw_variables_is_not_used_again() {
    let bench = bench(4).await;
    let target = &bench.room.target;
    assert_eq!(asked(&bench, &bench.room, target).await, "0");
    for (env, next) in [(None, "1"), (Some(("TOKEN".to_owned(), "secret".to_owned())), "0")] {
        let request =
            ExecRequest { command: "pass:true".into(), env: BTreeMap::from_iter(env), ..ExecRequest::default() };
        let events = bench.provider.exec(target, &InstanceRecord::default(), &request, None, None).await.unwrap();
        drain(events).await;
        assert_eq!(asked(&bench, &bench.room, target).await, next);
    }
}

#[tokio::test]
async fn nothing_is_left_for_a_sandbox_that_is_made_again() {
    let bench = bench(4).await;
    let target = &bench.room.target;
    assert_eq!(asked(&bench, &bench.room, target).await, "0");
    bench.provider.destroy(target, &InstanceRecord::default()).await.unwrap();
    assert_eq!(asked(&bench, &bench.room, target).await, "0", "destroyed in between");
    // The same name, made anew while a call of the old one was under way.
    let mounts = MountTable::new(target.mounts.mounts().to_vec(), target.mounts.workspace()).unwrap();
    let again = Target { sandbox: target.sandbox.clone(), mounts: Arc::new(mounts) };
    assert_eq!(asked(&bench, &bench.room, &again).await, "0", "another sandbox of the same name");
}

#[tokio::test]
async fn the_idle_places_are_shared_and_the_oldest_makes_room() {
    let bench = bench(1).await;
    let (mine, other) = (&bench.room, Room::new("two"));
    assert_eq!(asked(&bench, mine, &mine.target).await, "0");
    assert_eq!(asked(&bench, &other, &other.target).await, "0");
    assert_eq!(asked(&bench, &other, &other.target).await, "1");
    assert_eq!(asked(&bench, mine, &mine.target).await, "0", "it had to make room");
}
