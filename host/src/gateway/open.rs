//! Opening a gateway, loading its providers, and lending sandboxes.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use futures::StreamExt;
use indexmap::IndexMap;
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::grants::{engine_options, env_policy, granted, in_namespaces, layout};
use super::sandbox::Sandbox;
use super::table::{Entry, Table};
use super::translate::Written;
use crate::config::{Config, ProviderConfig};
use crate::engine::{IdScheme, InstanceRecord, Provider, Runtime, Target};
use crate::env_policy::EnvPolicy;
use crate::error::{Code, Error, Result};
use crate::ids::{ProviderName, SandboxId, Scope};
use crate::mounts::{Layout, MountTable};
use crate::trust;

/// A gateway: the providers of one configuration, and the sandboxes that it lends.
///
/// The crate's documentation has an example.
pub struct Gateway {
    config: Config,
    runtime: Arc<Runtime>,
    layout: Arc<Layout>,
    policy: Arc<EnvPolicy>,
    providers: IndexMap<ProviderName, Slot>,
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("providers", &self.providers.keys()).finish_non_exhaustive()
    }
}

/// One configured provider: loaded when it is first used, so that one that is broken or slow holds up nobody else.
struct Slot {
    loaded: OnceCell<Loaded>,
    table: Table,
    /// Whose sandbox is being made or ended right now.
    turns: Mutex<HashMap<SandboxId, Weak<tokio::sync::Mutex<()>>>>,
}

impl Slot {
    /// The lock of one sandbox. Different sandboxes never wait for one another.
    fn turn(&self, id: &SandboxId) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock();
        if let Some(turn) = turns.get(id).and_then(Weak::upgrade) {
            return turn;
        }
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::default();
        turns.insert(id.clone(), Arc::downgrade(&turn));
        turn
    }
}

#[derive(Clone)]
struct Loaded {
    provider: Arc<Provider>,
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
    /// Starts a gateway: the engine and the folders. Providers are loaded when they are first used; see
    /// [`provider`](Self::provider) to load one now.
    ///
    /// A configuration that was made in code is held to the same rules as a file: isolation `none`, for one, needs consent.
    pub async fn open(config: Config) -> Result<Self> {
        config.check()?;
        let runtime = Runtime::new(engine_options(&config)?)?;
        let layout = Arc::new(layout(&config)?);
        let policy = Arc::new(env_policy(&config.environment));
        let providers = config
            .providers
            .iter()
            .map(|(name, provider)| {
                let limit =
                    NonZeroUsize::new(provider.lifecycle.replicas.unwrap_or(256) as usize).unwrap_or(NonZeroUsize::MIN);
                (name.clone(), Slot { loaded: OnceCell::new(), table: Table::new(limit), turns: Mutex::default() })
            })
            .collect();
        Ok(Self { config, runtime, layout, policy, providers })
    }

