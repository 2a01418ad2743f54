//! What a provider says of all its sandboxes, and pushing one's end out.

use std::time::Duration;

use super::bindings::lifecycle;
use super::provider::Provider;
use super::state::Target;
use crate::error::{Code, Error, Result};
use crate::ids::{SandboxId, Scope, ThreadId, UserId};
use crate::instance::InstanceRecord;
use crate::mounts::{MountTable, VirtualPath};

/// The longest cursor that a provider may give, in bytes: backends' own page tokens have some hundred.
const MAX_CURSOR: usize = 16 << 10;

/// Whose calls those are that are about all sandboxes. No scope has such an id.
const EVERYONE: &str = ":inventory";

/// One sandbox in an inventory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its id.
    pub sandbox: SandboxId,
    /// What the provider calls it.
    pub instance: InstanceRecord,
    /// Whose it is, if the backend says.
    pub scope: Option<Scope>,
    /// When it was made, in milliseconds since 1970, if the backend says.
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

impl Provider {
    /// All sandboxes that a deployment made, part by part. What has no usable id is left out, with a warning: it can be none
    /// of ours.
    ///
    /// The call belongs to no sandbox: it sees no files, and programs that it starts begin in `/`.
    pub async fn inventory(&self, deployment: &str, cursor: Option<String>) -> Result<Page> {
        let deployment = deployment.to_owned();
        let mounts = std::sync::Arc::new(MountTable::new(Vec::new(), VirtualPath::root())?);
        let target = Target { sandbox: EVERYONE.parse()?, mounts };
        let listed = self
            .simple("inventory", Some(&target), |accessor, exports| {
                Box::pin(async move {
                    exports.sandgate_provider_lifecycle().call_inventory(accessor, deployment, cursor).await
                })
            })
            .await;
        self.let_go(&target);
        let page = listed?;
        if page.next.as_ref().is_some_and(|next| next.len() > MAX_CURSOR) {
            return Err(Error::new(
                Code::GuestProtocol,
                format!("provider {} gave a cursor of more than {MAX_CURSOR} bytes", self.granted().provider),
            )
            .hint("a provider must keep it short, such as the last id of the page"));
        }
        let mut items = Vec::with_capacity(page.items.len());
        for item in page.items {
            let sandbox = match item.sandbox_id.parse::<SandboxId>() {
                Ok(sandbox) => sandbox,
                Err(error) => {
                    tracing::warn!(provider = %self.granted().provider, %error, "a listed sandbox is left out");
                    continue;
                }
            };
            items.push(Item {
                sandbox,
                instance: self.record("inventory", item.instance)?,
                scope: item.scope.and_then(scope),
                created_ms: item.created_ms,
            });
        }
        Ok(Page { items, next: page.next })
    }

    /// Pushes the backend's own end of a sandbox out to so long from now.
    pub async fn extend(&self, target: &Target, instance: &InstanceRecord, timeout: Duration) -> Result<()> {
        let instance = instance.as_bytes().to_vec();
        let timeout = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        self.simple("extend", Some(target), |accessor, exports| {
            Box::pin(
                async move { exports.sandgate_provider_lifecycle().call_extend(accessor, instance, timeout).await },
            )
        })
        .await
    }
}

/// A scope that a backend remembered; one that can't be one says nothing.
fn scope(found: lifecycle::Scope) -> Option<Scope> {
    let user = UserId::new(found.user).ok()?;
    let thread = match found.thread {
        Some(thread) => Some(ThreadId::new(thread).ok()?),
        None => None,
    };
    Some(Scope { user, thread })
}
