//! A sandbox with a workspace, and ways to run something in it.

use std::ffi::OsString;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;

use super::super::{Isolation, ProcessGrant, Processes, SpawnRequest};
use crate::env_policy::EnvPolicy;
use crate::error::{Error, Result};
use crate::ids::{ProviderName, SandboxId, Scope};
use crate::mounts::{Access, Mount, MountTable, VirtualPath};
use crate::values::{Event, EventStream, ExitStatus};

pub(super) const WORKSPACE: &str = "/mnt/user-data/workspace";

/// Far more than any of these tests takes.
pub(super) const DEADLINE: Duration = Duration::from_secs(60);

pub(super) struct Kit {
    pub(super) processes: Processes,
    pub(super) sandbox: SandboxId,
    pub(super) mounts: MountTable,
    pub(super) dir: TempDir,
}

/// What a command did.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    pub(super) dropped: u64,
    pub(super) end: Option<Result<ExitStatus, Error>>,
}

impl Outcome {
    pub(super) fn code(&self) -> i32 {
        self.end.clone().unwrap().unwrap_or_else(|error| panic!("{error}")).code
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8(self.stdout.clone()).unwrap()
    }

    pub(super) fn errors(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    pub(super) fn take(&mut self, event: Event) {
        assert!(self.end.is_none(), "{event:?} after the end");
        match event {
            Event::Stdout(bytes) => self.stdout.extend_from_slice(&bytes),
            Event::Stderr(bytes) => self.stderr.extend_from_slice(&bytes),
            Event::Dropped(count) => self.dropped += count,
            Event::Exited(status) => self.end = Some(Ok(status)),
            Event::Failed(error) => self.end = Some(Err(error)),
        }
    }
}

pub(super) fn grant(isolation: Isolation) -> ProcessGrant {
    let programs = ["bash", "cat", "perl", "python3", "nowhere"].map(str::to_owned).to_vec();
    ProcessGrant { programs, isolation, ..ProcessGrant::default() }
}

pub(super) fn mount(at: &str, host: &Path, access: Access) -> Mount {
    Mount { at: VirtualPath::new(at).unwrap(), host: host.to_owned(), access }
}

impl Kit {
    pub(super) fn new(isolation: Isolation) -> Self {
        Self::with(grant(isolation))
    }

    pub(super) fn namespace() -> Self {
        Self::new(Isolation::Namespace)
    }

    pub(super) fn with(grant: ProcessGrant) -> Self {
        Self::build(grant, |processes| processes)
    }

    pub(super) fn build(grant: ProcessGrant, change: impl FnOnce(Processes) -> Processes) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["workspace", "skills", "runtime"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let mounts = vec![
            mount(WORKSPACE, &dir.path().join("workspace"), Access::ReadWrite),
            mount("/mnt/skills/public", &dir.path().join("skills"), Access::ReadOnly),
        ];
        let mounts = MountTable::new(mounts, VirtualPath::new(WORKSPACE).unwrap()).unwrap();
        let provider = ProviderName::new("local").unwrap();
        let processes = Processes::new(provider, grant, Arc::new(EnvPolicy::default()), dir.path().join("runtime"));
        let processes = change(processes);
        let sandbox = Scope::default().hashed_id();
        Self { processes, sandbox, mounts, dir }
    }

    /// A gateway with these variables, and none of its real ones.
    pub(super) fn with_env(grant: ProcessGrant, vars: impl IntoIterator<Item = (String, String)>) -> Self {
        let vars: Vec<(OsString, OsString)> =
            vars.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        Self::build(grant, |processes| processes.with_host_env(Arc::new(move || vars.clone())))
    }

    pub(super) async fn start(&self, request: SpawnRequest) -> Result<EventStream> {
        self.processes.spawn(&self.sandbox, &self.mounts, request, None, None).await
    }

    pub(super) async fn run(&self, request: SpawnRequest) -> Result<Outcome> {
        Ok(collect(self.start(request).await?).await)
    }

    /// Runs a script, and wants it to start and end.
    pub(super) async fn bash(&self, script: &str) -> Outcome {
        self.run(bash(script)).await.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Waits until nothing of the sandbox is left.
    pub(super) async fn settled(&self) {
        until("the sandbox's groups are gone", || self.processes.count(&self.sandbox) == 0).await;
    }
}

pub(super) fn bash(script: &str) -> SpawnRequest {
    SpawnRequest { program: "bash".into(), args: vec!["-c".into(), script.into()], ..SpawnRequest::default() }
}

pub(super) async fn collect(mut events: EventStream) -> Outcome {
    let mut outcome = Outcome::default();
    within(async {
        while let Some(event) = events.recv().await {
            outcome.take(event);
        }
    })
    .await;
    assert!(outcome.end.is_some(), "the stream ended without an end");
    outcome
}

pub(super) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.expect("it took too long")
}

/// Polls a condition up to the deadline.
pub(super) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + DEADLINE;
    while !condition() {
        assert!(std::time::Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits for output that ends with a line, and gives all of it.
pub(super) async fn read_line(events: &mut EventStream) -> String {
    let mut text = Vec::new();
    while !text.ends_with(b"\n") {
        match within(events.recv()).await {
            Some(Event::Stdout(bytes)) => text.extend_from_slice(&bytes),
            other => panic!("{other:?} instead of a line"),
        }
    }
    String::from_utf8(text).unwrap()
}

/// How many processes of the host have this text in their command line.
pub(super) fn processes_with(marker: &str) -> usize {
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok()))
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .filter(|line| line.split(|byte| *byte == 0).any(|word| word == marker.as_bytes()))
        .count()
}

/// A number of seconds to sleep that no other test uses, so that the sleeper can be found.
pub(super) fn unique_sleep() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{}.{}", 3000 + NEXT.fetch_add(1, Ordering::Relaxed), std::process::id())
}

pub(super) fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}
