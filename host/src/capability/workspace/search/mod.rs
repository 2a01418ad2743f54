//! Finding files and text: native, over directory descriptors, with a few threads.

pub(super) mod glob;
pub(super) mod grep;
pub mod ignored;
pub mod pattern;
mod queue;
mod start;
pub(super) mod top;
pub(super) mod walk;
