//! Calls into a component: fresh, with an instance that is used again, and loading one.

use std::sync::Arc;
use std::time::Instant;

use sandgate::Gateway;
use sandgate::engine::{InstanceRecord, Target};
use sandgate::ids::{ProviderName, Scope};
use sandgate::mounts::{MountTable, VirtualPath};

use super::config;
use super::table::{Bound, Table, Times};

/// Enough for a median that does not move.
const CALLS: usize = 5_000;

pub(crate) async fn rows(table: &mut Table) {
    let target = Target {
        sandbox: Scope::default().hashed_id(),
        mounts: Arc::new(MountTable::new(Vec::new(), VirtualPath::root()).unwrap()),
    };
    for (name, idle_instances, bound) in
        [("call, fresh instance", 0, 100.0), ("call, instance of the same sandbox", 32, 10.0)]
    {
        if table.wants(name) {
            let state = tempfile::tempdir().unwrap();
            let mut config = config(state.path());
            config.engine.idle_instances = idle_instances;
            let gateway = Gateway::open(config).await.unwrap();
            let provider = gateway.provider(&ProviderName::local()).await.unwrap();
            let mut times = Times::default();
            for call in 0..CALLS + 100 {
                let begun = Instant::now();
                provider.probe(&target, &InstanceRecord::default()).await.unwrap();
                if call >= 100 {
                    times.push(begun.elapsed());
                }
            }
            let median = times.median().as_secs_f64() * 1e6;
            table.add(name, times.shown(), "-".into(), median, Bound::AtMost(bound, "µs"));
        }
    }
    let name = "load local.wasm from the compile cache";
    if table.wants(name) {
        let state = tempfile::tempdir().unwrap();
        let mut times = Times::default();
        for round in 0..=30 {
            let gateway = Gateway::open(config(state.path())).await.unwrap();
            let begun = Instant::now();
            gateway.provider(&ProviderName::local()).await.unwrap();
            // The first round fills the cache.
            if round > 0 {
                times.push(begun.elapsed());
            }
        }
        let median = times.median().as_secs_f64() * 1e3;
        table.add(name, times.shown(), "-".into(), median, Bound::AtMost(2.0, "ms"));
    }
}
