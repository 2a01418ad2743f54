//! The leash: whatever way the gateway ends, no command outlives it.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};

use parking_lot::Mutex;
use rustix::process::Pid;

use crate::error::{Error, Result};

/// Reads `+ TARGET` and `- TARGET` until its input closes, which the kernel does when the gateway dies, SIGKILL included.
/// Then it kills the targets that are left: `N` is a process, `-N` a group. It ignores the signals that a terminal or a service manager sends to
/// everything around the gateway: its work begins when the gateway is gone.
const SCRIPT: &str = r#"
trap '' HUP INT QUIT TERM USR1 USR2 TSTP
targets=' '
while read -r sign target; do
    case $sign in
    +) targets="$targets$target " ;;
    -) case $targets in *" $target "*) targets="${targets%%" $target "*} ${targets#*" $target "}" ;; esac ;;
    esac
done
for target in $targets; do
    kill -s KILL -- "$target"
done
"#;

/// One helper process for all commands of this gateway.
pub(super) struct Leash {
    state: Mutex<State>,
}

struct State {
    helper: Option<(Child, ChildStdin)>,
    /// As the helper knows them.
    targets: BTreeSet<i32>,
}

/// What dies with the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Process(Pid),
    Group(Pid),
}

impl Target {
    fn number(self) -> i32 {
        match self {
            Self::Process(pid) => pid.as_raw_nonzero().get(),
            Self::Group(pid) => -pid.as_raw_nonzero().get(),
        }
    }
}

impl Leash {
    /// The leash of this process. Its helper starts with the first command.
    pub(super) fn of_this_process() -> &'static Self {
        static LEASH: Leash = Leash { state: Mutex::new(State { helper: None, targets: BTreeSet::new() }) };
        &LEASH
    }

    /// Starts the helper if there is none yet: a command that can't be leashed must not start.
    pub(super) fn ready(&self) -> Result<()> {
        let mut state = self.state.lock();
        if state.helper.is_none() { state.restart() } else { Ok(()) }
    }

    /// From now on this dies with the gateway.
    pub(super) fn add(&self, target: Target) -> Result<()> {
        let mut state = self.state.lock();
        state.targets.insert(target.number());
        state.tell('+', target.number())
    }

    /// This has ended: its number may become another's.
    pub(super) fn remove(&self, target: Target) {
        let mut state = self.state.lock();
        if !state.targets.remove(&target.number()) {
            return;
        }
        if let Err(error) = state.tell('-', target.number()) {
            tracing::warn!(%error, "the helper that ends commands with the gateway could not be restarted");
        }
    }
}

impl State {
    /// A helper that does not listen any more is replaced by one that knows all targets.
    fn tell(&mut self, sign: char, target: i32) -> Result<()> {
        let told = match &mut self.helper {
            Some((_, input)) => input.write_all(format!("{sign} {target}\n").as_bytes()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        if told.is_ok() { Ok(()) } else { self.restart() }
    }

    fn restart(&mut self) -> Result<()> {
        if let Some((mut old, input)) = self.helper.take() {
            // It must be dead before its input closes, else it would end all that runs.
            let _ = old.kill();
            let _ = old.wait();
            drop(input);
        }
        let unavailable = |error: io::Error| {
            Error::unavailable(format!("the helper that ends commands with the gateway can't be started: {error}"))
                .hint("it needs /bin/sh and room for one more process")
        };
        let mut helper = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "sandgate-leash"])
            .env_clear()
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(unavailable)?;
        let Some(mut input) = helper.stdin.take() else {
            return Err(Error::internal("the helper has no standard input"));
        };
        let known: String = self.targets.iter().map(|target| format!("+ {target}\n")).collect();
        let told = input.write_all(known.as_bytes()).and_then(|()| {
            // A helper that was stopped must not stop the gateway: a full pipe replaces it.
            rustix::io::ioctl_fionbio(&input, true).map_err(io::Error::from)
        });
        told.map_err(unavailable)?;
        self.helper = Some((helper, input));
        Ok(())
    }
}
