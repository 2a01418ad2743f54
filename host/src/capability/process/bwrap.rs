//! The namespace profile: a bubblewrap command line that shows a command its sandbox and nothing else.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use sha2::{Digest, Sha256};

use super::cgroup::Cgroup;
use super::grant::ProcessGrant;
use super::programs::find_on;
use super::seccomp;
use super::start::{FILTER, MARK, Mark, into_namespace};
use crate::error::{Error, Result};
use crate::mounts::{Access, MountTable, VirtualPath};

/// What every system keeps its programs and libraries in; often links into `/usr`.
const SYSTEM_ROOTS: [&str; 6] = ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// What programs need of `/etc`. It is copied, not mounted: one mount instead of twenty, and of a directory only what
/// everybody on the host may read comes along, so that a gateway that runs as root lends no private key.
const ETC: [&str; 26] = [
    "alternatives",
    "bash.bashrc",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "debian_version",
    "fonts",
    "inputrc",
    "java",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "locale.alias",
    "magic",
    "mime.types",
    "os-release",
    "perl",
    "pki",
    "profile",
    "profile.d",
    "protocols",
    "rpc",
    "services",
    "ssl",
    "timezone",
];

/// How names are resolved: only of use with a network, and mounted so that changes are seen.
const ETC_NETWORK: [&str; 3] = ["hosts", "nsswitch.conf", "resolv.conf"];

/// A file of `/etc` that is larger is no configuration.
const MAX_ETC_FILE: u64 = 16 << 20;
/// A directory of `/etc` that is deeper is no configuration.
const MAX_ETC_DEPTH: u32 = 8;

/// Where the kernel takes orders.
const PROC_READ_ONLY: [&str; 13] = [
    "sys",
    "sysrq-trigger",
    "irq",
    "bus",
    "fs",
    "mtrr",
    "acpi",
    "scsi",
    "driver",
    "asound",
    "latency_stats",
    "pressure",
    "sched_debug",
];

/// What tells of the host's keys and memory.
const PROC_HIDDEN: [&str; 6] = ["keys", "key-users", "kcore", "kmsg", "kallsyms", "timer_list"];

/// Memory that a `/tmp` may take which is not a mount of the sandbox's own.
const TMP_SIZE: &str = "268435456";

/// The user that commands are, whoever the gateway is.
const ID: &str = "1000";
/// Its name.
pub(super) const USER: &str = "sandbox";

/// What is the same for all commands of a grant.
#[derive(Debug)]
pub(super) struct Bubblewrap {
    /// The shell that becomes bubblewrap.
    shell: PathBuf,
    /// What commands can't ask of the kernel.
    filter: PathBuf,
    /// Bubblewrap's words, up to the mounts of a sandbox.
    before: Vec<OsString>,
    system_paths: Vec<PathBuf>,
}

impl Bubblewrap {
    /// Finds bubblewrap, prepares what commands see of the system below `runtime_dir`, and starts one command to see that
    /// it works here.
    pub(super) async fn prepare(grant: &ProcessGrant, path: &str, runtime_dir: &Path) -> Result<Self> {
        let bwrap = match &grant.bwrap {
            Some(bwrap) => bwrap.clone(),
            None => find_on(path, "bwrap").next().ok_or_else(|| {
                unavailable("bubblewrap (bwrap) is not installed")
                    .hint("install the package \"bubblewrap\", or set isolation to \"none\" if commands may see the gateway's machine; `sandgate doctor` explains")
            })?,
        };
        let help = output(&bwrap, &["--help".into()]).await?;
        let runtime_dir = runtime_dir.to_owned();
        let shell = find_on(path, "sh").next().ok_or_else(|| unavailable("there is no shell (sh) on the PATH"))?;
        let made = tokio::task::spawn_blocking(move || Ok((make_etc(&runtime_dir)?, seccomp::file(&runtime_dir)?)));
        let (etc, filter) = made
            .await
            .map_err(|error| Error::internal(format!("preparing what sandboxes see failed: {error}")))?
            .map_err(|error: std::io::Error| unavailable(&format!("what sandboxes see can't be prepared: {error}")))?;
        let mut before: Vec<OsString> = vec![bwrap.into()];
        before.extend(["--seccomp", FILTER, "--json-status-fd", MARK].map(OsString::from));
        before.extend(options(grant, &help.text, &etc));
        let wrapper = Self { shell, filter, before, system_paths: grant.system_paths.clone() };
        let mark = Mark::new(true).map_err(|error| unavailable(&format!("there is no memory for it: {error}")))?;
        let mut trial = wrapper.words(&mark, None);
        trial.extend(["--".into(), "/usr/bin/env".into(), "true".into()]);
        let trial = output(&wrapper.shell, &trial).await?;
        if !trial.success || !mark.started() {
            let said = trial.text.lines().next().unwrap_or("it said nothing").to_owned();
            return Err(unavailable(&format!("bubblewrap can't make a sandbox on this machine: {said}")).hint(
                "allow user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, \
                 kernel.apparmor_restrict_unprivileged_userns; in Docker a seccomp profile that permits them); \
                 `sandgate doctor` explains",
            ));
        }
        Ok(wrapper)
    }

