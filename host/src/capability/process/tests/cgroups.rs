//! Commands in control groups of their own.

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use super::super::cgroup::{Cgroups, name_of, number_space, started};
use super::super::start::{Mark, into_group};
use super::super::{Isolation, ResourceLimits};
use super::kit::{Kit, bash, collect, grant, processes_with, read_line, unique_sleep, until};
use crate::error::Code;

/// Not by a macro: it must be seen although the test passes.
fn not_tested(what: &str, why: &str) {
    let _ = std::io::stderr().write_all(format!("NOT TESTED: {what}: {why}\n").as_bytes());
}

/// A control group of version 2 that this test may use, with or without controllers; it is removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mount = mounts.lines().find(|line| line.contains(" - cgroup2 ")).and_then(|line| line.split(' ').nth(4));
        let Some(mount) = mount else {
            not_tested(name, "no control groups of version 2 are mounted");
            return None;
        };
        let place = Path::new(mount).join(format!("sandgate.test.{name}.{}", std::process::id()));
        match std::fs::create_dir(&place) {
            Ok(()) => Some(Self(place)),
            Err(error) => {
                not_tested(name, &format!("control groups can't be made: {error}"));
                None
            }
        }
    }

    fn groups(&self) -> Vec<String> {
        let below = |dir: &Path| std::fs::read_dir(dir).unwrap().flatten().filter(|entry| entry.path().is_dir());
        below(&self.0)
            .flat_map(|gateway| below(&gateway.path()).map(|group| group.path()))
            .map(|path| path.display().to_string())
            .collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir(&self.0) {
            not_tested("clean up", &format!("{} is left: {error}", self.0.display()));
        }
    }
}

