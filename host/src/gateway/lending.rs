//! Lending sandboxes, taking them back, and saying what there is.

use super::open::Gateway;
use super::sandbox::Sandbox;
use crate::error::{Code, Error, Result};
use crate::ids::{ProviderName, SandboxId, Scope};
use crate::lifecycle::{SandboxStatus, Stopped};

impl Gateway {
    /// Lends a sandbox of the default provider.
    pub async fn acquire(&self, scope: &Scope) -> Result<Sandbox> {
        self.acquire_from(&self.config.default_provider, scope).await
    }

    /// Lends the scope's sandbox of a provider: the one that is here, one that its backend has, or a new one; in this
    /// order. Two callers of one scope get the same sandbox. Nothing is lent before its lease is published.
    pub async fn acquire_from(&self, name: &ProviderName, scope: &Scope) -> Result<Sandbox> {
        let hold = self.load(name).await?.lifecycle.acquire(scope).await?;
        let sandbox = Sandbox::lent(hold)?;
        sandbox.refresh().await;
        Ok(sandbox)
    }

    /// A provider's sandbox that is lent here, for one more who uses it; looks into memory only. While the result lives,
    /// its sandbox is in use and not stopped; it is no lending of its own, so that the lender's release still parks it.
    pub fn get(&self, provider: &ProviderName, id: &SandboxId) -> Option<Sandbox> {
        let pin = self.providers.get(provider)?.loaded.get()?.lifecycle.get(id)?;
        Sandbox::used(pin)
    }

    /// The sandboxes that are lent, parked, being made or being stopped here, with their providers; looks into memory only.
    pub fn list(&self) -> Vec<(ProviderName, SandboxStatus)> {
        let of = |(name, lifecycle): (&ProviderName, &crate::lifecycle::Lifecycle)| {
            lifecycle.list().into_iter().map(|status| (name.clone(), status)).collect::<Vec<_>>()
        };
        self.lifecycles().flat_map(of).collect()
    }

    /// Gives a sandbox back and waits until that is done. When its last holder has given it back it is parked, with what
    /// its commands left running, for the same scope to take again, until it was idle for too long, must make room, is
    /// destroyed or the gateway shuts down. Dropping it does the same in the background.
    pub async fn release(&self, sandbox: Sandbox) {
        sandbox.give_back().await;
    }

    /// Begins anew, as each provider's `lifecycle.reset` says: nothing, all that is lent is parked, or all is stopped.
    /// Unused sandboxes of ephemeral providers end.
    pub async fn reset(&self) {
        futures::future::join_all(self.lifecycles().map(|(_, lifecycle)| lifecycle.reset())).await;
    }

    /// Ends a provider's sandbox that this gateway has, also one that is in use: its processes and what its backend has of
    /// it. Files in mounts stay. One that can't be ended stays known, so that it can be tried again.
    ///
    /// Errors: `not-found`; `not-owner` (another gateway looks after it by now); what the backend says.
    pub async fn destroy(&self, provider: &ProviderName, id: &SandboxId) -> Result<()> {
        match self.load(provider).await?.lifecycle.destroy(id, true).await? {
            Stopped::Yes => Ok(()),
            Stopped::NotHere => Err(Error::not_found(format!("provider {provider} has no sandbox {id} here"))),
            Stopped::Refused | Stopped::InUse => Err(not_owner(provider, id)),
        }
    }
}

/// Another gateway looks after the sandbox.
pub(super) fn not_owner(provider: &ProviderName, id: &SandboxId) -> Error {
    Error::new(Code::NotOwner, format!("another gateway looks after sandbox {id} of provider {provider}"))
        .hint("stop it there, or take it over")
}
