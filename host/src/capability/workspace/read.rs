//! Streaming a file, or a part of it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::fault::{self, Fault};
use super::lines::LineRange;
use super::lookup::{self, Last, Target};
use super::{beneath, blocking, kind, roots};
use crate::error::{Error, Result};
use crate::mounts::{MountTable, VirtualPath};
use crate::values::{Content, FileStat, ReadRange};

/// How much is read at once. Below this, the cost of a system call and of handing a piece on shows; above, only memory
/// grows.
const PIECE: usize = 256 << 10;
/// The smallest buffer, for files that say they are empty but are not, or grow.
const SMALLEST_PIECE: usize = 4 << 10;
/// How many pieces wait for a slow reader: at most 1 MiB a stream.
const DEPTH: usize = 4;
/// How many pieces must have been taken before a thread is used to read on. Fewer would mean one switch of threads for
/// each piece whenever the reader is the slower side.
const REFILL: usize = DEPTH / 2;

/// Opens a file and begins to stream it. No thread waits while the reader does not take what has been read, and when
/// the reader drops the stream, reading ends.
pub(super) async fn read(table: Arc<MountTable>, path: VirtualPath, range: ReadRange) -> Result<Content> {
    if let ReadRange::Lines { start: 0, .. } = range {
        return Err(Error::invalid_argument("line 0 does not exist").hint("count lines from 1"));
    }
    let (sender, data) = mpsc::channel(DEPTH);
    let first = sender.clone();
    let (stat, source) = blocking::run(move |_| {
        let (file, stat) = open(&table, &path)?;
        let mut source = Source::new(file, path, &stat, range);
        // Most files fit into what the stream holds: then no other thread is ever needed.
        let more = source.fill(&first);
        Ok((stat, (more == Filled::Full).then_some(source)))
    })
    .await?;
    if let Some(source) = source {
        tokio::spawn(pump(source, sender));
    }
    Ok(Content { stat, data })
}

/// What is known of a path; a link in the last segment is not followed.
pub(super) fn stat(table: &MountTable, path: &VirtualPath) -> Result<FileStat> {
    lookup::follow(table, path, Last::Keep, |target| {
        let Target::Inside(spot) = target else { return Ok(kind::view_stat()) };
        let root = roots::open(table, spot.mount)?;
        let found = beneath::open(root, &spot.rest, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty())?;
        Ok(kind::file_stat(&rustix::fs::fstat(found)?, spot.read_only))
    })
}

fn open(table: &MountTable, path: &VirtualPath) -> Result<(OwnedFd, FileStat)> {
    lookup::follow(table, path, Last::Follow, |target| {
        let Target::Inside(spot) = target else { return Err(fault::is_a_directory(path).into()) };
        let root = roots::open(table, spot.mount)?;
        let (file, stat) = kind::open_regular(root, &spot.rest, OFlags::RDONLY, path)?;
        Ok((file, kind::file_stat(&stat, spot.read_only)))
    })
}

async fn pump(mut source: Source, sender: mpsc::Sender<Result<Bytes>>) {
    loop {
        match sender.reserve_many(REFILL).await {
            Ok(room) => drop(room),
            Err(_) => return,
        }
        let to = sender.clone();
        let filled = tokio::task::spawn_blocking(move || {
            let filled = source.fill(&to);
            (source, filled)
        });
        match filled.await {
            Ok((back, Filled::Full)) => source = back,
            Ok((_, Filled::Over)) => return,
            Err(_) => {
                // Without this the stream would just end, and a part would pass for the whole.
                let _ = sender.send(Err(Error::internal("reading a file crashed in the gateway"))).await;
                return;
            }
        }
    }
}

/// How an attempt to fill a stream ended.
#[derive(Debug, PartialEq, Eq)]
enum Filled {
    /// The stream holds all it can.
    Full,
    /// All was sent, or nobody wants it.
    Over,
}

/// A file, and which part of it is still to be sent.
#[derive(Debug)]
struct Source {
    file: OwnedFd,
    path: VirtualPath,
    at: u64,
    /// Bytes that may still be sent.
    left: u64,
    /// The size when it was opened, which tells how large a buffer is worth having.
    size: u64,
    lines: Option<LineRange>,
}

impl Source {
    fn new(file: OwnedFd, path: VirtualPath, stat: &FileStat, range: ReadRange) -> Self {
        let (at, left, lines) = match range {
            ReadRange::All => (0, u64::MAX, None),
            ReadRange::Bytes { offset, length } => (offset, length.unwrap_or(u64::MAX), None),
            ReadRange::Lines { start, end } => (0, u64::MAX, Some(LineRange::new(start, end))),
        };
        Self { file, path, at, left, size: stat.size, lines }
    }

    /// Reads and sends until the stream is full or all is done.
    fn fill(&mut self, to: &mpsc::Sender<Result<Bytes>>) -> Filled {
        let mut permit = None;
        loop {
            if self.is_over() {
                return Filled::Over;
            }
            if permit.is_none() {
                permit = match to.try_reserve() {
                    Ok(permit) => Some(permit),
                    Err(TrySendError::Full(())) => return Filled::Full,
                    Err(TrySendError::Closed(())) => return Filled::Over,
                };
            }
            let piece = match self.next() {
                Ok(Some(piece)) => piece,
                Ok(None) => return Filled::Over,
                Err(fault) => {
                    if let Some(permit) = permit {
                        permit.send(Err(fault.about(&self.path)));
                    }
                    return Filled::Over;
                }
            };
            if !piece.is_empty() {
                if let Some(permit) = permit.take() {
                    permit.send(Ok(piece));
                }
            } else if to.is_closed() {
                // Lines may be skipped for long without anything to send.
                return Filled::Over;
            }
        }
    }

    fn is_over(&self) -> bool {
        // No file is larger than the kernel's signed offsets.
        self.left == 0 || i64::try_from(self.at).is_err() || self.lines.as_ref().is_some_and(LineRange::is_over)
    }

    /// The next piece, empty if nothing of it is in the range; none at the end of the file.
    fn next(&mut self) -> Result<Option<Bytes>, Fault> {
        // One more than what is expected: a file that has not grown is then known to be over without another read.
        let expected = self.size.saturating_sub(self.at).saturating_add(1).min(self.left);
        let capacity = usize::try_from(expected).unwrap_or(PIECE).clamp(SMALLEST_PIECE, PIECE);
        let wanted = usize::try_from(self.left).unwrap_or(usize::MAX);
        let mut piece = Vec::with_capacity(capacity);
        let count = loop {
            match rustix::io::pread(&self.file, spare_capacity(&mut piece), self.at) {
                Ok(count) => break count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        };
        if count == 0 {
            return Ok(None);
        }
        self.at += count as u64;
        piece.truncate(wanted);
        self.left -= piece.len() as u64;
        let piece = Bytes::from(piece);
        Ok(Some(match &mut self.lines {
            Some(lines) => lines.cut(&piece),
            None => piece,
        }))
    }
}
