//! `sandgate sandbox` and `exec --keep`, on sandboxes that outlive the command that made them.

use rustix::process::{Pid, Signal, kill_process};
use sandgate_tests::support::{Cli, drive, eventually, running};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::deployment::{Deployment, TTL};

#[test]
fn a_sandbox_is_kept_found_again_and_ended_by_its_id() {
    drive(async {
        let deployment = Deployment::new("");
        let cli = &deployment.cli;
        let exec = |args: &[&'static str]| deployment.of(&["exec"], "t1", &[args, &["-c", "true"]].concat());
        cli.run(&exec(&[])).await.expect(0);
        assert_eq!(deployment.living().len(), 0, "what a command made ends with it");

        cli.run(&exec(&["--keep"])).await.expect(0);
        let kept = deployment.living();
        assert_eq!(kept.len(), 1);
        assert_eq!(deployment.lease("t1"), "", "given up, for a gateway to adopt");
        cli.run(&exec(&[])).await.expect(0);
        assert_eq!(deployment.living(), kept, "found and left as it was");

        let (id, other) = (deployment.id("t1"), deployment.id("t2"));
        let list = cli.json(&["sandbox", "list"]).await;
        let seen = &list["sandboxes"][0];
        assert_eq!(
            (&seen["id"], &seen["phase"], &seen["thread"]),
            (&id.as_str().into(), &"unowned".into(), &"t1".into())
        );
        assert!(seen["owner"].is_null() && seen["age_ms"].is_u64(), "{list}");
        assert_eq!(cli.json(&["sandbox", "show", &id]).await["at_backend"], 1);
        assert_eq!(cli.json(&deployment.of(&["sandbox", "show"], "t1", &[])).await["id"], id);
        let text = cli.run(&["sandbox", "list"]).await.expect(0).text();
        assert!(text.starts_with("PROVIDER") && text.contains(&id), "{text}");

        assert_eq!(cli.error(&["sandbox", "show", &other], 1).await["code"], "not-found");
        assert_eq!(cli.error(&["sandbox", "destroy", &other], 1).await["code"], "not-found");
        assert_eq!(cli.json(&["sandbox", "destroy", &id]).await["destroyed"], true);
        assert_eq!((deployment.living().len(), deployment.leases().len()), (0, 0));
        assert!(cli.run(&["sandbox", "list"]).await.expect(0).text().contains("no sandboxes"));
    });
}

#[test]
fn what_another_gateway_looks_after_is_left_alone_unless_it_is_taken_over() {
    drive(async {
        let deployment = Deployment::new("");
        let cli = &deployment.cli;
        let script = deployment.watching("t1", "read -r line");
        let mut user = cli.start(&deployment.of(&["exec"], "t1", &["--stdin", "-c", &script]));
        let mut lines = BufReader::new(user.stdout.take().unwrap()).lines();
        assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("ready"));
        let id = deployment.id("t1");
        let seen = cli.json(&["sandbox", "show", &id]).await;
        let owner = seen["owner"].as_str().unwrap().to_owned();
        assert_eq!((seen["phase"].as_str(), deployment.lease("t1")), (Some("owned"), format!("own:{owner}")));
        assert!(seen["lease_left_ms"].as_u64().unwrap() <= u64::from(TTL) * 1000, "{seen}");
        let error = cli.error(&["sandbox", "destroy", &id], 1).await;
        assert_eq!(error["code"], "not-owner");
        assert!(error["message"].as_str().unwrap().contains(&owner), "{error}");
        // A command of someone else's in the same sandbox takes the lease with it; the sandbox stays.
        cli.run(&deployment.of(&["exec"], "t1", &["-c", "true"])).await.expect(0);
        eventually("the lease comes back to the one who still uses it", || {
            deployment.lease("t1") == format!("own:{owner}") || deployment.lease("t1").is_empty()
        })
        .await;
        assert_eq!(deployment.living().len(), 1);
        assert_eq!(cli.json(&["sandbox", "destroy", &id, "--take-over"]).await["destroyed"], true);
        assert_eq!(deployment.living().len(), 0);
        drop(user.stdin.take());
        assert_eq!(lines.next_line().await.unwrap(), None, "its sandbox is gone, and it is told so");
        assert!(!user.wait().await.unwrap().success());
    });
}

#[test]
fn orphans_are_stopped_after_a_lease_time_and_used_ones_are_not() {
    drive(async {
        let deployment = Deployment::new("");
        let cli = &deployment.cli;
        for thread in ["o1", "o2"] {
            cli.run(&deployment.of(&["exec"], thread, &["--keep", "-c", "true"])).await.expect(0);
        }
        let script = deployment.watching("used", "read -r line");
        let mut user = cli.start(&deployment.of(&["exec"], "used", &["--stdin", "-c", &script]));
        let mut lines = BufReader::new(user.stdout.take().unwrap()).lines();
        assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("ready"));

        let report = cli.json(&["sandbox", "reconcile"]).await;
        assert_eq!((&report[0]["listed"], &report[0]["deferred"]), (&3.into(), &2.into()), "{report}");
        assert_eq!(deployment.living().len(), 3, "looking stops nothing");
        let report = cli.json(&["sandbox", "reconcile", "--stop-orphans"]).await;
        assert_eq!(report[0]["stopped"], 2, "{report}");
        assert_eq!(deployment.living().len(), 1);
        drop(user.stdin.take());
        assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("alive"));
        assert!(user.wait().await.unwrap().success());
        assert_eq!((deployment.living().len(), deployment.leases().len()), (0, 0));
    });
}

