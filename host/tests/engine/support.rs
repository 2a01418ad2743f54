//! A runtime, a loaded provider, and a sandbox of it with real directories.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sandgate::capability::process::{Isolation, ProcessGrant, Processes};
use sandgate::capability::workspace::Limits;
use sandgate::config::{self, ComponentSource, Config, ProviderConfig, WorkspaceGrant};
use sandgate::engine::{EngineOptions, Granted, InstanceRecord, Provider, Runtime, Target};
use sandgate::env_policy::EnvPolicy;
use sandgate::error::Result;
use sandgate::ids::{ProviderName, Scope};
use sandgate::mounts::{Access, Mount, MountTable, VirtualPath};
use sandgate::values::{Event, EventStream, ExecRequest};

/// Longer than anything here may take, so that a hang becomes a failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Where components were built to.
pub(crate) fn component_file(folder: &str, variable: &str, name: &str) -> PathBuf {
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("debug").join(folder);
    let folder = std::env::var_os(variable).map_or(built, PathBuf::from);
    let file = folder.join(name).with_extension("wasm");
    assert!(file.exists(), "{} is missing: run `make providers test-guests`", file.display());
    file
}

pub(crate) fn hostile_file() -> PathBuf {
    component_file("test-guests", "SANDGATE_TEST_GUESTS", "hostile")
}

pub(crate) fn local_file() -> PathBuf {
    component_file("providers", "SANDGATE_PROVIDERS", "local")
}

pub(crate) fn hostile() -> Vec<u8> {
    std::fs::read(hostile_file()).unwrap()
}

pub(crate) fn local() -> Vec<u8> {
    std::fs::read(local_file()).unwrap()
}

/// Small and short, since most tests wait for a limit.
pub(crate) fn options() -> EngineOptions {
    EngineOptions {
        max_instances: 4,
        idle_instances: 4,
        cpu_limit: Duration::from_millis(300),
        call_timeout: PATIENCE,
        queue: 16,
        queue_timeout: PATIENCE,
        cache_dir: Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("engine-compiled")),
        ..EngineOptions::default()
    }
}

pub(crate) fn name() -> ProviderName {
    ProviderName::new("bad").unwrap()
}

/// All that hostile.wasm and local.wasm ask for.
pub(crate) fn granted(settings: &str) -> Granted {
    let grant = ProcessGrant { programs: vec!["bash".into()], isolation: Isolation::None, ..ProcessGrant::default() };
    let policy = Arc::new(EnvPolicy::deny_list(Vec::<String>::new()));
    Granted {
        provider: name(),
        process: Some(Processes::new(name(), grant, policy, std::env::temp_dir())),
        workspace: Some(Limits::default()),
        wasi: false,
        settings: settings.to_owned(),
        slow_call_timeout: Duration::ZERO,
    }
}

/// A configuration with one provider, which has all grants and whose commands need no bubblewrap.
pub(crate) fn config(folder: &Path, component: PathBuf) -> Config {
    let mut config = Config::default();
    config.gateway.state_dir = Some(folder.join("state"));
    config.gateway.cache_dir = Some(folder.join("cache"));
    config.default_provider = name();
    let mut provider = ProviderConfig::new(ComponentSource::File(component));
    provider.grants.workspace = Some(WorkspaceGrant::default());
    provider.grants.process = Some(config::ProcessGrant {
        isolation: config::Isolation::None,
        allow_unconfined_commands_on_this_host: true,
        network: true,
        ..Default::default()
    });
    config.providers = [(name(), provider)].into_iter().collect();
    config
}

/// A sandbox without a gateway.
pub(crate) struct Room {
    pub(crate) target: Target,
    pub(crate) scope: Scope,
    pub(crate) folder: tempfile::TempDir,
}

impl Room {
    pub(crate) fn new(thread: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = VirtualPath::new("/mnt/user-data/workspace").unwrap();
        let mount = Mount { at: at.clone(), host: folder.path().to_owned(), access: Access::ReadWrite };
        let mounts = Arc::new(MountTable::new(vec![mount], at).unwrap());
        let scope = Scope::new("ann".parse().unwrap(), thread.parse().unwrap());
        Self { target: Target { sandbox: scope.readable_id("bad"), mounts }, scope, folder }
    }
}

/// A provider with a sandbox.
pub(crate) struct Bench {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) provider: Arc<Provider>,
    pub(crate) room: Room,
}

impl Bench {
    pub(crate) async fn new(options: EngineOptions, bytes: Vec<u8>, settings: &str) -> Self {
        let runtime = Runtime::new(options).unwrap();
        let provider = Arc::new(Provider::load(&runtime, bytes, granted(settings)).await.unwrap());
        Self { runtime, provider, room: Room::new("one") }
    }

    pub(crate) async fn hostile(options: EngineOptions) -> Self {
        Self::new(options, hostile(), "{}").await
    }

    /// `create` of a provider whose settings say how it misbehaves there.
    pub(crate) async fn create(&self) -> Result<InstanceRecord> {
        let Room { target, scope, .. } = &self.room;
        self.provider.create(target, scope, "test").await
    }

    pub(crate) async fn exec(&self, command: &str) -> Result<EventStream> {
        let request = ExecRequest { command: command.to_owned(), ..ExecRequest::default() };
        let record = InstanceRecord::default();
        let started = self.provider.exec(&self.room.target, &record, &request, None, None);
        tokio::time::timeout(PATIENCE, started).await.expect("the call hangs")
    }

    /// A call that only succeeds if there is a place for it.
    pub(crate) async fn still_works(&self) {
        let events = drain(self.exec("pass:echo fine").await.unwrap()).await;
        assert_eq!(text(&events), "fine\n");
    }
}

/// All events of a stream.
pub(crate) async fn drain(mut events: EventStream) -> Vec<Event> {
    let mut all = Vec::new();
    while let Some(event) = tokio::time::timeout(PATIENCE, events.recv()).await.expect("the stream hangs") {
        all.push(event);
    }
    all
}

/// The standard output among events.
pub(crate) fn text(events: &[Event]) -> String {
    let bytes = events.iter().filter_map(|event| match event {
        Event::Stdout(bytes) => Some(&bytes[..]),
        _ => None,
    });
    String::from_utf8(bytes.collect::<Vec<_>>().concat()).unwrap()
}
