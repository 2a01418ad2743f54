//! Lists what is below a directory, for signatures.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// The most files and directories of one view. Skills are instructions with a few scripts; a whole data set in a skill
/// would make every acquire slow.
pub(super) const MAX_ENTRIES: usize = 20_000;

/// The most bytes of one view: they exist once per user.
pub(super) const MAX_BYTES: u64 = 512 << 20;

/// The deepest directory. Deeper ones are a mistake (or a loop of mounts).
const MAX_DEPTH: usize = 64;

/// One file, directory or link.
#[derive(Debug)]
pub(super) struct Entry {
    /// Relative to where the walk began.
    pub(super) path: PathBuf,
    /// When it changed last, in nanoseconds since 1970.
    pub(super) changed: i128,
    /// All that shows a change.
    line: Vec<u8>,
}

impl Entry {
    /// The same entry, seen from one directory further up.
    pub(super) fn under(self, directory: &str) -> Self {
        let line = [directory.as_bytes(), b"/", &self.line].concat();
        Self { path: Path::new(directory).join(self.path), line, ..self }
    }
}

/// How much may still be listed.
#[derive(Debug)]
pub(super) struct Budget {
    entries: usize,
    bytes: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { entries: MAX_ENTRIES, bytes: MAX_BYTES }
    }
}

impl Budget {
    fn spend(&mut self, bytes: u64) -> io::Result<()> {
        let over = |what: String| io::Error::new(io::ErrorKind::FileTooLarge, what);
        self.entries = self.entries.checked_sub(1).ok_or_else(|| over(format!("more than {MAX_ENTRIES} files")))?;
        self.bytes = self.bytes.checked_sub(bytes).ok_or_else(|| over(format!("more than {} MiB", MAX_BYTES >> 20)))?;
        Ok(())
    }
}

/// Everything below a directory, links not followed, in a fixed order.
pub(super) fn walk(root: &Path, budget: &mut Budget) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    below(root, Path::new(""), 0, budget, &mut entries)?;
    Ok(entries)
}

fn below(root: &Path, path: &Path, depth: usize, budget: &mut Budget, entries: &mut Vec<Entry>) -> io::Result<()> {
    if depth > MAX_DEPTH {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("more than {MAX_DEPTH} directories deep")));
    }
    let mut names: Vec<OsString> =
        fs::read_dir(root.join(path))?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<_>>()?;
    names.sort_unstable();
    for name in names {
        let inner = path.join(&name);
        let found = fs::symlink_metadata(root.join(&inner))?;
        let kind = found.file_type();
        budget.spend(if kind.is_file() { found.size() } else { 0 })?;
        // A directory's size and times change with its entries, which are listed themselves.
        let state = if kind.is_dir() {
            format!("\0{}:{:o}\n", found.ino(), found.mode())
        } else {
            format!(
                "\0{}:{:o}:{}:{}.{}:{}.{}\n",
                found.ino(),
                found.mode(),
                found.size(),
                found.mtime(),
                found.mtime_nsec(),
                found.ctime(),
                found.ctime_nsec()
            )
        };
        let line = [inner.as_os_str().as_bytes(), state.as_bytes()].concat();
        let changed = i128::from(found.ctime()) * 1_000_000_000 + i128::from(found.ctime_nsec());
        entries.push(Entry { path: inner.clone(), changed, line });
        if kind.is_dir() {
            below(root, &inner, depth + 1, budget, entries)?;
        }
    }
    Ok(())
}

/// A short text that differs when anything in the list does.
pub(super) fn signature<'a>(entries: impl Iterator<Item = &'a Entry>) -> String {
    let mut hasher = Sha256::new();
    for entry in entries {
        hasher.update(&entry.line);
    }
    hasher.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}
