//! From a request to a running command.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, LazyLock};

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;
use tokio::net::unix::pipe;
use tokio::process::Command;
use tokio::sync::{OnceCell, mpsc};
use tracing::Instrument;

use super::bwrap::{Bubblewrap, USER};
use super::cgroup::Cgroup;
use super::grant::{Isolation, ProcessGrant, SpawnRequest};
use super::groups::Groups;
use super::headtail::HeadTail;
use super::leash::Leash;
use super::limits::Limits;
use super::output::Output;
use super::programs::{DEFAULT_PATH, find_on};
use super::start::{Mark, into_group};
use super::supervise::Running;
use crate::capability::workspace::check_enterable;
use crate::env_policy::EnvPolicy;
use crate::error::{Code, Error, Result};
use crate::ids::{ProviderName, SandboxId};
use crate::mounts::{MountTable, VirtualPath};
use crate::rewrite::{Redactor, Translator};
use crate::values::{ByteStream, EventStream, STREAM_DEPTH, SignalStream};

/// Where the gateway's own environment comes from. The policy decides what of it a command sees.
pub type HostEnv = Arc<dyn Fn() -> Vec<(OsString, OsString)> + Send + Sync>;

/// Variables that name what is not there in a namespace: the gateway's directories, sessions and sockets.
const HOST_ONLY: [&str; 10] = [
    "DBUS_SESSION_BUS_ADDRESS",
    "DISPLAY",
    "MAIL",
    "OLDPWD",
    "PWD",
    "TEMP",
    "TMP",
    "TMPDIR",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
];

/// Commands of one provider. An idle sandbox costs nothing here.
pub struct Processes {
    provider: ProviderName,
    grant: ProcessGrant,
    policy: Arc<EnvPolicy>,
    host_env: HostEnv,
    runtime_dir: PathBuf,
    bubblewrap: OnceCell<Bubblewrap>,
    groups: Arc<Groups>,
    limits: Limits,
}

impl std::fmt::Debug for Processes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Processes")
            .field("provider", &self.provider)
            .field("grant", &self.grant)
            .finish_non_exhaustive()
    }
}

impl Drop for Processes {
    /// Nobody is left who could end what commands left running.
    fn drop(&mut self) {
        self.groups.end_all();
    }
}

impl Processes {
    /// `runtime_dir` is a directory of the gateway's own (made if it is missing) that no sandbox may write; a small copy
    /// of parts of `/etc` for sandboxes is kept there.
    pub fn new(provider: ProviderName, grant: ProcessGrant, policy: Arc<EnvPolicy>, runtime_dir: PathBuf) -> Self {
        Self {
            limits: Limits::new(provider.clone(), grant.limits),
            provider,
            grant,
            policy,
            host_env: Arc::new(|| std::env::vars_os().collect()),
            runtime_dir,
            bubblewrap: OnceCell::new(),
            groups: Arc::new(Groups::default()),
        }
    }

    /// Takes the host's environment from elsewhere than this process.
    #[must_use]
    pub fn with_host_env(mut self, host_env: HostEnv) -> Self {
        self.host_env = host_env;
        self
    }

    /// Puts every command into a control group below this one, whatever its limits.
    #[cfg(test)]
    pub(super) fn with_cgroups(mut self, cgroups: Arc<super::cgroup::Cgroups>) -> Self {
        self.limits.always_in(cgroups);
        self
    }

    /// Whether this grant's isolation can be had on this machine: `unavailable` with the reason if not. The first
    /// command asks the same.
    pub async fn check_isolation(&self) -> Result<()> {
        match self.grant.isolation {
            Isolation::Namespace => self.bubblewrap(&search_path(&self.inherited())).await.map(drop),
            Isolation::None => Ok(()),
        }
    }

