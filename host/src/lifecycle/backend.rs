//! What the lifecycle needs of a provider.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};

use crate::error::Result;
use crate::ids::{SandboxId, Scope};
use crate::instance::{IdScheme, InstanceRecord, Liveness};

/// What the lifecycle's user keeps beside a sandbox, for as long as it is in the books or in use.
#[derive(Clone, Default)]
pub struct Attachment(Option<Arc<dyn Any + Send + Sync>>);

impl Attachment {
    /// Something to keep.
    pub fn new<T: Any + Send + Sync>(kept: Arc<T>) -> Self {
        Self(Some(kept))
    }

    /// Nothing is kept.
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// What is kept, if it is a `T`.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.0.clone()?.downcast().ok()
    }
}

impl fmt::Debug for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_none() { "nothing" } else { "…" })
    }
}

/// One sandbox at its backend.
#[derive(Debug, Clone)]
pub struct Instance {
    /// What the gateway calls it.
    pub id: SandboxId,
    /// Whose it is; none if it was adopted and the backend does not say.
    pub scope: Option<Scope>,
    /// What the provider calls it.
    pub record: InstanceRecord,
    /// What is kept beside it; nothing until it is acquired.
    pub attachment: Attachment,
}

/// Two are the same if they are the same sandbox, whatever is kept beside them.
impl PartialEq for Instance {
    fn eq(&self, other: &Self) -> bool {
        (&self.id, &self.scope, &self.record) == (&other.id, &other.scope, &other.record)
    }
}

impl Eq for Instance {}

/// A sandbox that is being acquired, and may not exist yet.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// What the gateway calls it.
    pub id: SandboxId,
    /// Whose it is.
    pub scope: Scope,
    /// What [`Backend::prepare`] made for it.
    pub attachment: Attachment,
}

impl Wanted {
    /// It, now that the provider has a name for it.
    pub(super) fn found(self, record: InstanceRecord) -> Instance {
        Instance { id: self.id, scope: Some(self.scope), record, attachment: self.attachment }
    }
}

/// Which optional parts a provider has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features {
    /// How its sandboxes are named.
    pub id_scheme: IdScheme,
    /// [`Backend::find`] works.
    pub findable: bool,
    /// [`Backend::inventory`] works.
    pub listable: bool,
    /// [`Backend::extend`] works: the backend ends sandboxes by itself after a while.
    pub extendable: bool,
    /// There is nothing at the backend to own or keep warm: a sandbox costs nothing to make.
    pub ephemeral: bool,
}

/// A sandbox in an inventory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The sandbox.
    pub instance: Instance,
    /// Milliseconds since 1970, if the backend says.
    pub created_ms: Option<u64>,
}

/// A part of an inventory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// The sandboxes.
    pub items: Vec<Item>,
    /// How to get the next part; none: this was the last.
    pub next: Option<String>,
}

/// A provider, as the lifecycle uses it. Dropping a call's future ends the call.
///
/// Every error but an explicit answer means *unknown*. Deadlines are the lifecycle's business.
pub trait Backend: Send + Sync + 'static {
    /// Makes ready what a scope's sandbox needs on this gateway, before it is looked for or made; what is returned is
    /// kept beside it. Asks no backend.
    fn prepare<'a>(&'a self, _id: &'a SandboxId, _scope: &'a Scope) -> BoxFuture<'a, Result<Attachment>> {
        async { Ok(Attachment::default()) }.boxed()
    }

    /// Makes a sandbox and waits until it can run commands. On an error nothing is left behind.
    fn create<'a>(&'a self, wanted: &'a Wanted) -> BoxFuture<'a, Result<InstanceRecord>>;

    /// The existing sandbox with this id, or none.
    fn find<'a>(&'a self, wanted: &'a Wanted) -> BoxFuture<'a, Result<Option<InstanceRecord>>>;

    /// A page of all sandboxes that this deployment made.
    fn inventory(&self, cursor: Option<String>) -> BoxFuture<'_, Result<Page>>;

    /// Whether it lives. An error means unknown, never dead.
    fn probe<'a>(&'a self, instance: &'a Instance) -> BoxFuture<'a, Result<Liveness>>;

    /// Ends it. One that is gone already is a success.
    fn destroy<'a>(&'a self, instance: &'a Instance) -> BoxFuture<'a, Result<()>>;

    /// Pushes the backend's own end out to so long from now.
    fn extend<'a>(&'a self, instance: &'a Instance, timeout: Duration) -> BoxFuture<'a, Result<()>>;
}
