//! A gateway that is killed takes its commands along.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use super::super::Isolation;
use super::kit::{Kit, bash, processes_with, unique_sleep, until};

/// Set in a run of this test program that plays the gateway: what its commands sleep.
const ROLE: &str = "SANDGATE_TEST_LEASHED_SLEEP";

/// Not a test of its own: the gateway that is to be killed. Without the variable it does nothing.
#[tokio::test(flavor = "multi_thread")]
async fn gateway_to_be_killed() {
    let Ok(sleep) = std::env::var(ROLE) else { return };
    let (one, two) = (Kit::namespace(), Kit::new(Isolation::None));
    for kit in [&one, &two] {
        kit.bash(&format!("sleep {sleep} > /dev/null 2>&1 &")).await;
    }
    let _running = one.start(bash(&format!("sleep {sleep}"))).await.unwrap();
    until("all three sleep", || processes_with(&sleep) == 3).await;
    std::io::Write::write_all(&mut std::io::stderr(), b"gateway ready\n").unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_gateway_leaves_nothing_behind() {
    let sleep = unique_sleep();
    let mut gateway = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "capability::process::tests::leash::gateway_to_be_killed"])
        .env(ROLE, &sleep)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(gateway.stderr.take().unwrap()).lines();
    let ready = lines.map_while(Result::ok).any(|line| line == "gateway ready");
    assert!(ready && processes_with(&sleep) == 3, "the gateway did not get its commands to run");
    gateway.kill().unwrap();
    gateway.wait().unwrap();
    until("no command is left", || processes_with(&sleep) == 0).await;
}
