//! What a check is, and how all of them are run.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::{backends, folders, isolation, lease_store, providers, resources};
use crate::config::Config;

/// How long one check may take. They run side by side, so all of them take about as long. Programs that a check starts
/// get half of it.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// What a check found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should be.
    Ok,
    /// It works, but not as well or as safely as it could.
    Warn,
    /// What the configuration asks for does not work.
    Fail,
    /// Not there, and nothing that is configured needs it.
    Skip,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was looked at.
    pub name: String,
    /// What was found.
    pub status: Status,
    /// The finding in words: versions, sizes, reasons.
    pub detail: String,
    /// What to do: a command where one does it.
    pub fix: Option<String>,
}

impl Check {
    fn new(name: impl Into<String>, status: Status, detail: impl Into<String>) -> Self {
        Self { name: name.into(), status, detail: detail.into(), fix: None }
    }

    pub(super) fn ok(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(name, Status::Ok, detail)
    }

    pub(super) fn warn(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(name, Status::Warn, detail)
    }

    pub(super) fn fail(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(name, Status::Fail, detail)
    }

    pub(super) fn skip(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(name, Status::Skip, detail)
    }

    pub(super) fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}

type Job = Box<dyn FnOnce(&Config) -> Vec<Check> + Send>;

/// Runs all checks, each within [`DEADLINE`]. The order of the findings is always the same.
pub fn run(config: &Config) -> Vec<Check> {
    let one = |check: fn(&Config) -> Check| -> Job { Box::new(move |config| vec![check(config)]) };
    let jobs: Vec<(&str, Job)> = vec![
        ("kernel", one(isolation::kernel)),
        ("bubblewrap", one(isolation::bubblewrap)),
        ("util-linux", one(isolation::util_linux)),
        ("user namespaces", one(isolation::user_namespaces)),
        ("isolation", one(isolation::isolation)),
        ("state directory", one(folders::state)),
        ("cache directory", one(folders::cache)),
        ("memory", one(resources::memory)),
        ("address space", one(resources::address_space)),
        ("providers", Box::new(providers::providers)),
        ("wasm target", one(backends::wasm_target)),
        ("redis", one(lease_store::redis)),
        ("docker", one(backends::docker)),
        ("kvm", one(backends::kvm)),
    ];
    run_jobs(config, jobs, DEADLINE)
}

fn run_jobs(config: &Config, jobs: Vec<(&str, Job)>, deadline: Duration) -> Vec<Check> {
    let end = Instant::now() + deadline;
    let running: Vec<_> = jobs
        .into_iter()
        .map(|(name, job)| {
            let (sender, receiver) = mpsc::channel();
            let config = config.clone();
            // A thread that hangs (a dead network file system) is left behind; nobody waits for its answer then.
            let started = std::thread::Builder::new().name(format!("doctor {name}")).spawn(move || {
                let _ = sender.send(job(&config));
            });
            (name, started.is_ok(), receiver)
        })
        .collect();
    running
        .into_iter()
        .flat_map(|(name, started, receiver)| {
            match receiver.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(found) => found,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    vec![Check::fail(name, format!("no answer within {} s", deadline.as_secs_f32()))]
                }
                Err(mpsc::RecvTimeoutError::Disconnected) if started => vec![Check::fail(name, "the check crashed")],
                Err(mpsc::RecvTimeoutError::Disconnected) => vec![Check::fail(name, "the check could not be started")],
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_hangs_or_crashes_is_a_finding_and_the_others_are_there() {
        let (_keep, never) = mpsc::channel::<()>();
        let jobs: Vec<(&str, Job)> = vec![
            (
                "hangs",
                Box::new(move |_| {
                    let _ = never.recv();
                    Vec::new()
                }),
            ),
            ("crashes", Box::new(|_| panic!("on purpose"))),
            ("works", Box::new(|_| vec![Check::ok("works", "fine")])),
        ];
        let begun = Instant::now();
        let found = run_jobs(&Config::default(), jobs, Duration::from_millis(200));
        assert!(begun.elapsed() < Duration::from_secs(5));
        let seen: Vec<(&str, Status)> = found.iter().map(|check| (check.name.as_str(), check.status)).collect();
        assert_eq!(seen, [("hangs", Status::Fail), ("crashes", Status::Fail), ("works", Status::Ok)]);
        assert_eq!(found[0].detail, "no answer within 0.2 s");
    }

    #[test]
    fn all_checks_of_this_host_answer_and_each_failure_has_a_fix() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.gateway.state_dir = Some(folder.path().join("state"));
        config.gateway.cache_dir = Some(folder.path().join("cache"));
        let found = run(&config);
        assert!(found.len() >= 13, "{found:#?}");
        for check in &found {
            assert!(!check.detail.is_empty() && check.detail != "the check crashed", "{check:?}");
            assert!(check.status != Status::Fail || check.fix.is_some(), "{check:?}");
        }
        let state = found.iter().find(|check| check.name == "state directory").unwrap();
        assert_eq!(state.status, Status::Ok, "{state:?}");
        assert!(!folder.path().join("state").exists(), "a check changes nothing");
    }
}