    /// Starts a program in its own process group. Without `stdin` it reads end of file at once.
    ///
    /// The stream's last event is `Exited`, when the program itself has ended and all that it wrote was delivered, or
    /// `Failed`; `Failed` with `unavailable` if the program was never started, which shows only when its isolation is
    /// being set up. If the kernel killed a process at the limit on memory, a last line on standard error says so; the
    /// exit status stays what it is (137 where it was the command itself). What it left in the background lives on until [`end_sandbox`](Self::end_sandbox), or until this gateway
    /// ends in whatever way. Dropping the stream before its last event kills the whole group.
    ///
    /// # Errors
    /// `capability-denied` (program not granted), `invalid-argument` (a name, value, argument or timeout), `not-found`
    /// (program or working directory), `not-a-directory`, `permission-denied` and `path-escapes` (working directory),
    /// `too-large` (arguments and environment together), `capacity` ([`MAX_GROUPS`](super::MAX_GROUPS)), `unavailable`
    /// (the isolation can't be had on this machine).
    pub async fn spawn(
        &self,
        sandbox: &SandboxId,
        mounts: &MountTable,
        request: SpawnRequest,
        stdin: Option<ByteStream>,
        signals: Option<SignalStream>,
    ) -> Result<EventStream> {
        self.grant.check(&self.provider, &request)?;
        let timeout = self.grant.timeout(&self.provider, request.timeout)?;
        let limit = self.grant.output_limit(request.output_limit).map(HeadTail::new);
        let place = self.groups.reserve(sandbox)?;
        Leash::of_this_process().ready()?;

        // A gateway takes secrets out of all output that it delivers. But a limit would cut before that, perhaps in the
        // middle of a secret, and half of one is not recognised any more.
        let redactor = if limit.is_some() { Redactor::new(request.env.values()) } else { Redactor::default() };
        let program = request.program.clone();
        let failed = |error: std::io::Error| start_error(&program, &error);
        let namespace = self.grant.isolation == Isolation::Namespace;
        let cgroup = self.limits.cgroup(namespace)?;
        let mark = if namespace || cgroup.is_some() { Some(Mark::new(namespace).map_err(failed)?) } else { None };
        let (mut command, translator) = self.command(mounts, request, mark.as_ref(), cgroup.as_ref()).await?;
        let (stdout, stdout_end) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
        let (stderr, stderr_end) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
        command.stdout(Stdio::from(stdout_end)).stderr(Stdio::from(stderr_end));
        let stdin = match stdin {
            None => {
                command.stdin(Stdio::null());
                None
            }
            Some(bytes) => {
                let (end, stdin) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
                command.stdin(Stdio::from(end));
                Some((pipe::Sender::from_owned_fd(stdin).map_err(failed)?, bytes))
            }
        };
        let output = Output::new(stdout, stderr, translator.as_ref(), &redactor).map_err(failed)?;
        let child = command.spawn().map_err(failed)?;
        // It holds the command's ends of the pipes.
        drop(command);
        let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let Some(pid) = pid else { return Err(Error::internal("a command that was just started has no number")) };
        let group = place.take(pid, cgroup)?;

        let (events, receiver) = mpsc::channel(STREAM_DEPTH);
        let running = Running { child, group, output, events, stdin, signals, timeout, limit, namespace, mark };
        let span = tracing::debug_span!("command", provider = %self.provider, %sandbox, %program);
        tokio::spawn(running.supervise().instrument(span));
        Ok(receiver)
    }

    /// Kills what the commands of a sandbox left in the background, and those that still run.
    pub fn end_sandbox(&self, sandbox: &SandboxId) {
        self.groups.end(sandbox);
    }

    /// How many process groups a sandbox has: commands that run, and those that left something in the background.
    pub fn count(&self, sandbox: &SandboxId) -> usize {
        self.groups.count(sandbox)
    }

    fn inherited(&self) -> BTreeMap<OsString, OsString> {
        self.policy.inherited((self.host_env)()).into_iter().collect()
    }

