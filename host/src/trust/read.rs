//! Reads a component's bytes once: what is hashed is what is compiled.

use std::fmt;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::{Sha256Pin, sha256_of};
use crate::error::{Code, Error, Result};

/// The largest component file, in bytes. One that brings a Python interpreter has some 40 MiB; the file is held in
/// memory while it is hashed and compiled.
pub const MAX_COMPONENT: u64 = 64 << 20;

/// A component's bytes and their digest.
#[derive(Clone)]
pub struct ComponentBytes {
    /// The whole file.
    pub bytes: Vec<u8>,
    /// The sha256 of [`bytes`](Self::bytes).
    pub digest: Sha256Pin,
    /// Where they were read from, as the operator named it.
    pub path: PathBuf,
}

impl fmt::Debug for ComponentBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ComponentBytes({}, {} bytes, sha256 {})", self.path.display(), self.bytes.len(), self.digest)
    }
}

/// Reads a component file and compares it with its pin.
///
/// The file is opened and read once, so a swap of the file can't get other bytes past the pin. Links are followed:
/// package managers and container platforms put files in place by links, and what counts are the bytes. Only a regular
/// file of at most [`MAX_COMPONENT`] bytes is read; a pipe or device is refused without waiting for it.
///
/// Errors: [`Code::ComponentUnreadable`], [`Code::ComponentTooLarge`], [`Code::DigestMismatch`].
pub fn read_component(path: &Path, pin: Option<&Sha256Pin>) -> Result<ComponentBytes> {
    let shown = path.display();
    let unreadable = |what: String| Error::new(Code::ComponentUnreadable, format!("component {shown}: {what}"));
    let failed = |error: std::io::Error| {
        unreadable(error.to_string()).hint("correct the path, or make it a file that the gateway's user can read")
    };
    // Opening a pipe without a writer would wait forever otherwise; regular files don't notice.
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    if !found.is_file() {
        let kind = if found.is_dir() { "a directory" } else { "not a regular file" };
        return Err(unreadable(format!("it is {kind}")).hint("name a .wasm file"));
    }
    let too_large = |size: u64| {
        Error::new(
            Code::ComponentTooLarge,
            format!("component {shown}: {size} bytes, over the {MAX_COMPONENT} allowed"),
        )
        .hint("build it for release and strip it (wasm-tools strip)")
        .sizes(size, MAX_COMPONENT)
    };
    if found.len() > MAX_COMPONENT {
        return Err(too_large(found.len()));
    }
    let mut bytes = Vec::with_capacity(found.len() as usize + 1);
    file.take(MAX_COMPONENT + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_COMPONENT {
        // It grew meanwhile.
        return Err(too_large(bytes.len() as u64));
    }
    let digest = sha256_of(&bytes);
    match pin {
        Some(pin) if *pin != digest => Err(mismatch(path, pin, &digest)),
        _ => Ok(ComponentBytes { bytes, digest, path: path.to_path_buf() }),
    }
}

fn mismatch(path: &Path, pin: &Sha256Pin, actual: &Sha256Pin) -> Error {
    let message = format!(
        "component {}: the sha256 of the component file is {actual}, expected was {pin} (the provider's `sha256`)",
        path.display()
    );
    Error::new(Code::DigestMismatch, message)
        .hint(format!("put the right file back; if this one is to be trusted, set sha256 = \"{actual}\""))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn bytes_are_read_with_their_digest() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("a.wasm"), folder.path().join("link.wasm"));
        fs::write(&path, b"abc").unwrap();
        std::os::unix::fs::symlink("a.wasm", &link).unwrap();
        let read = read_component(&link, Some(&sha256_of(b"abc"))).unwrap();
        assert_eq!((&read.bytes[..], &read.digest, &read.path), (&b"abc"[..], &sha256_of(b"abc"), &link));
    }

    #[test]
    fn a_wrong_pin_names_both_digests_and_what_was_hashed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.wasm");
        fs::write(&path, b"abd").unwrap();
        let error = read_component(&path, Some(&sha256_of(b"abc"))).unwrap_err();
        assert_eq!(error.code(), Code::DigestMismatch);
        let text = error.to_string();
        for part in
            [sha256_of(b"abc").as_str(), sha256_of(b"abd").as_str(), "sha256 of the component file is", "a.wasm"]
        {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn only_regular_files_are_read_and_nothing_hangs() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        for (path, part) in [
            (pipe.as_path(), "not a regular file"),
            (folder.path(), "a directory"),
            (Path::new("/dev/zero"), "not a regular file"),
            (&folder.path().join("missing"), "No such file"),
        ] {
            let error = read_component(path, None).unwrap_err();
            assert_eq!(error.code(), Code::ComponentUnreadable);
            assert!(error.to_string().contains(part), "{error}");
        }
    }

    #[test]
    fn a_file_over_the_limit_is_refused_unread() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("big.wasm");
        // Sparse: it takes no room.
        fs::File::create(&path).unwrap().set_len(MAX_COMPONENT + 1).unwrap();
        let error = read_component(&path, None).unwrap_err();
        assert_eq!(error.code(), Code::ComponentTooLarge);
        assert_eq!(error.size_and_limit(), Some((MAX_COMPONENT + 1, MAX_COMPONENT)));
    }

    #[test]
    fn a_file_that_is_swapped_all_the_time_never_passes_with_other_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.wasm");
        let (good, bad) = (vec![b'g'; 200_000], vec![b'b'; 200_000]);
        fs::write(&path, &good).unwrap();
        let pin = sha256_of(&good);
        let stop = AtomicBool::new(false);
        let (mut passed, mut refused) = (0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let next = folder.path().join("next");
                while !stop.load(Ordering::Relaxed) {
                    for content in [&bad, &good] {
                        fs::write(&next, content).unwrap();
                        fs::rename(&next, &path).unwrap();
                    }
                    // In place too: readers may see a mix.
                    fs::write(&path, &bad).unwrap();
                }
            });
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
            while (passed < 5 || refused < 5) && std::time::Instant::now() < deadline {
                match read_component(&path, Some(&pin)) {
                    Ok(read) => {
                        passed += 1;
                        assert!(read.bytes == good, "other bytes passed");
                    }
                    Err(error) => {
                        refused += 1;
                        assert_eq!(error.code(), Code::DigestMismatch);
                    }
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(passed >= 5 && refused >= 5, "{passed} passed, {refused} refused");
    }
}
