//! A provider as the lifecycle uses it: each step is a call into its component.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};

use super::translate::Written;
use crate::engine::{self, Provider, Target};
use crate::error::{Code, Error, Result};
use crate::ids::{SandboxId, Scope};
use crate::lifecycle::{Attachment, Backend, Instance, InstanceRecord, Item, Liveness, Page, Wanted};
use crate::mounts::{Layout, MountTable, VirtualPath};

/// How long a stop waits for a free place in the engine before it tries again: about the time of a call.
const BUSY: Duration = Duration::from_millis(20);

/// What a gateway keeps beside a sandbox.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) scope: Scope,
    pub(super) target: Target,
    pub(super) provider: Arc<Provider>,
    /// What its agent wrote, where commands don't see virtual paths as real ones; none: nothing is translated.
    pub(super) written: Option<Written>,
    layout: Arc<Layout>,
    /// Its mounts were just made, with what they show of the skills.
    fresh: AtomicBool,
}

impl Entry {
    /// A sandbox that is there already has its mounts; what they show of the skills may have become stale.
    pub(super) async fn refresh(&self) {
        if self.layout.skills().is_none() || self.fresh.swap(false, Ordering::Relaxed) {
            return;
        }
        let (layout, user) = (Arc::clone(&self.layout), self.scope.user.clone());
        let refreshed = tokio::task::spawn_blocking(move || layout.skills().map(|skills| skills.mounts(&user)));
        if let Err(error) = refreshed.await {
            tracing::error!(%error, "skills could not be refreshed");
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.provider.let_go(&self.target);
    }
}

/// A loaded provider and what its calls need of this gateway.
pub(super) struct ProviderBackend {
    pub(super) provider: Arc<Provider>,
    pub(super) layout: Arc<Layout>,
    pub(super) deployment: String,
    /// Its commands see virtual paths as real ones.
    pub(super) namespaces: bool,
}

impl ProviderBackend {
    /// Makes a sandbox's directories and says where they are.
    async fn mounts(&self, scope: &Scope) -> Result<MountTable> {
        let (layout, scope, tmp) = (Arc::clone(&self.layout), scope.clone(), self.namespaces);
        tokio::task::spawn_blocking(move || layout.table(&scope, tmp))
            .await
            .map_err(|error| Error::internal(format!("the directories of a sandbox could not be made: {error}")))?
    }

    /// The target of a call about a sandbox. One that was adopted and not acquired yet sees nothing of this host.
    fn target(&self, id: &SandboxId, attachment: &Attachment) -> Result<Target> {
        match attachment.get::<Entry>() {
            Some(entry) => Ok(entry.target.clone()),
            None => {
                let mounts = Arc::new(MountTable::new(Vec::new(), VirtualPath::root())?);
                Ok(Target { sandbox: id.clone(), mounts })
            }
        }
    }
}

impl Backend for ProviderBackend {
    fn prepare<'a>(&'a self, id: &'a SandboxId, scope: &'a Scope) -> BoxFuture<'a, Result<Attachment>> {
        async move {
            let mounts = Arc::new(self.mounts(scope).await?);
            Ok(Attachment::new(Arc::new(Entry {
                scope: scope.clone(),
                target: Target { sandbox: id.clone(), mounts },
                provider: Arc::clone(&self.provider),
                written: (!self.namespaces).then(Written::new),
                layout: Arc::clone(&self.layout),
                fresh: AtomicBool::new(true),
            })))
        }
        .boxed()
    }

    fn create<'a>(&'a self, wanted: &'a Wanted) -> BoxFuture<'a, Result<InstanceRecord>> {
        async move {
            let target = self.target(&wanted.id, &wanted.attachment)?;
            self.provider.create(&target, &wanted.scope, &self.deployment).await
        }
        .boxed()
    }

    fn find<'a>(&'a self, wanted: &'a Wanted) -> BoxFuture<'a, Result<Option<InstanceRecord>>> {
        async move {
            let target = self.target(&wanted.id, &wanted.attachment)?;
            self.provider.find(&target, &wanted.scope, &self.deployment).await
        }
        .boxed()
    }

    fn inventory(&self, cursor: Option<String>) -> BoxFuture<'_, Result<Page>> {
        async move {
            let engine::Page { items, next } = self.provider.inventory(&self.deployment, cursor).await?;
            let item = |item: engine::Item| Item {
                instance: Instance {
                    id: item.sandbox,
                    scope: item.scope,
                    record: item.instance,
                    attachment: Attachment::default(),
                },
                created_ms: item.created_ms,
            };
            Ok(Page { items: items.into_iter().map(item).collect(), next })
        }
        .boxed()
    }

    fn probe<'a>(&'a self, instance: &'a Instance) -> BoxFuture<'a, Result<Liveness>> {
        async move {
            let target = self.target(&instance.id, &instance.attachment)?;
            self.provider.probe(&target, &instance.record).await
        }
        .boxed()
    }

    fn destroy<'a>(&'a self, instance: &'a Instance) -> BoxFuture<'a, Result<()>> {
        async move {
            let target = self.target(&instance.id, &instance.attachment)?;
            // One that was never lent here has nothing here: what there is under its id is the one's in use.
            let lent = !instance.attachment.is_none();
            loop {
                let stopped = if lent {
                    self.provider.destroy(&target, &instance.record).await
                } else {
                    self.provider.destroy_there(&target, &instance.record).await
                };
                match stopped {
                    // Many stops at once, as at a shutdown, queue here; how long one may take is the lifecycle's to say.
                    Err(error) if error.code() == Code::Busy => tokio::time::sleep(BUSY).await,
                    stopped => {
                        if !lent {
                            self.provider.let_go(&target);
                        }
                        return stopped;
                    }
                }
            }
        }
        .boxed()
    }

    fn extend<'a>(&'a self, instance: &'a Instance, timeout: Duration) -> BoxFuture<'a, Result<()>> {
        async move {
            let target = self.target(&instance.id, &instance.attachment)?;
            self.provider.extend(&target, &instance.record, timeout).await
        }
        .boxed()
    }
}