#[test]
fn in_memory_nobody_knows_what_is_an_orphan() {
    drive(async {
        let deployment = Deployment::in_memory();
        let cli = &deployment.cli;
        cli.run(&deployment.of(&["exec"], "t1", &["--keep", "-c", "true"])).await.expect(0);
        // Another command neither adopts nor ends it.
        cli.run(&deployment.of(&["exec"], "t2", &["-c", "true"])).await.expect(0);
        assert_eq!(deployment.living().len(), 1);
        assert_eq!(cli.error(&["sandbox", "reconcile", "--stop-orphans"], 1).await["code"], "unsupported");
        assert_eq!(deployment.living().len(), 1);
        cli.run(&deployment.of(&["sandbox", "destroy"], "t1", &[])).await.expect(0);
        assert_eq!(deployment.living().len(), 0);
    });
}

#[test]
fn without_redis_nothing_is_handed_out_or_stopped() {
    drive(async {
        let deployment = Deployment::new("");
        deployment.cli.run(&deployment.of(&["exec"], "t1", &["--keep", "-c", "true"])).await.expect(0);
        deployment.stop_redis();
        let (cli, id) = (&deployment.cli, deployment.id("t1"));
        for args in [deployment.of(&["exec"], "t1", &["-c", "true"]), deployment.of(&["exec"], "t2", &["-c", "true"])] {
            assert_eq!(cli.error(&args, 125).await["code"], "lease-store-down");
        }
        for args in
            [&["sandbox", "list"][..], &["sandbox", "destroy", &id], &["sandbox", "destroy", &id, "--take-over"]]
        {
            let output = cli.run(args).await;
            assert!(matches!(output.code, Some(1 | 5)) && output.stderr.contains("lease-store-down"), "{output:?}");
        }
        assert_eq!(deployment.living().len(), 1);
    });
}

#[test]
fn local_sandboxes_end_with_their_command_and_that_is_said() {
    drive(async {
        let cli = Cli::new();
        let output = cli.run(&["exec", "--keep", "-t", "t1", "-c", "echo kept > f"]).await;
        assert!(output.expect(0).stderr.contains("--keep"), "{output:?}");
        assert_eq!(cli.run(&["exec", "-t", "t1", "-c", "cat f"]).await.expect(0).text(), "kept\n");
        let output = cli.run(&["sandbox", "list"]).await;
        assert!(output.expect(0).text().contains("no sandboxes") && output.stderr.contains("local"), "{output:?}");
        let error = cli.error(&["sandbox", "destroy", "local:t1"], 1).await;
        assert_eq!(error["code"], "not-found");
        cli.run(&["sandbox", "show"]).await.expect(2);
        cli.run(&["sandbox", "show", "id", "--thread", "t1"]).await.expect(2);
        cli.run(&["sandbox", "destroy", "has space"]).await.expect(2);
        assert_eq!(cli.error(&["sandbox", "list", "--provider", "nosuch"], 3).await["code"], "unknown-provider");
        assert_eq!(cli.error(&["sandbox", "reconcile", "--watch"], 1).await["code"], "unsupported");
    });
}

#[test]
fn a_command_that_is_told_to_end_while_its_sandbox_is_made_leaves_nothing() {
    drive(async {
        let deployment = Deployment::new("");
        let (dir, id) = (deployment.backend(), deployment.id("t1"));
        std::fs::create_dir(&dir).unwrap();
        // Nothing is made while somebody else holds the backend's lock.
        let lock = dir.join(".lock");
        let mut holder = tokio::process::Command::new("flock");
        let mut holder = holder.arg("-F").arg(&lock).args(["sleep", "1000"]).kill_on_drop(true).spawn().unwrap();
        eventually("the lock is held", || !std::fs::File::open(&lock).is_ok_and(|file| file.try_lock().is_ok())).await;
        let mut child = deployment.cli.start(&deployment.of(&["exec"], "t1", &["-c", "echo never"]));
        eventually("it is being made", || running(&format!("create {} {id}", dir.display())) > 0).await;
        let pid = Pid::from_raw(child.id().unwrap().cast_signed()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        holder.kill().await.unwrap();
        let status = child.wait().await.unwrap();
        assert_eq!(status.code(), Some(143));
        assert_eq!((deployment.log().len(), deployment.living().len(), deployment.leases().len()), (2, 0, 0));
    });
}
