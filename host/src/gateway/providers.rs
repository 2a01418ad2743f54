//! The configured providers: each loaded when it is first used, so that one that is broken or slow holds up nobody else.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::OnceCell;

use super::backend::ProviderBackend;
use super::grants::{granted, in_namespaces};
use super::open::Gateway;
use super::policy::lifecycle_settings;
use crate::config::ProviderConfig;
use crate::engine::{self, Provider};
use crate::error::{Code, Error, Result};
use crate::ids::ProviderName;
use crate::lifecycle::{self, Lifecycle, Parts};
use crate::trust;

/// One configured provider.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) loaded: OnceCell<Loaded>,
}

pub(super) struct Loaded {
    pub(super) provider: Arc<Provider>,
    pub(super) lifecycle: Lifecycle,
    digest: String,
    file: PathBuf,
}

/// What is known of a configured provider.
#[derive(Debug)]
pub struct ProviderReport {
    /// Its name in the configuration.
    pub name: ProviderName,
    /// The provider, or why it can't be used.
    pub provider: Result<Arc<Provider>>,
    /// The sha256 of its component.
    pub digest: Option<String>,
    /// Where its component was read.
    pub file: Option<PathBuf>,
}

impl Gateway {
    fn slot(&self, name: &ProviderName) -> Result<(&Slot, &ProviderConfig)> {
        let found = self.providers.get(name).zip(self.config.providers.get(name));
        found.ok_or_else(|| {
            let known: Vec<&str> = self.providers.keys().map(ProviderName::as_str).collect();
            Error::new(Code::UnknownProvider, format!("there is no provider {name:?}", name = name.as_str()))
                .hint(format!("the configuration has {}", known.join(", ")))
        })
    }

    /// Loads a provider, or gives the one that is loaded. A failure is not remembered: once its cause is mended, the next
    /// call succeeds.
    pub async fn provider(&self, name: &ProviderName) -> Result<Arc<Provider>> {
        Ok(Arc::clone(&self.load(name).await?.provider))
    }

    /// The lifecycle of a provider's sandboxes; loads the provider.
    pub async fn lifecycle(&self, name: &ProviderName) -> Result<&Lifecycle> {
        Ok(&self.load(name).await?.lifecycle)
    }

    pub(super) async fn load(&self, name: &ProviderName) -> Result<&Loaded> {
        let (slot, config) = self.slot(name)?;
        slot.loaded.get_or_try_init(|| self.load_now(name, config)).await
    }

    async fn load_now(&self, name: &ProviderName, config: &ProviderConfig) -> Result<Loaded> {
        let file = trust::locate(&config.component)?;
        let component = trust::read_component(&file, config.sha256.as_ref())?;
        let digest = component.digest.to_string();
        let granted = granted(name, config, &self.policy, self.layout.state());
        let provider = Provider::load(&self.runtime, component.bytes, granted).await;
        let provider = Arc::new(provider.map_err(|error| match error.code().as_str().starts_with("component-") {
            true => error.context(file.display()),
            false => error,
        })?);
        let description = provider.description();
        let features = features(description);
        let settings = lifecycle_settings(config, &features, self.ownership.times())?;
        let ledger = settings.capacity.hard_limit().filter(|_| !features.ephemeral);
        let backend = ProviderBackend {
            provider: Arc::clone(&provider),
            layout: Arc::clone(&self.layout),
            deployment: self.config.gateway.deployment.clone(),
            namespaces: in_namespaces(config),
        };
        let lifecycle = Lifecycle::new(Parts {
            provider: name.clone(),
            features,
            settings,
            backend: Arc::new(backend),
            store: self.ownership.store(name),
            ledger: ledger.and_then(|limit| self.ownership.ledger(name, limit)),
            runtime: self.ownership.clock(),
        })?;
        lifecycle.start(self.upkeep);
        tracing::info!(provider = %name, version = description.version, digest, "provider loaded");
        Ok(Loaded { provider, lifecycle, digest, file })
    }

    /// The lifecycles of the providers that are loaded.
    pub(super) fn lifecycles(&self) -> impl Iterator<Item = (&ProviderName, &Lifecycle)> {
        self.providers.iter().filter_map(|(name, slot)| Some((name, &slot.loaded.get()?.lifecycle)))
    }

    /// Loads every configured provider and says what became of each.
    pub async fn reports(&self) -> Vec<ProviderReport> {
        let load = self.providers.keys().map(|name| async move {
            let (provider, digest, file) = match self.load(name).await {
                Ok(loaded) => {
                    (Ok(Arc::clone(&loaded.provider)), Some(loaded.digest.clone()), Some(loaded.file.clone()))
                }
                Err(error) => (Err(error), None, None),
            };
            ProviderReport { name: name.clone(), provider, digest, file }
        });
        futures::future::join_all(load).await
    }
}

/// What the lifecycle has to know of a provider.
fn features(description: &engine::Description) -> lifecycle::Features {
    lifecycle::Features {
        id_scheme: description.id_scheme,
        findable: description.features.findable,
        listable: description.features.listable,
        extendable: description.features.extendable,
        ephemeral: description.features.ephemeral,
    }
}
