//! What a host can lend to a provider: one file or folder per capability.

pub mod process;