    async fn bubblewrap(&self, path: &str) -> Result<&Bubblewrap> {
        // An error is not kept: an operator may repair the machine while the gateway runs.
        self.bubblewrap.get_or_try_init(|| Bubblewrap::prepare(&self.grant, path, &self.runtime_dir)).await
    }

    /// The command line, environment and directory; with isolation `none` also what translates its output.
    async fn command(
        &self,
        mounts: &MountTable,
        request: SpawnRequest,
        mark: Option<&Mark>,
        cgroup: Option<&Cgroup>,
    ) -> Result<(Command, Option<Translator>)> {
        let mut env = self.inherited();
        let path = search_path(&env);
        env.insert("PATH".into(), path.clone().into());
        let cwd = request.cwd.clone().unwrap_or_else(|| mounts.workspace());
        let mut words: Vec<OsString> = Vec::new();
        if *HAS_TERMINAL {
            // In a session of its own a command can't type into the operator's terminal (TIOCSTI).
            words.push(helper(&path, "setsid", |_| true)?.into());
        }
        let (host_cwd, translator) = match self.grant.isolation {
            Isolation::Namespace => {
                let Some(mark) = mark else { return Err(Error::internal("a command in a namespace has no mark")) };
                let wrapper = self.bubblewrap(&path).await?;
                check_namespace_cwd(wrapper, mounts, &cwd)?;
                words.push(wrapper.program().into());
                words.extend(wrapper.options(mounts, &cwd, mark, cgroup));
                self.limits.push(&mut words, cgroup, || helper(&path, "prlimit", |file| wrapper.shows(file)))?;
                words.push(self.program(&path, &request.program, |file| wrapper.shows(file))?.into());
                words.extend(request.args.into_iter().map(OsString::from));
                env.retain(|name, _| {
                    !name.as_bytes().starts_with(b"XDG_") && !HOST_ONLY.iter().any(|only| name == only)
                });
                env.insert("HOME".into(), mounts.workspace().as_str().into());
                env.insert("USER".into(), USER.into());
                env.insert("LOGNAME".into(), USER.into());
                (PathBuf::from("/"), None)
            }
            Isolation::None => {
                let translator = Translator::new(mounts);
                if let (Some(mark), Some(cgroup)) = (mark, cgroup) {
                    words.extend(into_group(mark, cgroup));
                }
                self.limits.push(&mut words, cgroup, || helper(&path, "prlimit", |_| true))?;
                words.push(self.program(&path, &request.program, |_| true)?.into());
                words.extend(request.args.iter().map(|arg| OsString::from(translator.forward(arg))));
                (host_directory(mounts, &cwd)?, Some(translator))
            }
        };
        env.extend(request.env.into_iter().map(|(name, value)| (name.into(), value.into())));
        let mut words = words.into_iter();
        let Some(first) = words.next() else { return Err(Error::internal("a command line is empty")) };
        let mut command = Command::new(first);
        command.args(words).env_clear().envs(env).current_dir(host_cwd);
        if !*HAS_TERMINAL {
            command.process_group(0);
        }
        Ok((command, translator))
    }

    fn program(&self, path: &str, name: &str, visible: impl Fn(&Path) -> bool) -> Result<PathBuf> {
        let mut hidden = false;
        for file in find_on(path, name) {
            if visible(&file) {
                return Ok(file);
            }
            hidden = true;
        }
        let provider = &self.provider;
        Err(if hidden {
            Error::not_found(format!("program {name:?} is installed in a place that sandboxes don't see"))
                .hint(format!("an operator can add its directory to providers.{provider}.grants.process.system_paths"))
        } else {
            Error::not_found(format!("program {name:?} is not installed on the gateway's machine"))
                .hint("install it in a directory of the gateway's PATH")
        })
    }
}

/// Whether the gateway has a controlling terminal, which its commands would share.
static HAS_TERMINAL: LazyLock<bool> = LazyLock::new(|| std::fs::File::open("/dev/tty").is_ok());

