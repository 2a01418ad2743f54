//! A loaded provider: what it is, and how it is loaded.

use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;

use super::bindings::{ExportsPre, lifecycle};
use super::component::{self, Interfaces};
use super::convert::{Description, Features};
use super::failure::Blame;
use super::runtime::Runtime;
use super::session::Idle;
use super::state::{CallState, Granted};
use crate::error::{Error, Result};
use crate::ids::SandboxId;
use crate::instance::IdScheme;

/// The most bytes of an instance record.
pub const MAX_INSTANCE_RECORD: usize = 64 << 10;

/// A provider, ready to be called. Every call runs in an instance of its own; at most the next call of the same sandbox
/// gets an instance again, and never one that has seen injected variables.
pub struct Provider {
    pub(super) runtime: Arc<Runtime>,
    pub(super) pre: ExportsPre<CallState>,
    pub(super) granted: Arc<Granted>,
    pub(super) description: Description,
    interfaces: Interfaces,
    /// Bounded by the runtime's places for idle instances.
    pub(super) idle: Mutex<LruCache<SandboxId, Idle>>,
}

impl std::fmt::Debug for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Provider")
            .field("name", &self.granted.provider)
            .field("description", &self.description)
            .finish()
    }
}

impl Provider {
    /// Compiles, links and asks the component what it is.
    pub async fn load(runtime: &Arc<Runtime>, bytes: Vec<u8>, granted: Granted) -> Result<Self> {
        let granted = Arc::new(granted);
        let (pre, interfaces) = tokio::task::spawn_blocking({
            let (runtime, granted) = (Arc::clone(runtime), Arc::clone(&granted));
            move || {
                let compiled = component::compile(&runtime, granted.provider.as_str(), &bytes)?;
                let pre = component::link(runtime.engine(), &compiled, &granted)?;
                Ok::<_, Error>((pre, component::interfaces(runtime.engine(), &compiled)))
            }
        })
        .await
        .map_err(|error| Error::internal(format!("the compiler broke: {error}")))??;
        let unknown = Description {
            name: granted.provider.to_string(),
            version: "(unknown version)".to_owned(),
            id_scheme: IdScheme::Hashed,
            features: Features::default(),
        };
        let mut provider = Self {
            runtime: Arc::clone(runtime),
            pre,
            granted,
            description: unknown,
            interfaces,
            idle: Mutex::new(LruCache::unbounded()),
        };
        let described: lifecycle::Description = provider
            .simple("describe", None, |accessor, exports| {
                Box::pin(async move { Ok(Ok(exports.sandgate_provider_lifecycle().call_describe(accessor).await?)) })
            })
            .await?;
        provider.description = described.try_into()?;
        Ok(provider)
    }

    /// What it says of itself.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// What it imports and exports.
    pub fn interfaces(&self) -> &Interfaces {
        &self.interfaces
    }

    /// What it was granted.
    pub fn granted(&self) -> &Granted {
        &self.granted
    }

    pub(super) fn blame(&self, operation: &'static str) -> Blame {
        let provider = format!("{} {}", self.granted.provider, self.description.version);
        Blame { provider, operation }
    }
}
