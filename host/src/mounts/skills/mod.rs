//! Skills as sandboxes see them: read-only copies of the enabled ones.
//!
//! A source folder of the operator's is *projected* into views below the gateway's state: one for everyone (`public`)
//! and one for each user (`custom`, `legacy`, `integrations`). Views hold copies, never links to the source, so nothing
//! that happens in a sandbox can reach it. A view's category directories are never replaced, so mounts of them stay
//! good while skills come and go.
//!
//! [`Skills::ensure_public`] and [`Skills::ensure_user`] bring a view up to date. They compare signatures first (paths,
//! inodes, sizes, times) and leave a fresh view alone; a stale or tampered one is rebuilt skill by skill under a lock
//! that other threads and other gateways on the same state respect. A view that can't be brought up to date is emptied:
//! a skill that should be hidden must not stay visible because of an error.

mod copy;
mod lock;
mod projection;
mod source;
mod walk;

#[cfg(test)]
mod tests;

pub use projection::Skills;
