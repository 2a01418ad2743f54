//! Opening gateways for tests, running commands, waiting for conditions.

mod artifacts;
mod bytes;
mod cli;
mod host;
mod shell;
mod subject;

pub use artifacts::{component, target_dir};
pub use bytes::{Random, all_kinds_of_bytes, broken_stream};
pub use cli::{Cli, CliOutput};
pub use host::{Process, eventually, processes, running, unique_sleep};
pub use shell::{Handshake, command, failure, odd_names, quote, run, sh, text};
pub use subject::{Deviation, Kind, Subject, conform, drive};
