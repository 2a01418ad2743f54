//! Which component bytes the gateway accepts: where they come from, what they are pinned to, and what is no component.

mod builtin;
mod classify;
mod digest;
mod read;
mod source;

pub use builtin::locate;
pub use classify::classify;
pub use digest::{Sha256Pin, sha256_of};
pub use read::{ComponentBytes, MAX_COMPONENT, read_component};
pub use source::ComponentSource;
