//! Runs a program within a time limit.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::check::DEADLINE;

/// The output that is read: the first lines say what there is to say.
const MAX_OUTPUT: u64 = 16 << 10;

/// How often an end is looked for.
const INTERVAL: Duration = Duration::from_millis(5);

/// How a program ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// There is no such program on the `PATH`.
    Missing,
    /// It could not be started, or did not end in time.
    Broken(String),
    /// It said no.
    Failed(String),
    /// It said yes, and this.
    Succeeded(String),
}

/// Runs a program with half of a check's time.
pub(super) fn run(program: &str, arguments: &[&str]) -> Outcome {
    run_within(program, arguments, DEADLINE / 2)
}

fn run_within(program: &str, arguments: &[&str], limit: Duration) -> Outcome {
    match try_run(program, arguments, limit) {
        Ok(outcome) => outcome,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Outcome::Missing,
        // What the system says too if only a folder of the PATH can't be entered.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && find(program).is_none() => Outcome::Missing,
        Err(error) => Outcome::Broken(format!("{program} can't be run: {error}")),
    }
}

fn try_run(program: &str, arguments: &[&str], limit: Duration) -> io::Result<Outcome> {
    // Files, not pipes: a process that it left behind would keep a pipe open.
    let (mut out, mut err) = (tempfile::tempfile()?, tempfile::tempfile()?);
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(err.try_clone()?)
        .process_group(0)
        .spawn()?;
    let status = wait(&mut child, limit)?;
    Ok(match status {
        None => Outcome::Broken(format!("{program} did not end within {} s", limit.as_secs_f32())),
        Some(status) if status.success() => Outcome::Succeeded(text(&mut out)?),
        Some(status) => {
            let said = text(&mut err)?;
            Outcome::Failed(if said.is_empty() { status.to_string() } else { said })
        }
    })
}

/// Waits for the end; none if it had to be ended.
fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            // The whole group: what it started ends with it.
            if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                let _ = kill_process_group(group, Signal::KILL);
            }
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(INTERVAL);
    }
}

fn text(file: &mut File) -> io::Result<String> {
    file.rewind()?;
    let mut bytes = Vec::new();
    file.take(MAX_OUTPUT).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// Where a program is on the `PATH`.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// The command that installs a package here.
pub(super) fn install(debian: &str, other: &str) -> String {
    if find("apt-get").is_some() {
        format!("sudo apt-get install {debian}")
    } else if find("dnf").is_some() {
        format!("sudo dnf install {other}")
    } else if find("apk").is_some() {
        format!("sudo apk add {other}")
    } else if find("pacman").is_some() {
        format!("sudo pacman -S {other}")
    } else {
        format!("install {other} with this host's package manager")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_told_apart() {
        assert_eq!(run("sh", &["-c", "echo hello"]), Outcome::Succeeded("hello".into()));
        assert_eq!(run("sh", &["-c", "echo why >&2; exit 3"]), Outcome::Failed("why".into()));
        assert_eq!(run("sh", &["-c", "exit 3"]), Outcome::Failed("exit status: 3".into()));
        assert_eq!(run("no-such-program-anywhere", &[]), Outcome::Missing);
    }

    #[test]
    fn a_program_that_does_not_end_is_ended_with_all_that_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let pids = folder.path().join("pids");
        let script = format!("sleep 600 & echo $! > {}; wait", pids.display());
        let begun = Instant::now();
        let outcome = run_within("sh", &["-c", &script], Duration::from_millis(300));
        assert!(matches!(&outcome, Outcome::Broken(why) if why.contains("did not end within 0.3 s")), "{outcome:?}");
        assert!(begun.elapsed() < Duration::from_secs(20));
        let pid: i32 = std::fs::read_to_string(&pids).unwrap().trim().parse().unwrap();
        let alive = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.contains(") ") && !stat.contains(") Z")
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        while alive() {
            assert!(Instant::now() < deadline, "sleep is still running");
            std::thread::yield_now();
        }
    }
}
