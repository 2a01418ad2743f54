//! What one can do in a sandbox.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::backend::Entry;
use super::running::Running;
use crate::engine::Target;
use crate::env_policy;
use crate::error::{Code, Error, Result};
use crate::ids::{SandboxId, Scope};
use crate::instance::InstanceRecord;
use crate::lifecycle::{Hold, Pin};
use crate::mounts::{Mount, VirtualPath};
use crate::rewrite::Redactor;
use crate::values::*;

/// A sandbox that is lent out. Cheap to clone; as long as one is held, the sandbox is in use and stays.
#[derive(Debug, Clone)]
pub struct Sandbox {
    entry: Arc<Entry>,
    keep: Keep,
}

/// What keeps a sandbox in use.
#[derive(Debug, Clone)]
enum Keep {
    Hold(Hold),
    Pin(Pin),
}

impl Keep {
    /// An operation, which may outlive the sandbox's handle.
    fn pin(&self) -> Pin {
        match self {
            Self::Hold(hold) => hold.pin(),
            Self::Pin(pin) => pin.clone(),
        }
    }
}

/// A file that is being read. While it lives, its sandbox is in use.
#[derive(Debug)]
pub struct Reading {
    /// What the file is.
    pub stat: FileStat,
    /// Its content, or the part that was asked for, in order; an error ends it.
    pub data: ByteStream,
    _pin: Pin,
}

/// What a running command is given.
#[derive(Debug, Default)]
pub struct ExecInput {
    /// Its standard input; none: end of file at once.
    pub stdin: Option<ByteStream>,
    /// Signals to pass on.
    pub signals: Option<SignalStream>,
}

impl Sandbox {
    /// One that is lent.
    pub(super) fn lent(hold: Hold) -> Result<Self> {
        let entry = hold.instance().attachment.get();
        let entry = entry.ok_or_else(|| Error::internal(format!("sandbox {} came without its mounts", hold.id())))?;
        Ok(Self { entry, keep: Keep::Hold(hold) })
    }

    /// One that somebody else has been lent.
    pub(super) fn used(pin: Pin) -> Option<Self> {
        Some(Self { entry: pin.instance().attachment.get()?, keep: Keep::Pin(pin) })
    }

    pub(super) async fn refresh(&self) {
        self.entry.refresh().await;
    }

    /// Gives this handle back, and waits until the sandbox is parked if it was the last.
    pub(super) async fn give_back(self) {
        if let Keep::Hold(hold) = self.keep {
            hold.release().await;
        }
    }

    /// Its name.
    pub fn id(&self) -> &SandboxId {
        &self.entry.target.sandbox
    }

    /// Whose it is.
    pub fn scope(&self) -> &Scope {
        &self.entry.scope
    }

    /// What it sees of the host's files.
    pub fn mounts(&self) -> &[Mount] {
        self.entry.target.mounts.mounts()
    }

    /// A path in it; a relative one begins at the workspace.
    pub fn path(&self, text: &str) -> Result<VirtualPath> {
        VirtualPath::parse_in(&self.entry.target.mounts.workspace(), text)
    }

    fn instance(&self) -> &InstanceRecord {
        match &self.keep {
            Keep::Hold(hold) => &hold.instance().record,
            Keep::Pin(pin) => &pin.instance().record,
        }
    }

    fn target(&self) -> &Target {
        &self.entry.target
    }

    /// Starts a command. In its output and in errors, values of `request.env` that are 8 bytes or longer come out as `[redacted]`.
    pub async fn exec(&self, request: ExecRequest) -> Result<Running> {
        self.exec_with(request, ExecInput::default()).await
    }

    /// Starts a command that is given input or signals.
    pub async fn exec_with(&self, request: ExecRequest, input: ExecInput) -> Result<Running> {
        env_policy::check_injected(&request.env)?;
        if request.command.contains('\0') {
            return Err(Error::invalid_argument("the command holds a NUL character"));
        }
        let redactor = Redactor::new(request.env.values().map(String::as_str));
        let ExecInput { stdin, signals } = input;
        let entry = &self.entry;
        let pin = self.keep.pin();
        let events = entry.provider.exec(self.target(), self.instance(), &request, stdin, signals).await;
        // What a provider says of a failure may repeat what it was given.
        let events = events.map_err(|error| error.map_text(|text| redactor.redact(text)))?;
        Ok(Running::new(events, redactor, pin))
    }

    /// Opens a file, or a part of it, as a stream. A range of bytes is one of the file as it lies on the disk; whole files and
    /// lines that an agent wrote as text where paths are translated (isolation `none`) come back as it wrote them.
    pub async fn read_file(&self, path: &VirtualPath, range: ReadRange) -> Result<Reading> {
        if let ReadRange::Lines { start: 0, .. } | ReadRange::Lines { end: Some(0), .. } = range {
            return Err(Error::invalid_argument("lines are counted from 1"));
        }
        let pin = self.keep.pin();
        let mut content = self.entry.provider.read_file(self.target(), self.instance(), path, range).await?;
        if let (Some(written), false) = (&self.entry.written, matches!(range, ReadRange::Bytes { .. })) {
            content.data = written.translate_back(&self.target().mounts, path, content.data);
        }
        Ok(Reading { stat: content.stat, data: content.data, _pin: pin })
    }

