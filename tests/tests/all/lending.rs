//! How a gateway lends the Local provider's sandboxes, and what becomes of the processes in them.

use sandgate::config::{Config, Isolation};
use sandgate::ids::ProviderName;
use sandgate::values::Event;
use sandgate::{Code, Gateway, Scope};
use sandgate_tests::support::{Kind, Subject, command, conform, drive, eventually, failure, running, sh, unique_sleep};

fn scope(thread: &str) -> Scope {
    Scope::new("ann".parse().unwrap(), thread.parse().unwrap())
}

#[test]
fn a_released_sandbox_is_taken_again_with_its_processes() {
    conform(Kind::Local, async |subject: &Subject| {
        let sandbox = subject.sandbox().await;
        let sleep = unique_sleep();
        sh(&sandbox, &format!("echo kept > f; {sleep} > /dev/null 2>&1 & echo started")).await;
        let (local, id) = (ProviderName::local(), sandbox.id().clone());
        subject.gateway().release(sandbox).await;
        assert!(running(&sleep) > 0, "released, not ended");
        let again = subject.sandbox().await;
        assert_eq!(again.id(), &id);
        assert_eq!(sh(&again, "cat f").await, "kept\n");
        assert!(running(&sleep) > 0);
        assert_eq!(subject.gateway().list().len(), 1);
        subject.gateway().destroy(&local, &id).await.unwrap();
        eventually("a background process ends with its sandbox", || running(&sleep) == 0).await;
        assert_eq!(failure(subject.gateway().destroy(&local, &id).await).code(), Code::NotFound);
        assert!(subject.gateway().get(&local, &id).is_none());
    });
}

#[test]
fn shutdown_ends_what_runs_even_in_a_session_of_its_own() {
    conform(Kind::Local, async |subject: &Subject| {
        let sandbox = subject.sandbox().await;
        let (one, two, three) = (unique_sleep(), unique_sleep(), unique_sleep());
        let script = format!("{one} & (setsid {two} &) ; nohup {three} > /dev/null 2>&1 & echo started");
        sh(&sandbox, &script).await;
        let mut foreground = sandbox.exec(command("echo ready; exec sleep 300")).await.unwrap();
        assert_eq!(foreground.next().await, Some(Event::Stdout("ready\n".into())));
        for sleep in [&one, &two, &three] {
            eventually("it runs", || running(sleep) > 0).await;
        }
        subject.gateway().shutdown().await;
        for sleep in [&one, &two, &three] {
            eventually("all ends with the gateway", || running(sleep) == 0).await;
        }
        // The reader hears that it ended, and not that it succeeded.
        match foreground.next().await {
            Some(Event::Exited(status)) => assert_ne!(status.code, 0),
            Some(Event::Failed(_)) => {}
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn those_used_least_recently_make_room_and_those_in_use_stay() {
    drive(async {
        let name = ProviderName::local();
        let limit = |config: &mut Config| config.providers[&name].lifecycle.replicas = Some(2);
        let subject = Subject::open_with(Kind::Local, limit).await;
        let gateway = subject.gateway();
        let (one, two) = (subject.sandbox_of("t1").await, subject.sandbox_of("t2").await);
        let (id1, id2) = (one.id().clone(), two.id().clone());
        let sleep = unique_sleep();
        sh(&two, &format!("{sleep} > /dev/null 2>&1 & echo kept > f")).await;
        eventually("it runs", || running(&sleep) > 0).await;

        // Both are in use: there is no room, and it says when to try again.
        let error = failure(gateway.acquire(&scope("t3")).await);
        assert_eq!(error.code(), Code::Capacity, "{error}");
        assert!(error.retry_after().is_some() && error.message().contains('2'), "{error}");
        // A running command is use enough.
        let mut run = one.exec(command("echo ready; exec sleep 300")).await.unwrap();
        assert_eq!(run.next().await, Some(Event::Stdout("ready\n".into())));
        gateway.release(one).await;
        assert_eq!(failure(gateway.acquire(&scope("t3")).await).code(), Code::Capacity);

        // The other one makes room, although it was used later.
        gateway.release(two).await;
        let three = gateway.acquire(&scope("t3")).await.unwrap();
        let known: Vec<_> = gateway.list().into_iter().map(|(_, status)| status.id).collect();
        assert!(known.contains(&id1) && known.contains(three.id()) && !known.contains(&id2), "{known:?}");
        eventually("what ran in it ends", || running(&sleep) == 0).await;
        drop(run);
        gateway.release(three).await;
        // Its files stayed.
        let two = gateway.acquire(&scope("t2")).await.unwrap();
        assert_eq!(sh(&two, "cat f").await, "kept\n");
        gateway.shutdown().await;
    });
}

#[test]
fn two_callers_of_one_scope_get_one_sandbox() {
    conform(Kind::Local, async |subject: &Subject| {
        let acquire = || subject.gateway().acquire(&SCOPE);
        static SCOPE: std::sync::LazyLock<Scope> = std::sync::LazyLock::new(|| scope("t1"));
        let (a, b, c) = tokio::join!(acquire(), acquire(), acquire());
        let (a, b, c) = (a.unwrap(), b.unwrap(), c.unwrap());
        assert!(a.id() == b.id() && b.id() == c.id());
        assert_eq!(a.id().as_str(), "local:ann:t1");
        assert_eq!(subject.gateway().list().len(), 1);
    });
}

#[test]
fn no_isolation_needs_consent_in_code_too() {
    drive(async {
        let root = tempfile::tempdir().unwrap();
        let mut config = Kind::Local.config(root.path());
        let name = ProviderName::local();
        let process = config.providers[&name].grants.process.as_mut().unwrap();
        process.isolation = Isolation::None;
        process.network = true;
        let error = Gateway::open(config).await.unwrap_err();
        assert_eq!(error.code(), Code::Config, "{error}");
        assert!(error.to_string().contains("allow_unconfined_commands_on_this_host"), "{error}");
    });
}
