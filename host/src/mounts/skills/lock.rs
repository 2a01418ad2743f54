//! One rebuild of a view at a time, over threads and processes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// How long a rebuild waits for another one: copying the largest view takes a few seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often it looks. A lock of this kind has no wait with a deadline.
const INTERVAL: Duration = Duration::from_millis(10);

/// A held lock; dropping it releases it, and so does the end of the process.
///
/// Such a lock belongs to the open file, not to the process, so it keeps threads apart too.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock of a file, which is made if need be.
    pub(super) fn take(path: &Path) -> io::Result<Self> {
        let no_link = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
        let file =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).custom_flags(no_link).open(path)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { _file: file }),
                Err(Errno::WOULDBLOCK) if Instant::now() < deadline => std::thread::sleep(INTERVAL),
                Err(Errno::WOULDBLOCK) => {
                    let message = format!("another rebuild has taken more than {} s", PATIENCE.as_secs());
                    return Err(io::Error::new(io::ErrorKind::TimedOut, message));
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
