//! The `workspace` capability: the files of a call's mount table, and nothing else of the host.
//!
//! # Containment
//!
//! Every object is opened by `openat2` from a directory descriptor of its mount's root, beneath it and **through no
//! link at all**. Where a path does hold links, they are read and resolved here, as the sandbox itself would: a target
//! is a *virtual* path, so each step is looked up in the mount table again, the deepest mount decides again, and the
//! result is opened without links again. So whoever swaps a directory for a link between two system calls changes at
//! worst which error comes back. No decision about containment rests on comparing host paths.
//!
//! - `lookup` finds the mount of a path and resolves links; `roots` opens mount roots; `beneath` is the one place
//!   that opens things.
//! - `read`, `write`, `change`, `list` and [`search`] are the operations; `handle` is their public face.
//! - `fault` is the one place that turns what the operating system says into an [`Error`](crate::error::Error).

mod beneath;
mod blocking;
mod change;
mod enter;
mod fault;
mod handle;
mod kind;
mod lines;
mod list;
mod lookup;
mod read;
mod roots;
pub mod search;
mod staging;
mod write;

#[cfg(test)]
mod tests;

pub(crate) use enter::check_enterable;
pub use handle::{DEFAULT_MAX_WRITE, Limits, Workspace};