/// The control group of the only process that has this as a word of its command line; none if there is none yet.
fn group_of(marker: &str) -> Option<String> {
    let process = std::fs::read_dir("/proc").unwrap().flatten().find(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == marker.as_bytes())
    });
    let groups = std::fs::read_to_string(process?.path().join("cgroup")).ok()?;
    Some(groups.lines().find_map(|line| line.strip_prefix("0::"))?.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_in_its_group_until_its_last_process_is_gone() {
    for isolation in [Isolation::Namespace, Isolation::None] {
        let Some(place) = Place::new("life") else { return };
        let cgroups = Arc::new(Cgroups::below(&place.0, "sandgate-0-0-0").unwrap());
        let own = cgroups.dir().to_owned();
        let kit = Kit::build(grant(isolation), |processes| processes.with_cgroups(cgroups));
        let outcome = kit.bash("echo out; exit 7").await;
        assert_eq!((outcome.text().as_str(), outcome.code()), ("out\n", 7), "{outcome:?}");
        until("the group is removed", || place.groups().is_empty()).await;

        // It also leaves the process group, as a daemon does.
        let sleep = unique_sleep();
        let outcome = kit.bash(&format!("setsid sleep {sleep} > /dev/null 2>&1 & echo started")).await;
        assert_eq!(outcome.text(), "started\n");
        let mut first = None;
        until("it sleeps", || {
            first = first.take().or_else(|| group_of(&sleep));
            first.is_some()
        })
        .await;
        let [group] = &place.groups()[..] else { panic!("{:?}", place.groups()) };
        assert!(Path::new(group).starts_with(&own) && group.ends_with(first.as_ref().unwrap()), "{group}");
        let (other, mut events) = (unique_sleep(), None);
        events.replace(kit.start(bash(&format!("echo ready; exec sleep {other}"))).await.unwrap());
        assert_eq!(read_line(events.as_mut().unwrap()).await, "ready\n");
        let mut second = None;
        until("it sleeps as well", || {
            second = second.take().or_else(|| group_of(&other));
            second.is_some()
        })
        .await;
        assert_eq!(place.groups().len(), 2);
        assert_ne!(first, second);

        kit.processes.end_sandbox(&kit.sandbox);
        until("nothing is left", || processes_with(&sleep) + processes_with(&other) == 0).await;
        assert_eq!(collect(events.unwrap()).await.code(), 137);
        kit.settled().await;
        until("the groups are removed", || place.groups().is_empty()).await;
        drop(kit);
        assert!(!own.exists(), "the gateway's group ends with it");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_in_a_namespace_can_not_leave_its_group() {
    let Some(place) = Place::new("leave") else { return };
    let cgroups = Arc::new(Cgroups::below(&place.0, "sandgate-0-0-0").unwrap());
    let kit = Kit::build(grant(Isolation::Namespace), |processes| processes.with_cgroups(cgroups));
    let script = "cut -d: -f3 /proc/self/cgroup | sort -u; ls -d /sys/fs/cgroup 2>/dev/null
        mkdir -p c 2>/dev/null; mount -t cgroup2 none c 2>/dev/null && echo mounted; unshare -C true 2>/dev/null && echo unshared
        true";
    let outcome = kit.bash(script).await;
    assert!(outcome.text().lines().all(|line| line.starts_with('/') && !line.contains("sys")), "{outcome:?}");
    assert_eq!(outcome.code(), 0);
    until("the group is removed", || place.groups().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_can_not_be_made_starts_nothing() {
    for isolation in [Isolation::Namespace, Isolation::None] {
        let Some(place) = Place::new("make") else { return };
        let cgroups = Arc::new(Cgroups::below(&place.0, "sandgate-0-0-0").unwrap());
        std::fs::write(cgroups.dir().join("cgroup.max.descendants"), "1").unwrap();
        let kit = Kit::build(grant(isolation), |processes| processes.with_cgroups(Arc::clone(&cgroups)));
        std::fs::create_dir(cgroups.dir().join("other")).unwrap();
        let error = kit.start(bash("echo never")).await.unwrap_err();
        assert_eq!(error.code(), Code::Unavailable, "{error}");
        std::fs::remove_dir(cgroups.dir().join("other")).unwrap();
        assert_eq!(kit.bash("echo again").await.text(), "again\n");
        kit.settled().await;
        until("the group is removed", || place.groups().is_empty()).await;
    }
}

#[test]
fn a_group_that_can_not_be_entered_starts_nothing() {
    let Some(place) = Place::new("enter") else { return };
    let cgroups = Arc::new(Cgroups::below(&place.0, "sandgate-0-0-0").unwrap());
    for there in [true, false] {
        let (cgroup, mark) = (cgroups.make(&ResourceLimits::default(), 0).unwrap(), Mark::new(false).unwrap());
        if !there {
            std::fs::remove_dir(cgroup.door().parent().unwrap()).unwrap();
        }
        let [shell, words @ ..] = into_group(&mark, &cgroup);
        let output = Command::new(shell).args(words).args(["echo", "started"]).output().unwrap();
        assert_eq!((mark.started(), output.status.success(), output.stdout.is_empty()), (there, there, !there));
    }
}

#[test]
fn what_a_gateway_left_that_is_gone_is_ended_and_removed() {
    let Some(place) = Place::new("clean") else { return };
    let space = number_space().unwrap();
    let mut sleeper = Command::new("sleep").arg(unique_sleep()).stdin(Stdio::null()).spawn().unwrap();
    let gone = place.0.join(name_of(space, sleeper.id(), "1"));
    let own = std::process::id();
    let alive = place.0.join(name_of(space, own, &started(own).unwrap()));
    let foreign = place.0.join(name_of(space + 1, own, "1"));
    for dir in [&gone, &alive, &foreign] {
        std::fs::create_dir_all(dir.join("5")).unwrap();
    }
    std::fs::write(gone.join("5/cgroup.procs"), sleeper.id().to_string()).unwrap();
    // No command, but something that the gateway's process had started and moved along.
    let mut helper = Command::new("sleep").arg(unique_sleep()).stdin(Stdio::null()).spawn().unwrap();
    std::fs::create_dir(gone.join("self")).unwrap();
    std::fs::write(gone.join("self/cgroup.procs"), helper.id().to_string()).unwrap();
    drop(Cgroups::below(&place.0, "sandgate-0-0-0").unwrap());
    assert!(!gone.join("5").exists() && alive.exists() && foreign.exists());
    assert_eq!(sleeper.wait().unwrap().signal(), Some(9));
    assert_eq!(helper.try_wait().unwrap(), None, "it lives on");
    helper.kill().unwrap();
    helper.wait().unwrap();
    drop(Cgroups::below(&place.0, "sandgate-0-0-0").unwrap());
    assert!(!gone.exists());
    for dir in [&alive, &foreign] {
        std::fs::remove_dir(dir.join("5")).unwrap();
        std::fs::remove_dir(dir).unwrap();
    }
}

fn limited(isolation: Isolation, limits: ResourceLimits) -> Kit {
    Kit::with(super::super::ProcessGrant { limits, ..grant(isolation) })
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_limited_for_all_processes_together_and_the_end_says_so() {
    let limits = ResourceLimits { memory_mib: Some(64), ..ResourceLimits::default() };
    match Cgroups::of_this_process() {
        Ok(cgroups) if cgroups.can(&limits) => {}
        Ok(_) => return not_tested("the limit on memory", "there is no memory controller"),
        Err(why) => return not_tested("the limit on memory", &why),
    }
    for isolation in [Isolation::Namespace, Isolation::None] {
        let kit = limited(isolation, limits);
        let eats = |mib: u32| format!(r#"perl -e 'my $all = "x" x ({mib} << 20); print "fine\n"'"#);
        // More address space than the limit is no memory yet.
        let outcome = kit.bash(&format!("{}; {}", eats(8), eats(8))).await;
        assert_eq!((outcome.text().as_str(), outcome.code()), ("fine\nfine\n", 0), "{outcome:?}");
        let outcome = kit.bash(&format!("exec {}", eats(200))).await;
        assert_eq!((outcome.text().as_str(), outcome.code()), ("", 137), "{outcome:?}");
        assert!(outcome.errors().contains("limit of 64 MiB of memory"), "{outcome:?}");
        // Each fits, and all do not: the first that ends was killed.
        let many = r#"perl -e 'my @all; for (1 .. 4) { my $pid = fork; unless ($pid) { my $all = "x" x (24 << 20); sleep 1000 } push @all, $pid }
            wait; my $signal = $? & 127; kill 9, @all; print "$signal\n"'"#;
        let outcome = kit.bash(many).await;
        assert_eq!((outcome.text().as_str(), outcome.code()), ("9\n", 0), "{outcome:?}");
        assert!(outcome.errors().contains("limit of 64 MiB of memory"), "{outcome:?}");
        kit.settled().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_are_limited_also_for_root() {
    let limits = ResourceLimits { processes: Some(10), ..ResourceLimits::default() };
    match Cgroups::of_this_process() {
        Ok(cgroups) if cgroups.can(&limits) => {}
        Ok(_) => return not_tested("the limit on processes", "there is no pids controller"),
        Err(why) => return not_tested("the limit on processes", &why),
    }
    for isolation in [Isolation::Namespace, Isolation::None] {
        let kit = limited(isolation, limits);
        let forks = |count: u32| {
            let script =
                "my @all; my $end = 0; for (1 .. COUNT) { my $pid = fork; unless (defined $pid) { $end = 3; last }
                sleep 1000 unless $pid; push @all, $pid } kill 9, @all; print scalar(@all), \"\\n\"; exit $end";
            format!("perl -e '{}'", script.replace("COUNT", &count.to_string()))
        };
        let outcome = kit.bash(&format!("exec {}", forks(9))).await;
        assert_eq!((outcome.text().as_str(), outcome.code()), ("9\n", 0), "{outcome:?}");
        let outcome = kit.bash(&format!("exec {}", forks(10))).await;
        assert_eq!((outcome.text().as_str(), outcome.code()), ("9\n", 3), "{outcome:?}");
        kit.processes.end_sandbox(&kit.sandbox);
        kit.settled().await;
    }
}
