//! Writing a file: nothing changes until all of the content is there.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::{AtFlags, OFlags, Stat};
use rustix::io::Errno;

use super::fault::{self, Fault};
use super::lookup::{self, Last, Spot, Target};
use super::staging::Staged;
use super::{beneath, blocking, change, kind};
use crate::error::{Code, Error, Result};
use crate::mounts::{MountTable, VirtualPath};
use crate::values::{ByteStream, FileKind, WriteMode};

/// How many pieces of the content are written at once, so that a fast stream costs few switches of threads.
const BATCH: usize = 16;
/// An append of up to so many bytes is one system call: it lands in one piece, whoever else appends. A larger one is in
/// order, but others' bytes may come between its parts. It is also what an append keeps in memory.
const APPEND_PIECE: usize = 1 << 20;

/// Writes all of `data`. If the stream ends with an error, is over the limit, or the caller gives up, nothing has
/// changed: not the file, nor any directory.
///
/// There is no fsync: a sandbox's files live as long as the sandbox, and an agent that loses power with its host loses
/// the running commands as well. Readers see the old content or the new one because of the rename alone.
pub(super) async fn write(
    table: Arc<MountTable>,
    path: VirtualPath,
    mut data: ByteStream,
    mode: WriteMode,
    limit: Option<u64>,
) -> Result<u64> {
    let mut total = 0_u64;
    let to = path.clone();
    let mut writer = blocking::run(move |_| Writer::begin(&table, to, mode)).await?;
    loop {
        let mut batch = Vec::with_capacity(BATCH);
        if data.recv_many(&mut batch, BATCH).await == 0 {
            break;
        }
        let batch = batch.into_iter().collect::<Result<Vec<Bytes>>>()?;
        total = batch.iter().fold(total, |total, piece| total.saturating_add(piece.len() as u64));
        if let Some(limit) = limit.filter(|limit| total > *limit) {
            let text = format!("the content for {path} is over the limit of {limit} bytes; nothing was written");
            return Err(Error::new(Code::TooLarge, text).hint("write less, or in several files").sizes(total, limit));
        }
        writer = blocking::run(move |_| {
            writer.take(&batch)?;
            Ok(writer)
        })
        .await?;
    }
    blocking::run(move |_| writer.finish()).await?;
    Ok(total)
}

/// Content that is being collected for a file.
#[derive(Debug)]
struct Writer {
    path: VirtualPath,
    mode: WriteMode,
    /// The first bytes of an append; they are moved to the staged file when there are too many of them.
    head: Vec<u8>,
    // Before the directory, so that it is gone when directories that were made for it are removed again.
    staged: Option<Staged>,
    entered: change::Entered,
    name: String,
}

impl Writer {
    /// Finds the place, makes its parents and refuses what can't be written.
    fn begin(table: &MountTable, path: VirtualPath, mode: WriteMode) -> Result<Self> {
        // A final link is followed like any other, except by what must make a new file: the link is there already.
        let last = if mode == WriteMode::CreateNew { Last::Keep } else { Last::Follow };
        let (entered, name) = lookup::follow(table, &path, last, |target| {
            let Target::Inside(spot) = target else { return Err(fault::is_a_directory(&path).into()) };
            enter(table, spot, &path, mode)
        })?;
        let staged = if mode == WriteMode::Append {
            None
        } else {
            Some(Staged::new(&entered.dir).map_err(|errno| fault::error(errno, &path))?)
        };
        Ok(Self { path, mode, head: Vec::new(), staged, entered, name })
    }

    fn take(&mut self, pieces: &[Bytes]) -> Result<()> {
        self.collect(pieces).map_err(|fault| fault.about(&self.path))
    }

    fn collect(&mut self, pieces: &[Bytes]) -> Result<(), Fault> {
        for piece in pieces {
            let staged = match &self.staged {
                Some(staged) => staged,
                None if self.head.len() + piece.len() <= APPEND_PIECE => {
                    self.head.extend_from_slice(piece);
                    continue;
                }
                None => {
                    let staged = Staged::new(&self.entered.dir)?;
                    write_all(staged.file(), &std::mem::take(&mut self.head)).map_err(|(_, errno)| errno)?;
                    self.staged.insert(staged)
                }
            };
            write_all(staged.file(), piece).map_err(|(_, errno)| errno)?;
        }
        Ok(())
    }

