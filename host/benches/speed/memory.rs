//! What idle sandboxes cost, measured in a process of its own that has nothing else in its memory.

use sandgate::Gateway;

use super::table::{Bound, Table};
use super::{config, sandbox};

const NAME: &str = "memory of an idle sandbox, of 10,000";
const CHILD: &str = "SANDGATE_BENCH_IDLE";
const SANDBOXES: usize = 10_000;

/// The pages of this process that are in memory, in bytes.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

/// Does the child's part, in the child.
pub(crate) fn child() -> bool {
    if std::env::var_os(CHILD).is_none() {
        return false;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let state = tempfile::tempdir().unwrap();
        let mut config = config(state.path());
        for provider in config.providers.values_mut() {
            provider.lifecycle.replicas = Some(2 * SANDBOXES as u32);
        }
        let gateway = Gateway::open(config).await.unwrap();
        // What the first ones need is there for all.
        for thread in 0..100 {
            drop(sandbox(&gateway, &format!("warm-{thread}")).await);
        }
        let before = resident();
        for thread in 0..SANDBOXES {
            drop(sandbox(&gateway, &format!("idle-{thread}")).await);
        }
        println!("{}", resident().saturating_sub(before) / SANDBOXES as u64);
        let one = sandbox(&gateway, "idle-5000").await;
        let request = sandgate::values::ExecRequest { command: "exit 7".into(), ..Default::default() };
        let output = one.exec(request).await.unwrap().output(1 << 10).await;
        assert_eq!(output.end.unwrap().code, 7);
        drop(one);
        gateway.shutdown().await;
    });
    true
}

pub(crate) fn rows(table: &mut Table) {
    if !table.wants(NAME) {
        return;
    }
    let program = std::env::current_exe().unwrap();
    let output = std::process::Command::new(program).env(CHILD, "1").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let bytes: f64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    table.add(NAME, format!("{bytes} bytes"), "-".into(), bytes / 1024.0, Bound::AtMost(16.0, "KiB"));
}
