//! Real shells for the tests: dash and bash with the machine's tools, and BusyBox with nothing but its own.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::quote::Target;
use super::run::{Flow, Run, Sink};
use crate::error::Result;
use crate::values::{Event, ExitStatus};

/// A user without any rights; tests that run as root become it.
const NOBODY: u32 = 65534;

pub(super) struct Shell {
    pub(super) name: &'static str,
    program: PathBuf,
    args: &'static [&'static str],
    path: String,
    nobody: bool,
    /// Kept as long as the shell.
    _tools: Option<tempfile::TempDir>,
}

pub(super) struct Ran {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    pub(super) status: i32,
}

/// Every shell that the defaults promise to work with. All of them must be there: a test that skips one proves nothing.
pub(super) fn shells() -> Vec<Shell> {
    let gnu = std::env::var("PATH").unwrap_or_default();
    let shell = |name, args| Shell { name, program: find(name), args, path: gnu.clone(), nobody: false, _tools: None };
    let tools = busybox_tools();
    let path = tools.path().to_string_lossy().into_owned();
    vec![
        shell("dash", &["-c"]),
        shell("bash", &["-c"]),
        Shell { path, _tools: Some(tools), ..shell("busybox", &["sh", "-c"]) },
    ]
}

fn find(program: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
        .unwrap_or_else(|| panic!("these tests need {program}: apt-get install -y dash bash busybox-static"))
}

/// A directory with BusyBox under the names of its tools, so that no other tool is found.
fn busybox_tools() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory for BusyBox");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
    let done = Command::new(find("busybox")).args(["--install", "-s"]).arg(dir.path()).status();
    assert!(done.is_ok_and(|status| status.success()), "busybox --install");
    dir
}

impl Shell {
    /// The same for a user who may not do everything.
    pub(super) fn unprivileged(mut self) -> Self {
        // For anyone but root, the tests' own user is one.
        self.nobody = fs::metadata("/proc/self").is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0);
        self
    }

    /// The same where no tool is found.
    pub(super) fn without_tools(mut self) -> Self {
        // BusyBox finds its own tools without a path, so it is dash that plays a sandbox without any.
        self.program = find("dash");
        self.args = &["-c"];
        self.path = "/nowhere".into();
        self
    }

    /// The same with more tools, which win.
    pub(super) fn with_tools(mut self, dir: &str) -> Self {
        self.path = format!("{dir}:{}", self.path);
        self
    }

    /// The shell with this script, in a process group of its own, and pipes to it.
    fn command(&self, script: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(self.args).arg(script).env_clear().env("PATH", &self.path).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if self.nobody {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.process_group(0);
        command
    }

    pub(super) fn spawn(&self, script: &str) -> Child {
        self.command(script).spawn().expect("a shell")
    }

    pub(super) fn run(&self, script: &str, stdin: &[u8]) -> Ran {
        let mut child = self.command(script).spawn().expect("a shell");
        let mut input = child.stdin.take().expect("its input");
        let stdin = stdin.to_vec();
        let writer = std::thread::spawn(move || {
            // A script that does not read its input may have ended.
            let _ = input.write_all(&stdin);
        });
        let output = child.wait_with_output().expect("its output");
        writer.join().expect("the writer");
        let status = output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap_or(0));
        Ran { stdout: output.stdout, stderr: output.stderr, status }
    }

    /// What a sandbox would report of it, in pieces that cut everywhere.
    pub(super) fn events(&self, script: &str, stdin: &[u8]) -> Vec<Event> {
        let ran = self.run(script, stdin);
        let size = if ran.stdout.len() < 10_000 { 7 } else { 65_536 };
        let mut events: Vec<Event> = ran.stdout.chunks(size).map(|bytes| Event::Stdout(bytes.to_vec())).collect();
        events.extend(ran.stderr.chunks(size).map(|bytes| Event::Stderr(bytes.to_vec())));
        events.push(Event::Exited(ExitStatus::from_code(ran.status)));
        events
    }

    /// Runs a script to its result.
    pub(super) fn drive<K: Sink>(&self, target: &Target, script: &str, stdin: &[u8], sink: K) -> Result<K::Output> {
        let mut run = Run::new(target.clone(), sink);
        for event in self.events(script, stdin) {
            if run.see(event)? == Flow::Enough {
                return run.finish();
            }
        }
        Err(run.cut())
    }
}

/// A directory of a test; it is removed at its end.
pub(super) struct Area(tempfile::TempDir, String);

pub(super) fn area() -> Area {
    let dir = tempfile::tempdir().expect("a temporary directory");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
    // `build` is an ignored name: nothing may depend on where a search starts.
    let root = dir.path().join("build");
    fs::create_dir(&root).expect("a root");
    let root = root.to_str().expect("UTF-8").to_owned();
    Area(dir, root)
}

impl Area {
    pub(super) fn root(&self) -> &str {
        &self.1
    }

    /// Beside the root.
    pub(super) fn outside(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("UTF-8").to_owned()
    }

    pub(super) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.1)
    }

    pub(super) fn file(&self, name: &str, text: &str) -> String {
        self.bytes(name, text.as_bytes())
    }

    pub(super) fn bytes(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.path(name);
        fs::create_dir_all(Path::new(&path).parent().expect("a parent")).expect("parents");
        fs::write(&path, bytes).expect("a file");
        path
    }
}

pub(super) fn target(path: &str) -> Target {
    Target::parse(path).unwrap_or_else(|error| panic!("{path:?}: {error:?}"))
}
