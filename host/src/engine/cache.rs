//! Compiled components, kept from one start to the next.
//!
//! What lies in the folder is run as native code. Two things guard it: the folder belongs to us and nobody else can enter
//! it, or it is not used; and every entry begins with the sha256 of the rest, so that a damaged one is compiled again and
//! never run. A key would not add to that: whoever can write here as us could read the key, too.

use std::hash::Hasher;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sha2::{Digest, Sha256};
use wasmtime::Engine;
use wasmtime::component::Component;

/// The most entries: those used last stay. More than any gateway's providers, with a few versions of each.
const MAX_ENTRIES: usize = 64;
/// The largest entry that is read, in bytes; a component file of the largest size compiles to less.
const MAX_ENTRY: u64 = 1 << 30;
const DIGEST: usize = 32;
const EXTENSION: &str = "compiled";

/// A folder of compiled components.
#[derive(Debug)]
pub(super) struct CompileCache {
    folder: PathBuf,
}

/// The engine's settings and version as a digest; the standard hashers promise nothing from one release to the next.
struct Sha(Sha256);

impl Hasher for Sha {
    fn finish(&self) -> u64 {
        // Nobody asks for it: the digest is taken whole.
        0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
}

impl CompileCache {
    /// Opens it, if its folder is ours alone.
    pub(super) fn open(folder: &Path) -> Option<Self> {
        match private_folder(folder) {
            Ok(()) => Some(Self { folder: folder.to_owned() }),
            Err(reason) => {
                tracing::warn!(folder = %folder.display(), reason, "no compile cache: components are compiled at every start");
                None
            }
        }
    }

    /// The name says all that the compiled code depends on.
    fn file(&self, engine: &Engine, bytes: &[u8]) -> PathBuf {
        let mut key = Sha(Sha256::new_with_prefix(Sha256::digest(bytes)));
        std::hash::Hash::hash(&engine.precompile_compatibility_hash(), &mut key);
        let name: String = key.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        self.folder.join(name).with_extension(EXTENSION)
    }

    /// What was compiled from these bytes by an engine like this one.
    pub(super) fn get(&self, engine: &Engine, bytes: &[u8]) -> Option<Component> {
        let file = self.file(engine, bytes);
        if std::fs::metadata(&file).ok()?.len() > MAX_ENTRY {
            return None;
        }
        let entry = std::fs::read(&file).ok()?;
        let (digest, code) = entry.split_at_checked(DIGEST)?;
        if Sha256::digest(code)[..] != *digest {
            tracing::warn!(file = %file.display(), "a damaged entry of the compile cache is not used");
            return None;
        }
        match load(engine, code) {
            Ok(component) => {
                // Its time says when it was used last; without it, it is only thrown away sooner.
                let _ = std::fs::File::open(&file).and_then(|file| file.set_modified(SystemTime::now()));
                Some(component)
            }
            Err(error) => {
                tracing::warn!(file = %file.display(), %error, "an entry of the compile cache does not fit this engine");
                None
            }
        }
    }

    /// Keeps a component for the next start.
    pub(super) fn put(&self, engine: &Engine, bytes: &[u8], component: &Component) {
        let file = self.file(engine, bytes);
        let written = component.serialize().map_err(std::io::Error::other).and_then(|code| {
            // Renamed when it is whole, so that another gateway never reads a half of it.
            let mut new = tempfile::NamedTempFile::new_in(&self.folder)?;
            new.write_all(&Sha256::digest(&code))?;
            new.write_all(&code)?;
            new.persist(&file)?;
            Ok(())
        });
        if let Err(error) = written {
            tracing::warn!(folder = %self.folder.display(), %error, "a compiled component could not be kept");
        }
        self.tidy();
    }

    /// Removes the entries that were not used for longest, where there are too many.
    fn tidy(&self) {
        let Ok(files) = std::fs::read_dir(&self.folder) else { return };
        let mut entries: Vec<(SystemTime, PathBuf)> = files
            .flatten()
            .filter(|entry| entry.path().extension().is_some_and(|extension| extension == EXTENSION))
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .collect();
        entries.sort();
        for (_, file) in entries.iter().rev().skip(MAX_ENTRIES) {
            // Another gateway may have removed it.
            let _ = std::fs::remove_file(file);
        }
    }
}

#[expect(unsafe_code, reason = "compiled code can't be loaded in another way")]
fn load(engine: &Engine, code: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: `deserialize` asks for bytes that `serialize` made. These are: only our own user can write the folder, only
    // `put` writes entries, and the digest shows that they have not changed since. Version and settings of the engine,
    // wasmtime checks itself.
    unsafe { Component::deserialize(engine, code) }
}

/// Makes a folder that only we can write, or says why it is none.
fn private_folder(folder: &Path) -> Result<(), String> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| format!("it can't be made: {error}"))?;
    let found = std::fs::symlink_metadata(folder).map_err(|error| error.to_string())?;
    if !found.is_dir() {
        return Err("it is not a folder".into());
    }
    let us = rustix::process::geteuid().as_raw();
    if found.uid() != us {
        return Err(format!("it belongs to user {}, not to us ({us})", found.uid()));
    }
    if found.mode() & 0o077 != 0 {
        return Err(format!("others can enter it (mode {:o}); chmod 700 it", found.mode() & 0o777));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_folder_that_others_can_enter_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path().join("cache");
        assert!(CompileCache::open(&cache).is_some());
        std::fs::set_permissions(&cache, std::fs::Permissions::from_mode(0o770)).unwrap();
        assert!(private_folder(&cache).unwrap_err().contains("chmod 700"));
        assert!(CompileCache::open(&cache).is_none());
    }

    #[test]
    fn a_link_to_a_folder_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        assert!(CompileCache::open(&real).is_some());
        std::os::unix::fs::symlink(&real, &link).unwrap();
        assert!(CompileCache::open(&link).is_none());
    }

    #[test]
    fn the_entries_used_last_stay() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CompileCache::open(&folder.path().join("cache")).unwrap();
        for number in 0..MAX_ENTRIES + 5 {
            let file = std::fs::File::create(cache.folder.join(format!("{number}.{EXTENSION}"))).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(number as u64)).unwrap();
        }
        cache.tidy();
        assert!(!cache.folder.join(format!("4.{EXTENSION}")).exists());
        assert!(cache.folder.join(format!("5.{EXTENSION}")).exists());
        assert_eq!(std::fs::read_dir(&cache.folder).unwrap().count(), MAX_ENTRIES);
    }
}
