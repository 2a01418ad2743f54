//! Tests of the capability as its callers use it, on real directories.

mod change;
mod containment;
mod killed;
mod list;
mod mounts;
mod race;
mod read;
mod search;
mod write;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

use super::{Limits, Workspace};
use crate::error::{Code, Result};
use crate::mounts::{Access, Mount, MountTable, VirtualPath};
use crate::values::{ReadRange, WriteMode, WriteOptions, byte_stream};

/// A sandbox's files on the host: a writable workspace and outputs, read-only skills, and a directory that no mount
/// covers.
struct Home {
    dir: TempDir,
    files: Workspace,
}

fn path(text: &str) -> VirtualPath {
    VirtualPath::new(text).unwrap()
}

impl Home {
    fn new() -> Self {
        Self::with(&[
            ("/mnt/user-data/workspace", "workspace", Access::ReadWrite),
            ("/mnt/user-data/outputs", "outputs", Access::ReadWrite),
            ("/mnt/skills/public", "skills", Access::ReadOnly),
        ])
    }

    /// Mounts as virtual path, directory of the host (made here) and access.
    fn with(mounts: &[(&str, &str, Access)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("outside")).unwrap();
        let mounts = mounts
            .iter()
            .map(|(at, host, access)| {
                let host = dir.path().join(host);
                std::fs::create_dir_all(&host).unwrap();
                Mount { at: path(at), host, access: *access }
            })
            .collect();
        let table = MountTable::new(mounts, path("/mnt/user-data/workspace")).unwrap();
        Self { files: Workspace::new(Arc::new(table), Limits::default()), dir }
    }

    fn host(&self, relative: &str) -> PathBuf {
        self.dir.path().join(relative)
    }

    /// A host file, with its parents.
    fn put(&self, relative: &str, content: impl AsRef<[u8]>) {
        let file = self.host(relative);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, content).unwrap();
    }

    fn link(&self, target: impl AsRef<Path>, relative: &str) {
        std::os::unix::fs::symlink(target, self.host(relative)).unwrap();
    }

    async fn read(&self, at: &str) -> Result<Vec<u8>> {
        self.read_range(at, ReadRange::All).await
    }

    async fn read_range(&self, at: &str, range: ReadRange) -> Result<Vec<u8>> {
        let mut content = self.files.read(&path(at), range).await?;
        let mut all = Vec::new();
        while let Some(piece) = content.data.recv().await {
            all.extend_from_slice(&piece?);
        }
        Ok(all)
    }

    async fn write(&self, at: &str, content: &[u8]) -> Result<u64> {
        self.write_as(at, content, WriteMode::Replace).await
    }

    async fn write_as(&self, at: &str, content: &[u8], mode: WriteMode) -> Result<u64> {
        let options = WriteOptions { mode, text: false };
        self.files.write(&path(at), byte_stream(content.to_vec()), options).await
    }

    /// The error has this code, names the virtual path, and no directory of the host.
    fn check<T: std::fmt::Debug>(&self, result: Result<T>, code: Code, at: &str) {
        let error = result.unwrap_err();
        let text = error.to_string();
        assert_eq!(error.code(), code, "{text}");
        assert!(text.contains(at), "{text:?} does not name {at:?}");
        assert!(!text.contains(self.dir.path().to_str().unwrap()), "{text:?} names the host's directory");
    }
}

/// All names below a host directory, sorted.
fn names(dir: impl AsRef<Path>) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        names.push(entry.unwrap().file_name().to_string_lossy().into_owned());
    }
    names.sort();
    names
}
