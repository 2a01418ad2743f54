//! Every file operation of a sandbox by nothing but its [`exec`](crate::Sandbox::exec): the defaults of the trait
//! [`Sandbox`](crate::Sandbox).
//!
//! They are POSIX shell scripts that work with dash, bash and BusyBox, and with the tools of GNU and of BusyBox. `exec`
//! must hand output through byte by byte and in order, and standard input for [`write_file`].

mod class;
mod ere;
mod failure;
mod files;
mod find;
mod glob;
mod grep;
mod list;
mod matcher;
mod ops;
mod quote;
mod read;
mod run;
mod script;
mod write;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may stop at what they did not expect")]
mod testing;

pub use ops::{glob, grep, list_dir, make_dir, read_file, remove, stat, write_file};