    /// Puts the content in its place.
    fn finish(mut self) -> Result<()> {
        let done = match self.mode {
            WriteMode::Append => self.append(),
            WriteMode::CreateNew => self.place(false),
            WriteMode::Replace => self.place(true),
        };
        done.map_err(|fault| fault.about(&self.path))?;
        self.entered.keep();
        Ok(())
    }

    fn place(&mut self, replace: bool) -> Result<(), Fault> {
        let Some(staged) = &mut self.staged else {
            return Err(Error::internal("a file was to be placed before it was begun").into());
        };
        let dir = &self.entered.dir;
        match staged.place_new(dir, &self.name) {
            Err(Errno::EXIST) if replace => {}
            other => return Ok(other?),
        }
        let old = rustix::fs::statat(dir, &self.name, AtFlags::SYMLINK_NOFOLLOW)?;
        match kind::kind_of(&old) {
            FileKind::Directory => Err(fault::is_a_directory(&self.path).into()),
            FileKind::Other => Err(fault::special_file(&self.path).into()),
            // A link that was put there since the beginning is replaced itself; its target is not touched.
            FileKind::File | FileKind::Symlink => Ok(staged.place_over(dir, &self.name, &old)?),
        }
    }

    fn append(&mut self) -> Result<(), Fault> {
        let file = open_for_append(&self.entered.dir, &self.name, &self.path)?;
        let mut done = 0;
        let mut put = |bytes: &[u8]| match write_all(&file, bytes) {
            Ok(()) => {
                done += bytes.len();
                Ok(())
            }
            Err((0, errno)) if done == 0 => Err(Fault::Os(errno)),
            // Others may have appended since: what landed can't be taken back without taking theirs too.
            Err((part, errno)) => {
                let landed = done + part;
                Err(fault::error(errno, &self.path)
                    .context(format!("only the first {landed} bytes were appended to {}", self.path))
                    .into())
            }
        };
        let Some(staged) = &self.staged else { return put(&self.head) };
        let mut buffer = vec![0; APPEND_PIECE];
        let mut at = 0;
        loop {
            match rustix::io::pread(staged.file(), &mut buffer[..], at) {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    put(buffer.get(..count).unwrap_or_default())?;
                    at += count as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// Enters the directory of the file, and refuses at once what can't be written, before any content is taken.
fn enter(
    table: &MountTable,
    spot: &Spot<'_>,
    path: &VirtualPath,
    mode: WriteMode,
) -> Result<(change::Entered, String), Fault> {
    if spot.read_only {
        return Err(fault::read_only(path).into());
    }
    let Some((parent, name)) = spot.parent_and_name() else { return Err(fault::is_a_directory(path).into()) };
    if lookup::has_mounts_below(table, &spot.path) {
        return Err(fault::is_a_directory(path).into());
    }
    let entered = change::enter(table, spot, parent, true, path)?;
    let old: Option<Stat> = match rustix::fs::statat(&entered.dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Some(stat),
        Err(Errno::NOENT) => None,
        Err(errno) => return Err(errno.into()),
    };
    match old.as_ref().map(kind::kind_of) {
        Some(FileKind::Directory) => Err(fault::is_a_directory(path).into()),
        Some(_) if mode == WriteMode::CreateNew => Err(Errno::EXIST.into()),
        Some(FileKind::Symlink) => Err(Errno::LOOP.into()),
        Some(FileKind::Other) => Err(fault::special_file(path).into()),
        Some(FileKind::File) | None => Ok((entered, name.to_owned())),
    }
}

fn open_for_append(dir: &OwnedFd, name: &str, path: &VirtualPath) -> Result<OwnedFd, Fault> {
    let flags = OFlags::WRONLY | OFlags::APPEND;
    match kind::open_regular(dir, name, flags, path) {
        Err(Fault::Os(Errno::NOENT)) => {}
        other => return Ok(other?.0),
    }
    match beneath::open(dir, name, flags | OFlags::CREATE | OFlags::EXCL, change::FILE_MODE) {
        // Somebody else made it just now.
        Err(Fault::Os(Errno::EXIST)) => Ok(kind::open_regular(dir, name, flags, path)?.0),
        other => other,
    }
}

/// Writes all bytes, or says how many were written before which error.
fn write_all(file: impl AsFd, bytes: &[u8]) -> Result<(), (usize, Errno)> {
    let mut done = 0;
    while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
        match rustix::io::write(&file, rest) {
            Ok(0) => return Err((done, Errno::IO)),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err((done, errno)),
        }
    }
    Ok(())
}
