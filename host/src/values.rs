//! The values that operations take and give: the host's own form of `sandgate:capability/types`.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use tokio::sync::mpsc;

use crate::error::{Error, Result};
use crate::mounts::VirtualPath;

/// The largest piece in which bytes travel through the host. A pipe's own buffer is this large, so that one read
/// empties it.
pub const CHUNK_SIZE: usize = 64 << 10;

/// How many pieces a stream holds between a fast writer and a slow reader: with [`CHUNK_SIZE`], at most 512 KiB a stream.
pub const STREAM_DEPTH: usize = 8;

/// What a running command does, in order. The last one is `Exited` or `Failed`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Bytes that it wrote to its standard output.
    Stdout(Bytes),
    /// Bytes that it wrote to its standard error.
    Stderr(Bytes),
    /// So many bytes were left out here, over the output limit.
    Dropped(u64),
    /// It has ended, and all its output has been delivered.
    Exited(ExitStatus),
    /// It was ended by its deadline, or its end was not seen.
    Failed(Error),
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ExitStatus {
    /// The exit code; 128 + N for signal N.
    pub code: i32,
    /// The signal that ended it.
    pub signal: Option<u8>,
}

/// A signal for a command's process group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Signal {
    Hangup,
    Interrupt,
    Quit,
    Kill,
    Terminate,
    Usr1,
    Usr2,
}

/// A bounded stream of what a command does.
pub type EventStream = mpsc::Receiver<Event>;
/// A bounded stream of bytes; an error ends it and means that it is not whole.
pub type ByteStream = mpsc::Receiver<Result<Bytes>>;
/// A bounded stream of signals.
pub type SignalStream = mpsc::Receiver<Signal>;

/// A byte stream of what is in memory already.
pub fn byte_stream(bytes: impl Into<Bytes>) -> ByteStream {
    let mut bytes = bytes.into();
    let (sender, receiver) = mpsc::channel(bytes.len().div_ceil(CHUNK_SIZE).max(1));
    while !bytes.is_empty() {
        let piece = bytes.split_to(bytes.len().min(CHUNK_SIZE));
        // The channel was made large enough for all of it.
        let _ = sender.try_send(Ok(piece));
    }
    receiver
}

/// What to run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecRequest {
    /// Text for the sandbox's shell.
    pub command: String,
    /// Variables for this command only.
    pub env: BTreeMap<String, String>,
    /// Where; none: the workspace.
    pub cwd: Option<VirtualPath>,
    /// None: the provider's default; zero: no limit.
    pub timeout: Option<Duration>,
    /// Keep so many bytes of output, head and tail.
    pub output_limit: Option<u64>,
}

/// What a path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum FileKind {
    File,
    Directory,
    Symlink,
    /// A socket, pipe or device.
    Other,
}

/// What is known of a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileStat {
    /// What it is.
    pub kind: FileKind,
    /// In bytes.
    pub size: u64,
    /// Milliseconds since 1970.
    pub modified_ms: Option<u64>,
    /// Permission bits.
    pub mode: u32,
    /// Its mount can't be written.
    pub read_only: bool,
}

/// Which part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReadRange {
    /// All of it.
    #[default]
    All,
    /// From a byte offset.
    Bytes {
        /// From 0.
        offset: u64,
        /// At most so many; none: to the end.
        length: Option<u64>,
    },
    /// Whole lines, both included.
    Lines {
        /// From 1.
        start: u64,
        /// None: to the end.
        end: Option<u64>,
    },
}

/// A file that is being read.
#[derive(Debug)]
pub struct Content {
    /// What it was when it was opened.
    pub stat: FileStat,
    /// Its bytes.
    pub data: ByteStream,
}

/// How to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WriteMode {
    /// Replace atomically, or make it.
    #[default]
    Replace,
    /// Add to the end, or make it.
    Append,
    /// Make it; an error if it is there.
    CreateNew,
}

/// How to write, and what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteOptions {
    /// How.
    pub mode: WriteMode,
    /// Text that an agent wrote: virtual paths in it may be translated where commands see host paths.
    pub text: bool,
}

/// The most entries, paths or matches that one call returns.
pub const MAX_RESULTS: u32 = 100_000;
/// The deepest `list_dir`.
pub const MAX_DEPTH: u32 = 64;

/// What to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListOptions {
    /// 1 to [`MAX_DEPTH`].
    pub max_depth: u32,
    /// 1 to [`MAX_RESULTS`].
    pub limit: u32,
    /// Leave out what the ignore list names.
    pub skip_ignored: bool,
}

impl Default for ListOptions {
    fn default() -> Self {
        Self { max_depth: 1, limit: 10_000, skip_ignored: false }
    }
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DirEntry {
    /// The absolute virtual path.
    pub path: String,
    /// What it is.
    pub kind: FileKind,
    /// In bytes.
    pub size: u64,
}

/// A directory's entries, sorted by path.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Listing {
    /// What was found.
    pub entries: Vec<DirEntry>,
    /// There was more.
    pub truncated: bool,
    /// Entries that could not be read or named.
    pub skipped: u32,
}

/// What to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GlobOptions {
    /// Directories too.
    pub include_dirs: bool,
    /// 1 to [`MAX_RESULTS`].
    pub max_results: u32,
    /// Leave out what the ignore list names.
    pub skip_ignored: bool,
}

impl Default for GlobOptions {
    fn default() -> Self {
        Self { include_dirs: false, max_results: 200, skip_ignored: true }
    }
}

/// Paths that matched, sorted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct GlobResult {
    /// Absolute virtual paths.
    pub paths: Vec<String>,
    /// There was more.
    pub truncated: bool,
    /// Entries that could not be read or named.
    pub skipped: u32,
}

/// What to search for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrepOptions {
    /// Only in files that match.
    pub glob: Option<String>,
    /// The pattern is plain text.
    pub literal: bool,
    /// Upper and lower case differ.
    pub case_sensitive: bool,
    /// 1 to [`MAX_RESULTS`].
    pub max_results: u32,
    /// Leave out what the ignore list names.
    pub skip_ignored: bool,
}

impl Default for GrepOptions {
    fn default() -> Self {
        Self { glob: None, literal: false, case_sensitive: false, max_results: 100, skip_ignored: true }
    }
}

/// One matching line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct GrepMatch {
    /// The absolute virtual path.
    pub path: String,
    /// From 1.
    pub line_number: u64,
    /// At most 200 characters.
    pub line: String,
}

/// Lines that matched, sorted by path and number.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct GrepResult {
    /// What was found.
    pub matches: Vec<GrepMatch>,
    /// There was more.
    pub truncated: bool,
    /// Files that could not be read or named.
    pub skipped: u32,
}
