//! Finding files and text: native, over directory descriptors, with a few threads.

pub(super) mod glob;
pub(super) mod grep;
pub mod ignored;
/// The guest SDK's own.
#[cfg_attr(not(test), expect(dead_code, reason = "the guest SDK also asks it for hints"))]
mod matcher;
pub mod pattern;
mod queue;
mod start;
pub(super) mod top;
pub(super) mod walk;
