//! What is said of a sandbox between a provider and whoever keeps it.

use std::sync::Arc;

/// What a provider calls its sandbox: opaque bytes, made by the provider, kept by the host and handed back to it on every
/// call. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceRecord(Arc<[u8]>);

impl InstanceRecord {
    /// Wraps what a provider gave.
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self(bytes.into())
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// One without a byte.
impl Default for InstanceRecord {
    fn default() -> Self {
        Self::new([])
    }
}

/// How a provider's sandboxes are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IdScheme {
    /// By [`Scope::hashed_id`](crate::ids::Scope::hashed_id).
    #[default]
    Hashed,
    /// By [`Scope::readable_id`](crate::ids::Scope::readable_id) with the provider's name.
    Readable,
}

/// What a probe says for certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// It lives.
    Alive,
    /// It is gone.
    Dead,
}