    /// What to start; its first arguments are [`options`](Self::options).
    pub(super) fn program(&self) -> &Path {
        &self.shell
    }

    /// Whether commands see a file of the host, at the same path.
    pub(super) fn shows(&self, path: &Path) -> bool {
        let seen = |path: &Path| {
            path.starts_with("/usr")
                || SYSTEM_ROOTS.iter().any(|root| path.starts_with(root))
                || self.system_paths.iter().any(|shown| path.starts_with(shown))
        };
        seen(path) && path.canonicalize().is_ok_and(|real| seen(&real))
    }

    fn words(&self, mark: &Mark, cgroup: Option<&Cgroup>) -> Vec<OsString> {
        into_namespace(&self.filter, mark, cgroup).into_iter().chain(self.before.iter().cloned()).collect()
    }

    /// All options for a command of this sandbox, up to the program. Nothing of its environment is in them.
    pub(super) fn options(
        &self,
        mounts: &MountTable,
        cwd: &VirtualPath,
        mark: &Mark,
        cgroup: Option<&Cgroup>,
    ) -> Vec<OsString> {
        let mut options = self.words(mark, cgroup);
        // The table has the deepest first; here a mount must come after those that it lies in.
        for mount in mounts.mounts().iter().rev() {
            options.push(match mount.access {
                Access::ReadOnly => "--ro-bind".into(),
                Access::ReadWrite => "--bind".into(),
            });
            options.extend([mount.host.clone().into_os_string(), mount.at.as_str().into()]);
        }
        options.extend(["--remount-ro", "/", "--chdir", cwd.as_str(), "--"].map(OsString::from));
        options
    }
}

/// The options that do not depend on a sandbox.
fn options(grant: &ProcessGrant, help: &str, etc: &Path) -> Vec<OsString> {
    let mut options: Vec<OsString> = [
        "--unshare-user",
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-cgroup-try",
        "--uid",
        ID,
        "--gid",
        ID,
        "--hostname",
        USER,
    ]
    .map(OsString::from)
    .to_vec();
    if !grant.network {
        options.push("--unshare-net".into());
    }
    // A user namespace inside of this one would give back the kernel interfaces that only root has.
    if help.contains("--disable-userns") {
        options.push("--disable-userns".into());
    }
    // Others have no capabilities to drop, and bubblewrap refuses to.
    if rustix::process::getuid().is_root() {
        options.extend(["--cap-drop".into(), "ALL".into()]);
    }
    options.extend(["--ro-bind", "/usr", "/usr"].map(OsString::from));
    for root in SYSTEM_ROOTS {
        if let Ok(target) = fs::read_link(root) {
            options.extend(["--symlink".into(), target.into_os_string(), root.into()]);
        } else if Path::new(root).is_dir() {
            options.extend(["--ro-bind", root, root].map(OsString::from));
        }
    }
    options.extend(["--ro-bind".into(), etc.as_os_str().to_owned(), "/etc".into()]);
    if grant.network {
        for name in ETC_NETWORK {
            let file = format!("/etc/{name}");
            options.extend(["--ro-bind-try", &file, &file].map(OsString::from));
        }
    }
    options.extend(["--proc", "/proc", "--dev", "/dev"].map(OsString::from));
    // A gateway that runs as root is root to the kernel's own files, whatever it is called in here: they may be read, as
    // programs do, and not written. bubblewrap covers them only where it thinks that they can be written.
    for name in PROC_READ_ONLY {
        let file = format!("/proc/{name}");
        if Path::new(&file).exists() {
            options.extend(["--ro-bind", &file, &file].map(OsString::from));
        }
    }
    for name in PROC_HIDDEN {
        let file = format!("/proc/{name}");
        if Path::new(&file).exists() {
            options.extend(["--ro-bind", "/dev/null", &file].map(OsString::from));
        }
    }
    if help.contains("--size") {
        options.extend(["--size", TMP_SIZE].map(OsString::from));
    }
    options.extend(["--tmpfs", "/tmp", "--dir", "/var", "--symlink", "/tmp", "/var/tmp"].map(OsString::from));
    // After /tmp, which one of them may lie in. An operator's list may serve many hosts, and not all have everything.
    for path in &grant.system_paths {
        options.extend(["--ro-bind-try".into(), path.as_os_str().to_owned(), path.as_os_str().to_owned()]);
    }
    options
}

