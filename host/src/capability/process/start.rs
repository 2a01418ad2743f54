//! How a command gets from the gateway's process into its place, and how it is told whether it ever got there.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{MemfdFlags, memfd_create};

use super::cgroup::Cgroup;

/// What is written about a start: far more than bubblewrap has to say.
const MAX_MARK: usize = 64 << 10;

/// Opens the seccomp filter and the mark, enters the control group, and becomes bubblewrap: the filter's file, the mark's,
/// the group's door or nothing, then the whole command line.
const INTO_NAMESPACE: &str = r#"exec 9< "$0" 8> "$1" && { [ -z "$2" ] || echo 0 > "$2"; } && shift 2 && exec "$@""#;

/// Enters a control group, says so, and becomes the command: the mark's file, the group's door, then the command line.
const INTO_GROUP: &str = r#"echo 0 > "$1" && echo started > "$0" && shift && exec "$@""#;

/// The descriptor from which bubblewrap reads the seccomp filter.
pub(super) const FILTER: &str = "9";
/// The descriptor to which bubblewrap writes what becomes of its command.
pub(super) const MARK: &str = "8";

/// A piece of memory in which those that start a command say that they did. Without it their own failure would pass for
/// the command's end.
#[derive(Debug)]
pub(super) struct Mark {
    file: File,
    /// Bubblewrap writes it, at the command's end: the exit code of a command that was started, and only then.
    namespace: bool,
}

impl Mark {
    pub(super) fn new(namespace: bool) -> io::Result<Self> {
        Ok(Self { file: memfd_create("sandgate-start", MemfdFlags::CLOEXEC)?.into(), namespace })
    }

    /// Where a process that the gateway starts can open it.
    fn path(&self) -> OsString {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }

    /// Whether the command was started; known when it has ended.
    pub(super) fn started(&self) -> bool {
        let mut text = vec![0; MAX_MARK];
        let read = self.file.read_at(&mut text, 0).unwrap_or(0);
        let text = String::from_utf8_lossy(text.get(..read).unwrap_or_default()).into_owned();
        if self.namespace { text.contains("\"exit-code\"") } else { !text.is_empty() }
    }
}

/// The words that a shell needs to start bubblewrap, before bubblewrap's own.
pub(super) fn into_namespace(filter: &Path, mark: &Mark, cgroup: Option<&Cgroup>) -> [OsString; 5] {
    let door = cgroup.map(|cgroup| cgroup.door().into_os_string()).unwrap_or_default();
    ["-c".into(), INTO_NAMESPACE.into(), filter.into(), mark.path(), door]
}

/// The words that start a command in its control group, before the command's own.
pub(super) fn into_group(mark: &Mark, cgroup: &Cgroup) -> [OsString; 5] {
    ["/bin/sh".into(), "-c".into(), INTO_GROUP.into(), mark.path(), cgroup.door().into()]
}