fn search_path(env: &BTreeMap<OsString, OsString>) -> String {
    env.get(std::ffi::OsStr::new("PATH")).and_then(|path| path.to_str()).unwrap_or(DEFAULT_PATH).to_owned()
}

/// A program that Sandgate itself needs.
fn helper(path: &str, name: &str, visible: impl Fn(&Path) -> bool) -> Result<PathBuf> {
    find_on(path, name).chain(find_on(DEFAULT_PATH, name)).find(|file| visible(file)).ok_or_else(|| {
        Error::unavailable(format!("the program {name:?} is not installed")).hint("install the package \"util-linux\"")
    })
}

/// Bubblewrap itself would fail where the directory can't be entered, which looks like the command's own end. Links lead
/// where the sandbox says, but not out of its mounts, as for all that is named from outside.
fn check_namespace_cwd(wrapper: &Bubblewrap, mounts: &MountTable, cwd: &VirtualPath) -> Result<()> {
    if let Some(missing) = mounts.mounts().iter().find(|mount| !mount.host.exists()) {
        return Err(Error::unavailable(format!("there is nothing behind the mount {}", missing.at)));
    }
    if mounts.place(cwd).is_err() {
        let host = Path::new(cwd.as_str());
        if ["/", "/tmp"].contains(&cwd.as_str()) {
            return Ok(());
        }
        if wrapper.shows(host) {
            return if host.is_dir() { Ok(()) } else { Err(not_a_directory(cwd)) };
        }
    }
    check_enterable(mounts, cwd).map_err(|error| error.context("the command can't start in its working directory"))
}

/// The directory of the host behind a virtual path. Links must not lead out of its mount.
fn host_directory(mounts: &MountTable, cwd: &VirtualPath) -> Result<PathBuf> {
    if mounts.mounts().is_empty() && *cwd == VirtualPath::root() {
        // What is about no sandbox, or about one that nobody has acquired here yet, has no workspace to start in.
        return Ok(PathBuf::from("/"));
    }
    let place = mounts.place(cwd)?;
    let resolve = |path: &Path| path.canonicalize().map_err(|error| cwd_error(cwd, &error));
    let root = resolve(&place.mount.host)?;
    let path = resolve(&place.mount.host.join(place.rest))?;
    if !path.starts_with(&root) {
        return Err(Error::path_escapes(format!("the working directory {cwd} leads out of {}", place.mount.at)));
    }
    if path.is_dir() { Ok(path) } else { Err(not_a_directory(cwd)) }
}

fn not_a_directory(cwd: &VirtualPath) -> Error {
    Error::not_a_directory(format!("the working directory {cwd} is not a directory"))
}

fn cwd_error(cwd: &VirtualPath, error: &std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::NotFound => Error::not_found(format!("the working directory {cwd} does not exist")),
        std::io::ErrorKind::NotADirectory => not_a_directory(cwd),
        std::io::ErrorKind::PermissionDenied => {
            Error::permission_denied(format!("the working directory {cwd} can't be entered"))
        }
        _ if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            Error::path_escapes(format!("the working directory {cwd} leads through too many links"))
        }
        _ => Error::other(format!("the working directory {cwd} can't be used: {error}")),
    }
}

fn start_error(program: &str, error: &std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::ArgumentListTooLong => Error::new(
            Code::TooLarge,
            format!("the arguments and environment of {program:?} are larger than the system allows"),
        )
        .hint("put large text into a file, or into standard input"),
        std::io::ErrorKind::NotFound => Error::not_found(format!("program {program:?} can't be started: {error}")),
        std::io::ErrorKind::PermissionDenied => {
            Error::permission_denied(format!("program {program:?} can't be started: {error}"))
        }
        _ => Error::unavailable(format!("program {program:?} can't be started: {error}"))
            .hint("the gateway's machine is short of processes, files or memory"),
    }
}
