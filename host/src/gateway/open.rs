//! Opening a gateway, and closing it.

use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;

use super::grants::{engine_options, env_policy, layout};
use super::ownership::Ownership;
use super::policy;
use super::providers::Slot;
use crate::config::Config;
use crate::engine::Runtime;
use crate::env_policy::EnvPolicy;
use crate::error::Result;
use crate::ids::ProviderName;
use crate::lifecycle::{ShutdownMode, ShutdownReport, Upkeep};
use crate::mounts::Layout;
use crate::ownership::{LeaseTimes, OwnerId};

/// A gateway: the providers of one configuration, and the sandboxes that it lends.
///
/// The crate's documentation has an example.
pub struct Gateway {
    pub(super) config: Config,
    pub(super) runtime: Arc<Runtime>,
    pub(super) layout: Arc<Layout>,
    pub(super) policy: Arc<EnvPolicy>,
    pub(super) ownership: Ownership,
    pub(super) upkeep: Upkeep,
    pub(super) providers: IndexMap<ProviderName, Slot>,
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("providers", &self.providers.keys()).finish_non_exhaustive()
    }
}

impl Gateway {
    /// Starts a gateway that stays: the engine, the folders, and for each provider, once it is loaded, renewal, idle
    /// checks and reconciliation. Providers are loaded when they are first used; see [`provider`](Self::provider) to load
    /// one now. Redis, if it is configured, is connected when the first lease is asked for.
    ///
    /// A configuration that was made in code is held to the same rules as a file: isolation `none`, for one, needs consent.
    pub async fn open(config: Config) -> Result<Self> {
        Self::open_with(config, Upkeep::Full).await
    }

    /// Starts a gateway that looks after as much as `upkeep` says.
    pub async fn open_with(config: Config, upkeep: Upkeep) -> Result<Self> {
        config.check()?;
        let ownership = Ownership::open(policy::ownership(&config, &|name| std::env::var(name).ok())?)?;
        let runtime = Runtime::new(engine_options(&config)?)?;
        let layout = Arc::new(layout(&config)?);
        let policy = Arc::new(env_policy(&config.environment));
        let providers = config.providers.keys().map(|name| (name.clone(), Slot::default())).collect();
        Ok(Self { config, runtime, layout, policy, ownership, upkeep, providers })
    }

    /// The configuration that it runs with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The engine.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// What it is called in leases.
    pub fn owner_id(&self) -> &OwnerId {
        self.ownership.me()
    }

    /// How long leases last, if other gateways can see them.
    pub fn shared_leases(&self) -> Option<LeaseTimes> {
        self.ownership.shared().then(|| self.ownership.times())
    }

    /// Ends the gateway's part: nothing is lent any more, running commands get their time to end (the provider's
    /// `shutdown_grace_seconds`), then every sandbox that it looks after is stopped. What a peer looks after is left alone.
    ///
    /// Dropping a gateway ends its processes on this machine too, but asks no provider and gives no lease up.
    pub async fn shutdown(&self) -> ShutdownReport {
        self.shutdown_with(ShutdownMode::Stop).await
    }

    /// As [`shutdown`](Self::shutdown), with the choice of what becomes of the sandboxes.
    pub async fn shutdown_with(&self, mode: ShutdownMode) -> ShutdownReport {
        let each = self.lifecycles().map(|(name, lifecycle)| {
            let grace = self.config.providers.get(name).map_or(Duration::ZERO, |it| it.lifecycle.shutdown_grace());
            async move { lifecycle.shutdown(mode, grace).await }
        });
        let reports = futures::future::join_all(each).await;
        reports.into_iter().fold(ShutdownReport::default(), |sum, report| ShutdownReport {
            stopped: sum.stopped + report.stopped,
            left: sum.left + report.left,
            failed: sum.failed + report.failed,
        })
    }
}
