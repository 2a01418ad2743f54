//! What a provider may be granted: one file or folder per capability, none of them knows WebAssembly.

pub mod process;
pub mod workspace;
