//! What a conformance case works on: a gateway of its own, with one provider.

use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use sandgate::config::{ComponentSource, Config, Isolation, ProcessGrant, ProviderConfig};
use sandgate::engine::Features;
use sandgate::ids::ProviderName;
use sandgate::mounts::VirtualPath;
use sandgate::{Gateway, Sandbox, Scope};
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};

use super::artifacts::{cache_dir, component, scratch};

/// How long one case may take; far more than it needs, so that only a hang gets here.
const DEADLINE: Duration = Duration::from_secs(150);

/// A provider, and how it is configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The Local provider in namespaces.
    Local,
    /// The Local provider without isolation: commands see host paths, which are translated.
    LocalUnconfined,
    /// The test guest that has nothing but `exec`, so that the guest SDK's shell defaults do all file operations.
    ShellOnly,
}

/// A difference from the contract that is known and accepted, with its reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deviation {
    /// The names in `/tmp`, in commands and in file operations, are not the same: without isolation `/tmp` is the
    /// host's own, which is no mount.
    NoOwnTmp,
}

impl Kind {
    /// What is known to differ.
    pub fn deviations(self) -> &'static [Deviation] {
        match self {
            Self::LocalUnconfined => &[Deviation::NoOwnTmp],
            Self::Local | Self::ShellOnly => &[],
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Local | Self::LocalUnconfined => "local",
            Self::ShellOnly => "shell-only",
        }
    }

    /// The provider's part of the configuration.
    pub fn provider(self) -> ProviderConfig {
        let mut provider = ProviderConfig::builtin_local();
        provider.component = ComponentSource::File(component(self.name()));
        match self {
            Self::Local => {}
            Self::LocalUnconfined => {
                provider.grants.process = Some(ProcessGrant {
                    isolation: Isolation::None,
                    allow_unconfined_commands_on_this_host: true,
                    network: true,
                    ..ProcessGrant::default()
                });
            }
            Self::ShellOnly => {
                provider.grants.workspace = None;
                provider.grants.process =
                    Some(ProcessGrant { programs: vec!["sh".to_owned()], ..ProcessGrant::default() });
            }
        }
        provider
    }

    /// A configuration with this provider alone, and its state in a directory.
    pub fn config(self, state: &std::path::Path) -> Config {
        let name = ProviderName::new(self.name()).unwrap();
        let mut config = Config {
            default_provider: name.clone(),
            providers: IndexMap::from([(name, self.provider())]),
            ..Config::default()
        };
        config.gateway.state_dir = Some(state.join("state"));
        config.gateway.cache_dir = Some(cache_dir());
        config
    }
}

/// A gateway with one provider.
#[derive(Debug)]
pub struct Subject {
    kind: Kind,
    gateway: Arc<Gateway>,
    features: Features,
    root: TempDir,
}

impl Subject {
    /// Opens one with its state in a directory of its own.
    pub async fn open(kind: Kind) -> Self {
        Self::open_with(kind, |_| {}).await
    }

    /// Likewise, with changes to its configuration.
    pub async fn open_with(kind: Kind, change: impl FnOnce(&mut Config)) -> Self {
        let root = scratch();
        let mut config = kind.config(root.path());
        for provider in config.providers.values_mut() {
            // What a case leaves running is ended and not waited for.
            provider.lifecycle.shutdown_grace_seconds = Some(0);
        }
        change(&mut config);
        let name = config.default_provider.clone();
        let gateway = Gateway::open(config).await.unwrap();
        let features = gateway.provider(&name).await.unwrap().description().features;
        Self { kind, gateway: Arc::new(gateway), features, root }
    }

    /// Which one it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The gateway.
    pub fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }

    /// What the provider says that it can do.
    pub fn features(&self) -> Features {
        self.features
    }

    /// Whether it differs from the contract in this known way.
    pub fn deviates(&self, deviation: Deviation) -> bool {
        self.kind.deviations().contains(&deviation)
    }

    /// A directory of the host for this subject alone; its state lies in `state`.
    pub fn root(&self) -> &std::path::Path {
        self.root.path()
    }

    /// The sandbox of a case.
    pub async fn sandbox(&self) -> Sandbox {
        self.sandbox_of("t1").await
    }

    /// The sandbox of a thread.
    pub async fn sandbox_of(&self, thread: &str) -> Sandbox {
        let scope = Scope::new("ann".parse().unwrap(), thread.parse().unwrap());
        self.gateway.acquire(&scope).await.unwrap()
    }

    /// A path in the workspace.
    pub fn path(&self, sandbox: &Sandbox, relative: &str) -> VirtualPath {
        sandbox.path(relative).unwrap()
    }
}

/// Runs one case on a subject of its own, within a deadline, and ends what it left.
pub fn conform(kind: Kind, case: impl AsyncFnOnce(&Subject)) {
    drive(async {
        let subject = Subject::open(kind).await;
        case(&subject).await;
        subject.gateway.shutdown().await;
    });
}

/// Runs a test on a runtime of its own, within a deadline.
pub fn drive(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let outcome = runtime.block_on(async {
        // Who started the tests may ignore them (nohup, a shell's background job), and a shell under test can't trap what it
        // was started to ignore. What is caught here is not ignored there.
        let _caught =
            [SignalKind::interrupt(), SignalKind::hangup(), SignalKind::quit()].map(|kind| signal(kind).unwrap());
        tokio::time::timeout(DEADLINE, test).await
    });
    // A thread that is stuck must not hide that the test is.
    runtime.shutdown_background();
    assert!(outcome.is_ok(), "the test did not end within {DEADLINE:?}");
}
