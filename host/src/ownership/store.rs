//! What every lease store can do.

use futures::future::BoxFuture;

use super::lease::{Lease, OwnerId};
use crate::error::Result;
use crate::ids::SandboxId;

/// What a claim is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To be responsible for the sandbox.
    Keep,
    /// To tear it down: the lease becomes a `del:` marker.
    Destroy,
}

/// What a renewal found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// Still ours, and now for a whole time to live again.
    Renewed,
    /// Nobody holds it. Nothing was changed: whoever wants it back claims it.
    Lapsed,
    /// Someone else holds it, or we are tearing the sandbox down ourselves. Nothing was changed.
    Lost,
    /// The store answers, but not for this lease.
    Unknown,
}

/// Leases of one deployment, seen by one gateway (*me*).
///
/// | before | `take` | `claim` to keep | `claim` to destroy | `renew` | `release` | `owner` |
/// | --- | --- | --- | --- | --- | --- | --- |
/// | absent or lapsed | true, own:me | true, own:me | true, del:me | lapsed | nothing | none |
/// | own:me | true, renewed | true, renewed | true, del:me | renewed | deleted | me |
/// | del:me | **false** | **false** | true, renewed | lost | deleted | me |
/// | own:peer | true, own:me | false | false | lost | nothing | peer |
/// | del:peer | false | false | false | lost | nothing | peer |
///
/// Every change is atomic. An error (`lease-store-down`) always means that the answer is unknown; every implementation
/// gives one within [`OPERATION_TIMEOUT`](super::OPERATION_TIMEOUT).
pub trait Store: Send + Sync + 'static {
    /// Who *me* is.
    fn me(&self) -> &OwnerId;

    /// Whether leases of other gateways are visible here. If not, an absent lease says nothing about them.
    fn sees_peers(&self) -> bool;

    /// Transfers ownership to us, whoever had it. False if the sandbox is being torn down.
    fn take<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, Result<bool>>;

    /// Makes it ours if nobody else has it.
    fn claim<'a>(&'a self, id: &'a SandboxId, purpose: Purpose) -> BoxFuture<'a, Result<bool>>;

    /// Renews many leases in one pass; the answers are in the order of `ids`.
    fn renew<'a>(&'a self, ids: &'a [SandboxId]) -> BoxFuture<'a, Result<Vec<Renewal>>>;

    /// Gives it up, if it is ours in either state.
    fn release<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, Result<()>>;

    /// Who has it. Changes nothing.
    fn owner<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, Result<Option<Lease>>>;
}