    /// The configuration that it runs with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The engine.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

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
        let (slot, _) = self.slot(name)?;
        Ok(Arc::clone(&self.load(name, slot).await?.provider))
    }

    async fn load<'a>(&'a self, name: &ProviderName, slot: &'a Slot) -> Result<&'a Loaded> {
        slot.loaded
            .get_or_try_init(|| async {
                let (_, config) = self.slot(name)?;
                let file = trust::locate(&config.component)?;
                let component = trust::read_component(&file, config.sha256.as_ref())?;
                trust::classify(&component.bytes).map_err(|error| error.context(file.display()))?;
                let digest = component.digest.to_string();
                let granted = granted(name, config, &self.policy, self.layout.state());
                let provider = Provider::load(&self.runtime, component.bytes, granted).await?;
                let description = provider.description();
                tracing::info!(provider = %name, version = description.version, digest, "provider loaded");
                Ok(Loaded { provider: Arc::new(provider), digest, file })
            })
            .await
    }

    /// Loads every configured provider and says what became of each.
    pub async fn reports(&self) -> Vec<ProviderReport> {
        let load = self.providers.iter().map(|(name, slot)| async move {
            let (provider, digest, file) = match self.load(name, slot).await {
                Ok(loaded) => {
                    (Ok(Arc::clone(&loaded.provider)), Some(loaded.digest.clone()), Some(loaded.file.clone()))
                }
                Err(error) => (Err(error), None, None),
            };
            ProviderReport { name: name.clone(), provider, digest, file }
        });
        futures::future::join_all(load).await
    }

    /// Lends a sandbox of the default provider.
    pub async fn acquire(&self, scope: &Scope) -> Result<Sandbox> {
        self.acquire_from(&self.config.default_provider, scope).await
    }

    /// Lends the scope's sandbox of a provider: the one that is there, or a new one. Two callers of one scope get the
    /// same sandbox.
    pub async fn acquire_from(&self, name: &ProviderName, scope: &Scope) -> Result<Sandbox> {
        let (slot, config) = self.slot(name)?;
        let provider = Arc::clone(&self.load(name, slot).await?.provider);
        let id = match provider.description().id_scheme {
            IdScheme::Readable => scope.readable_id(name.as_str()),
            IdScheme::Hashed => scope.hashed_id(),
        };
        if let Some(entry) = slot.table.get(&id) {
            if entry.scope != *scope {
                return Err(Error::internal(format!("sandbox {id} belongs to another scope")));
            }
            self.refresh_skills(scope).await;
            return Ok(Sandbox::new(entry));
        }
        // One at a time for one sandbox: two would make two at the backend, and one of them would be lost.
        let turn = slot.turn(&id);
        let _turn = turn.lock().await;
        if let Some(entry) = slot.table.get(&id) {
            return Ok(Sandbox::new(entry));
        }
        let namespaces = in_namespaces(config);
        let mounts = Arc::new(self.mounts(scope, namespaces).await?);
        let target = Target { sandbox: id, mounts };
        let instance = self.find_or_create(&provider, &target, scope).await?;
        let written = (!namespaces).then(Written::new);
        let entry = Entry { scope: scope.clone(), target, instance, provider: Arc::clone(&provider), written };
        Ok(Sandbox::new(self.admit(name, slot, entry).await?))
    }

    /// Takes a sandbox into the house, and ends the least recently used ones that nobody uses to make room for it.
    async fn admit(&self, name: &ProviderName, slot: &Slot, entry: Entry) -> Result<Arc<Entry>> {
        let entry = Arc::new(entry);
        while !slot.table.add(&entry) {
            if !self.make_room(slot).await {
                end(&entry).await;
                return Err(slot.table.full(name));
            }
        }
        Ok(entry)
    }

    /// Ends one sandbox that nobody uses. Its turn is held from before it leaves the table until it has ended, so that
    /// whoever asks for it in the meantime waits, and gets a new one.
    async fn make_room(&self, slot: &Slot) -> bool {
        for id in slot.table.idle(CANDIDATES) {
            let turn = slot.turn(&id);
            let Ok(_turn) = turn.try_lock() else { continue };
            if let Some(entry) = slot.table.take_idle(&id) {
                tracing::debug!(sandbox = %id, "ended to make room");
                end(&entry).await;
                return true;
            }
        }
        false
    }

    /// Makes a sandbox's directories and says where they are.
    async fn mounts(&self, scope: &Scope, tmp: bool) -> Result<MountTable> {
        let (layout, scope) = (Arc::clone(&self.layout), scope.clone());
        tokio::task::spawn_blocking(move || layout.table(&scope, tmp))
            .await
            .map_err(|error| Error::internal(format!("the directories of a sandbox could not be made: {error}")))?
    }

    /// A sandbox that is there already has its mounts; what they show of the skills may have become stale.
    async fn refresh_skills(&self, scope: &Scope) {
        if self.layout.skills().is_none() {
            return;
        }
        let (layout, user) = (Arc::clone(&self.layout), scope.user.clone());
        let refreshed = tokio::task::spawn_blocking(move || layout.skills().map(|skills| skills.mounts(&user)));
        if let Err(error) = refreshed.await {
            tracing::error!(%error, "skills could not be refreshed");
        }
    }

    async fn find_or_create(&self, provider: &Provider, target: &Target, scope: &Scope) -> Result<InstanceRecord> {
        let deployment = &self.config.gateway.deployment;
        if provider.description().features.findable
            && let Some(instance) = provider.find(target, scope, deployment).await?
        {
            return Ok(instance);
        }
        provider.create(target, scope, deployment).await
    }

    /// A provider's sandbox that is lent or parked here; looks into memory only.
    pub fn get(&self, provider: &ProviderName, id: &SandboxId) -> Option<Sandbox> {
        self.providers.get(provider)?.table.get(id).map(Sandbox::new)
    }

    /// The sandboxes that are lent or parked here.
    pub fn list(&self) -> Vec<Sandbox> {
        self.providers.values().flat_map(|slot| slot.table.list()).map(Sandbox::new).collect()
    }

    /// Gives a sandbox back. It stays parked, with what its commands left running, for the same scope to take again,
    /// until it must make room, is destroyed or the gateway shuts down.
    pub fn release(&self, sandbox: Sandbox) {
        drop(sandbox);
    }

    /// Ends a provider's sandbox, also one that is in use: its processes and what its backend has of it. Files in mounts
    /// stay. One that can't be ended stays known, so that it can be tried again.
    pub async fn destroy(&self, provider: &ProviderName, id: &SandboxId) -> Result<()> {
        let (slot, _) = self.slot(provider)?;
        let turn = slot.turn(id);
        let _turn = turn.lock().await;
        let Some(entry) = slot.table.take(id) else {
            return Err(Error::not_found(format!("provider {provider} has no sandbox {id} here")));
        };
        let destroyed = entry.provider.destroy(&entry.target, &entry.instance).await;
        if destroyed.is_err() {
            slot.table.put_back(entry);
        }
        destroyed
    }

    /// Ends every sandbox that lives in this process. Dropping the gateway ends its processes too, without asking the providers.
    pub async fn shutdown(&self) {
        let entries: Vec<_> = self.providers.values().flat_map(|slot| slot.table.drain()).collect();
        // No more at once than there are places: the rest would be refused as too many.
        let at_once = self.runtime.options().max_instances;
        futures::stream::iter(entries).for_each_concurrent(at_once, |entry| async move { end(&entry).await }).await;
    }
}

/// How many idle sandboxes are tried when room is needed: some may be taken again just then.
const CANDIDATES: usize = 16;

/// Ends a sandbox that nobody asks for any more.
async fn end(entry: &Entry) {
    if let Err(error) = entry.provider.destroy(&entry.target, &entry.instance).await {
        tracing::warn!(sandbox = %entry.target.sandbox, %error, "a sandbox could not be ended");
    }
}
