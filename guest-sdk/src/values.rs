//! The types of the interface under short names, and constructors where the generated ones are bare.

pub use crate::bindings::exports::sandgate::provider::lifecycle::{
    CreateRequest, Description, Features, IdScheme, Item, Liveness, Page, Scope,
};
pub use crate::bindings::exports::sandgate::provider::sandbox::ExecRequest;
pub use crate::bindings::sandgate::capability::types::{
    ByteRange, Capacity, Content, DirEntry, Error, Event, ExitStatus, FileKind, FileStat, GlobOptions, GlobResult,
    GrepMatch, GrepOptions, GrepResult, LineRange, ListOptions, Listing, ReadRange, Signal, TooLarge, WriteMode,
    WriteOptions,
};
use crate::process::SpawnRequest;

/// A stream of bytes.
pub type ByteStream = wit_bindgen::StreamReader<u8>;
/// What a running command does; see the WIT of `event`.
pub type EventStream = wit_bindgen::StreamReader<Event>;
/// Signals for a running command.
pub type SignalStream = wit_bindgen::StreamReader<Signal>;

impl Description {
    /// A provider whose sandboxes have hashed ids.
    pub fn new(name: impl Into<String>, version: impl Into<String>, features: Features) -> Self {
        Self { name: name.into(), version: version.into(), id_scheme: IdScheme::Hashed, features }
    }
}

impl SpawnRequest {
    /// A program and its arguments, with the grant's own limits and no further environment.
    pub fn new(program: impl Into<String>, args: Vec<String>) -> Self {
        Self { program: program.into(), args, env: Vec::new(), cwd: None, timeout_ms: None, output_limit: None }
    }
}

impl ExecRequest {
    /// A command with the provider's own limits and no further environment.
    pub fn new(command: impl Into<String>) -> Self {
        Self { command: command.into(), env: Vec::new(), cwd: None, timeout_ms: None, output_limit: None }
    }
}

impl ExitStatus {
    /// A command that ended by itself, or with 128 + N by signal N as shells and most backends report it.
    pub fn from_code(code: i32) -> Self {
        Self { code, signal: None }
    }
}
