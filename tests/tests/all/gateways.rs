//! Three gateways on one Redis, killed, stopped and let down, while clients come and go.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sandgate_tests::support::{drive, eventually};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdout};

use crate::deployment::Deployment;

/// How long what nobody uses is kept, in seconds.
const IDLE: u32 = 4;

/// How long anything may take that needs a lease to lapse, a grace to pass and a sandbox to idle out, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process of the `sandgate` program.
struct Process {
    child: Child,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.child.id().unwrap().cast_signed()).unwrap(), signal).unwrap();
    }
}

/// A gateway that looks after what nobody else does.
struct Gateway {
    process: Process,
    name: String,
    _stderr: Lines<BufReader<ChildStderr>>,
}

impl Gateway {
    async fn start(deployment: &Deployment) -> Self {
        let mut child = deployment.cli.command(&["sandbox", "reconcile", "--watch"]).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
        let first = stderr.next_line().await.unwrap().unwrap();
        let name = first.rsplit_once(" as ").unwrap_or_else(|| panic!("{first}")).1.to_owned();
        Self { process: Process { child, stdout }, name, _stderr: stderr }
    }

    fn owns(&self, deployment: &Deployment) -> bool {
        deployment.leases().contains(&format!("own:{}", self.name))
    }

    fn stops(&self, deployment: &Deployment) -> bool {
        deployment.leases().contains(&format!("del:{}", self.name))
    }

    async fn end(mut self) {
        self.process.signal(Signal::TERM);
        assert!(self.process.child.wait().await.unwrap().success());
    }
}

/// Starts a command in a thread's sandbox that says `ready`, waits for a line or the end of its input, and says `alive`.
async fn user(deployment: &Deployment, thread: &str) -> Process {
    let script = deployment.watching(thread, "read -r line");
    let args = deployment.of(&["exec"], thread, &["--keep", "--stdin", "-c", &script]);
    let mut child = deployment.cli.command(&args).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(stdout.next_line().await.unwrap().as_deref(), Some("ready"));
    Process { child, stdout }
}

/// Ends such a command, whose sandbox must have lived all the time.
async fn done(mut user: Process) {
    drop(user.child.stdin.take());
    assert_eq!(user.stdout.next_line().await.unwrap().as_deref(), Some("alive"));
    assert!(user.child.wait().await.unwrap().success());
}

#[derive(Default)]
struct Tally {
    end: AtomicBool,
    worked: AtomicU32,
    refused: AtomicU32,
}

/// Acquires, uses and releases one thread's sandbox again and again.
async fn work(deployment: Arc<Deployment>, thread: String, tally: Arc<Tally>) {
    for turn in 0_u32.. {
        if tally.end.load(Ordering::Relaxed) {
            return;
        }
        let script = deployment.watching(&thread, &format!("sleep 0.{}", 1 + turn % 7));
        let output = deployment.cli.run(&deployment.of(&["exec"], &thread, &["--keep", "-c", &script])).await;
        if output.code == Some(0) {
            assert_eq!(output.text(), "ready\nalive\n", "{thread}: {output:?}");
            tally.worked.fetch_add(1, Ordering::Relaxed);
        } else {
            let expected = ["lease-store-down", "being-destroyed", "unavailable"];
            let known = expected.iter().any(|code| output.stderr.contains(&format!("error[{code}]")));
            assert!(output.code == Some(125) && known, "{thread}: {output:?}");
            tally.refused.fetch_add(1, Ordering::Relaxed);
        }
    }
}

async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// How often the count has to grow before a phase is over.
async fn more(count: &AtomicU32, by: u32, what: &str) {
    let from = count.load(Ordering::Relaxed);
    until(what, || count.load(Ordering::Relaxed) >= from + by).await;
}

#[test]
#[expect(clippy::print_stdout, reason = "counts are there to be read")]
fn no_live_sandbox_is_stopped_and_nothing_is_left() {
    drive(async {
        let deployment = Deployment::new(&format!("idle_timeout_seconds = {IDLE}\ncheck_interval_seconds = 1\n"));
        let deployment = Arc::new(deployment);
        let tally = Arc::new(Tally::default());
        let (one, two, three) =
            tokio::join!(Gateway::start(&deployment), Gateway::start(&deployment), Gateway::start(&deployment));
        let workers: Vec<_> = (0..3)
            .map(|number| tokio::spawn(work(Arc::clone(&deployment), format!("w{number}"), Arc::clone(&tally))))
            .collect();
        more(&tally.worked, 3, "clients work").await;

        // A gateway dies, and a client with its sandbox in use.
        let mut victim = user(&deployment, "victim").await;
        victim.child.kill().await.unwrap();
        let mut one = one;
        one.process.child.kill().await.unwrap();
        until("a dead client's sandbox is reaped", || !deployment.record("victim").exists()).await;
        let one = Gateway::start(&deployment).await;

        // A client stands still for longer than its lease, and goes on.
        let paused = user(&deployment, "paused").await;
        paused.signal(Signal::STOP);
        until("its lease lapses", || deployment.lease("paused").is_empty()).await;
        paused.signal(Signal::CONT);
        until("it claims its lease again", || !deployment.lease("paused").is_empty()).await;
        done(paused).await;

        // A gateway that looks after sandboxes stands still for longer than its leases. What it was about to do at that
        // moment can't be taken back, so it is not stopped while it stops a sandbox itself.
        done(user(&deployment, "parked").await).await;
        until("somebody adopts what was left", || [&one, &two, &three].iter().any(|it| it.owns(&deployment))).await;
        let still = loop {
            let Some(owner) = [&one, &two, &three].into_iter().find(|it| it.owns(&deployment)) else {
                done(user(&deployment, "parked").await).await;
                continue;
            };
            owner.process.signal(Signal::STOP);
            if !owner.stops(&deployment) {
                break owner;
            }
            owner.process.signal(Signal::CONT);
        };
        until("its leases lapse or go to others", || !still.owns(&deployment)).await;
        more(&tally.worked, 3, "clients go on without it").await;
        still.process.signal(Signal::CONT);
        more(&tally.worked, 3, "clients go on with it").await;

        // Redis goes away and comes back empty, while a sandbox is in use.
        let long = user(&deployment, "long").await;
        deployment.stop_redis();
        more(&tally.refused, 1, "without leases nothing is handed out").await;
        deployment.restart_redis();
        more(&tally.worked, 3, "clients work again").await;
        until("the lease of what is in use is back", || deployment.lease("long").starts_with("own:")).await;
        done(long).await;

        tally.end.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.await.unwrap();
        }
        until("nothing is left", || deployment.living().is_empty() && deployment.leases().is_empty()).await;
        audit(&deployment);
        for gateway in [one, two, three] {
            gateway.end().await;
        }
        println!(
            "{} uses, {} refused, {} sandboxes made",
            tally.worked.load(Ordering::Relaxed),
            tally.refused.load(Ordering::Relaxed),
            deployment.log().len() / 2
        );
        eventually("their leases are gone, too", || deployment.leases().is_empty()).await;
    });
}

/// Never two of one id at once, and each that was made is gone.
fn audit(deployment: &Deployment) {
    let mut live = std::collections::BTreeMap::new();
    for [what, id, pid] in deployment.log() {
        match what.as_str() {
            "created" => assert_eq!(live.insert(id.clone(), pid), None, "two of {id} at once"),
            _ => assert_eq!(live.remove(&id), Some(pid), "{id}"),
        }
    }
    assert!(live.is_empty(), "{live:?}");
}