    /// Reads a file, or a part of it, of at most `limit` bytes.
    pub async fn read(&self, path: &VirtualPath, range: ReadRange, limit: u64) -> Result<Bytes> {
        let mut content = self.read_file(path, range).await?;
        let too_large = |size| {
            Error::new(
                Code::TooLarge,
                format!("{path} has {size} bytes or more, and at most {limit} may be read at once"),
            )
            .sizes(size, limit)
            .hint("read a range of it")
        };
        if range == ReadRange::All && content.stat.size > limit {
            return Err(too_large(content.stat.size));
        }
        let mut bytes = BytesMut::new();
        while let Some(piece) = content.data.recv().await {
            let piece = piece?;
            let size = bytes.len() as u64 + piece.len() as u64;
            if size > limit {
                return Err(too_large(size));
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes.freeze())
    }

    /// Writes a stream into a file, making its parents; returns the number of bytes that the file took (of text that was
    /// translated, that is not the number given). If the stream breaks off,
    /// [`WriteMode::Replace`] and [`WriteMode::CreateNew`] leave things as they were.
    pub async fn write_file(&self, path: &VirtualPath, data: ByteStream, options: WriteOptions) -> Result<u64> {
        let _pin = self.keep.pin();
        let entry = &self.entry;
        let data = match &entry.written {
            Some(written) if options.text => written.translate(&self.target().mounts, data),
            _ => data,
        };
        let count = entry.provider.write_file(self.target(), self.instance(), path, data, options).await?;
        match &entry.written {
            Some(written) if options.text => written.remember(path),
            Some(written) if options.mode != WriteMode::Append => written.forget(path),
            _ => {}
        }
        Ok(count)
    }

    /// Writes bytes into a file; see [`write_file`](Self::write_file).
    pub async fn write(&self, path: &VirtualPath, bytes: impl Into<Bytes>, options: WriteOptions) -> Result<u64> {
        self.write_file(path, byte_stream(bytes), options).await
    }

    /// What a path is; a link in the last segment is not followed.
    pub async fn stat(&self, path: &VirtualPath) -> Result<FileStat> {
        let _pin = self.keep.pin();
        self.entry.provider.stat(self.target(), self.instance(), path).await
    }

    /// A directory's entries, sorted.
    pub async fn list_dir(&self, path: &VirtualPath, options: ListOptions) -> Result<Listing> {
        let _pin = self.keep.pin();
        check_range("max_depth", options.max_depth, MAX_DEPTH)?;
        check_range("limit", options.limit, MAX_RESULTS)?;
        let mut found = self.entry.provider.list_dir(self.target(), self.instance(), path, options).await?;
        found.truncated |= cut(&mut found.entries, options.limit);
        Ok(found)
    }

    /// Paths below `path` that match a pattern.
    pub async fn glob(&self, path: &VirtualPath, pattern: &str, options: GlobOptions) -> Result<GlobResult> {
        let _pin = self.keep.pin();
        check_range("max_results", options.max_results, MAX_RESULTS)?;
        let mut found = self.entry.provider.glob(self.target(), self.instance(), path, pattern, options).await?;
        found.truncated |= cut(&mut found.paths, options.max_results);
        Ok(found)
    }

    /// Lines in the files below `path`, or in that file, that match a pattern.
    pub async fn grep(&self, path: &VirtualPath, pattern: &str, options: GrepOptions) -> Result<GrepResult> {
        let _pin = self.keep.pin();
        check_range("max_results", options.max_results, MAX_RESULTS)?;
        let most = options.max_results;
        let mut found = self.entry.provider.grep(self.target(), self.instance(), path, pattern, options).await?;
        found.truncated |= cut(&mut found.matches, most);
        if let Some(written) = &self.entry.written {
            written.lines_back(self.target(), &mut found.matches);
        }
        Ok(found)
    }

    /// Removes a file, a link or an empty directory; with `recursive` a whole one.
    pub async fn remove(&self, path: &VirtualPath, recursive: bool) -> Result<()> {
        let _pin = self.keep.pin();
        self.entry.provider.remove(self.target(), self.instance(), path, recursive).await?;
        if let Some(written) = &self.entry.written {
            written.forget(path);
        }
        Ok(())
    }

    /// Makes a directory and its parents.
    pub async fn make_dir(&self, path: &VirtualPath) -> Result<()> {
        let _pin = self.keep.pin();
        self.entry.provider.make_dir(self.target(), self.instance(), path).await
    }
}

/// A provider that gives more than it was asked for gives as much as it was asked for.
fn cut<T>(found: &mut Vec<T>, most: u32) -> bool {
    let more = found.len() > most as usize;
    found.truncate(most as usize);
    more
}

fn check_range(what: &str, value: u32, most: u32) -> Result<()> {
    if (1..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::invalid_argument(format!("{what} {value} is out of range")).hint(format!("use 1 to {most}")))
}