struct Output {
    success: bool,
    text: String,
}

async fn output(bwrap: &Path, args: &[OsString]) -> Result<Output> {
    let output = tokio::process::Command::new(bwrap)
        .args(args)
        .env_clear()
        .env("PATH", super::programs::DEFAULT_PATH)
        .current_dir("/")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|error| {
            unavailable(&format!("bubblewrap can't be started: {error}")).hint("`sandgate doctor` explains")
        })?;
    let text = [output.stdout, output.stderr].concat();
    Ok(Output { success: output.status.success(), text: String::from_utf8_lossy(&text).into_owned() })
}

fn unavailable(what: &str) -> Error {
    Error::unavailable(what).context("isolation \"namespace\" can't be had")
}

/// Makes the `/etc` of sandboxes below a directory of the gateway's own. Its name says what is in it, so that it is made
/// once and gateways may share it.
fn make_etc(runtime_dir: &Path) -> std::io::Result<PathBuf> {
    fs::create_dir_all(runtime_dir)?;
    let made = tempfile::Builder::new().prefix(".etc-").tempdir_in(runtime_dir)?;
    let mut digest = Sha256::new();
    for name in ETC {
        copy(&Path::new("/etc").join(name), &made.path().join(name), &mut digest, 0);
    }
    let own = [
        (
            "passwd",
            format!(
                "root:x:0:0:root:/:/usr/sbin/nologin\n{USER}:x:{ID}:{ID}::/:/bin/sh\nnobody:x:65534:65534::/:/usr/sbin/nologin\n"
            ),
        ),
        ("group", format!("root:x:0:\n{USER}:x:{ID}:\nnogroup:x:65534:\n")),
        ("hosts", format!("127.0.0.1 localhost {USER}\n::1 localhost {USER}\n")),
        ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n".to_owned()),
        // A place for the host's file to be mounted on.
        ("resolv.conf", String::new()),
    ];
    for (name, text) in own {
        digest.update(name);
        digest.update(&text);
        fs::write(made.path().join(name), text)?;
    }
    fs::set_permissions(made.path(), fs::Permissions::from_mode(0o755))?;
    let hash: String = digest.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let place = runtime_dir.join(format!("etc-{hash}"));
    if !place.is_dir() {
        let made = made.keep();
        // Another gateway may have been faster.
        if fs::rename(&made, &place).is_err() {
            fs::remove_dir_all(&made)?;
        }
    }
    place.canonicalize()
}

/// Copies what everybody may read. What is missing or can't be read is left out: programs do without.
fn copy(from: &Path, to: &Path, digest: &mut Sha256, depth: u32) {
    let Ok(kind) = fs::symlink_metadata(from) else { return };
    digest.update(to.file_name().map(|name| name.as_encoded_bytes()).unwrap_or_default());
    if kind.is_symlink() {
        let Ok(target) = fs::read_link(from) else { return };
        digest.update(target.as_os_str().as_encoded_bytes());
        let _ = std::os::unix::fs::symlink(target, to);
        return;
    }
    let readable = kind.permissions().mode() & 0o004 != 0;
    if kind.is_dir() && readable && depth < MAX_ETC_DEPTH {
        let Ok(entries) = fs::read_dir(from) else { return };
        let mut names: Vec<OsString> = entries.flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        if fs::create_dir(to).is_ok() {
            for name in names {
                copy(&from.join(&name), &to.join(&name), digest, depth + 1);
            }
        }
    } else if kind.is_file()
        && readable
        && kind.len() <= MAX_ETC_FILE
        && let Ok(content) = fs::read(from)
    {
        digest.update(&content);
        let _ = fs::write(to, content);
    }
}
