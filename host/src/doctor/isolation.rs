//! What isolating commands needs: openat2, bubblewrap, user namespaces.

use std::fs;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use super::check::Check;
use super::command::{Outcome, find, install, run};
use crate::config::{Config, Isolation};

/// Whether any provider runs commands in namespaces.
fn needed(config: &Config) -> bool {
    let processes = config.providers.values().filter_map(|provider| provider.grants.process.as_ref());
    processes.into_iter().any(|process| process.isolation == Isolation::Namespace)
}

const NOT_NEEDED: &str = "no provider runs commands in namespaces";

/// File operations stay inside a sandbox's files by a system call of Linux 5.6.
pub(super) fn kernel(_: &Config) -> Check {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    match openat2(CWD, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::BENEATH) {
        Ok(_) => Check::ok("kernel", format!("Linux {release}, openat2 works")),
        Err(Errno::NOSYS) => Check::fail("kernel", format!("Linux {release} has no openat2"))
            .fix("run the gateway on Linux 5.6 or newer"),
        Err(error) => Check::fail("kernel", format!("Linux {release}, openat2 is refused: {error}")).fix(
            "allow openat2 in the seccomp profile of the gateway's container (docker run --security-opt seccomp=FILE)",
        ),
    }
}

pub(super) fn bubblewrap(config: &Config) -> Check {
    let name = "bubblewrap";
    match run("bwrap", &["--version"]) {
        Outcome::Succeeded(version) => Check::ok(name, version),
        Outcome::Missing if !needed(config) => Check::skip(name, format!("not installed; {NOT_NEEDED}")),
        Outcome::Missing => Check::fail(name, "bwrap is not on the PATH, and commands are to run in namespaces")
            .fix(install("bubblewrap", "bubblewrap")),
        Outcome::Broken(why) | Outcome::Failed(why) => Check::fail(name, why).fix(install("bubblewrap", "bubblewrap")),
    }
}

/// What starts commands apart from a terminal and within limits.
pub(super) fn util_linux(config: &Config) -> Check {
    let name = "util-linux";
    if config.providers.values().all(|provider| provider.grants.process.is_none()) {
        return Check::skip(name, "no provider runs commands");
    }
    let missing: Vec<&str> = ["setsid", "prlimit"].into_iter().filter(|program| find(program).is_none()).collect();
    if missing.is_empty() {
        return Check::ok(name, "setsid and prlimit are there");
    }
    let detail =
        format!("{} not on the PATH: commands with limits, or on a terminal, may not start", missing.join(", "));
    Check::warn(name, detail).fix(install("util-linux", "util-linux"))
}

pub(super) fn user_namespaces(config: &Config) -> Check {
    let name = "user namespaces";
    if !needed(config) {
        return Check::skip(name, NOT_NEEDED);
    }
    match run("bwrap", &["--unshare-user", "--ro-bind", "/", "/", "true"]) {
        Outcome::Succeeded(_) => Check::ok(name, "bwrap can make one"),
        Outcome::Missing => Check::skip(name, "can't be tried without bubblewrap"),
        Outcome::Broken(why) | Outcome::Failed(why) => Check::fail(name, format!("bwrap can't make one: {why}"))
            .fix(namespace_fix(&|path| fs::read_to_string(path).ok())),
    }
}

/// The switch that is off, if one is; what a container needs otherwise.
fn namespace_fix(read: &dyn Fn(&str) -> Option<String>) -> String {
    let value = |path: &str| read(path).map(|text| text.trim().to_owned());
    let is = |path: &str, wanted: &str| value(path).as_deref() == Some(wanted);
    if is("/proc/sys/user/max_user_namespaces", "0") {
        "sudo sysctl -w user.max_user_namespaces=15000".to_owned()
    } else if is("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        "sudo sysctl -w kernel.unprivileged_userns_clone=1".to_owned()
    } else if is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
        "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or give bwrap an AppArmor profile that allows \
         userns"
            .to_owned()
    } else {
        "if the gateway runs in a container: docker run --security-opt seccomp=unconfined --security-opt \
         apparmor=unconfined --security-opt systempaths=unconfined"
            .to_owned()
    }
}

/// All that a command gets, which needs more than a user namespace alone.
pub(super) fn isolation(config: &Config) -> Check {
    let name = "isolation";
    if !needed(config) {
        return Check::skip(name, NOT_NEEDED);
    }
    let arguments = [
        "--unshare-all",
        "--die-with-parent",
        "--ro-bind",
        "/",
        "/",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--tmpfs",
        "/tmp",
        "true",
    ];
    match run("bwrap", &arguments) {
        Outcome::Succeeded(_) => Check::ok(name, "a command can have its own processes, network, /proc, /dev and /tmp"),
        Outcome::Missing => Check::skip(name, "can't be tried without bubblewrap"),
        Outcome::Broken(why) | Outcome::Failed(why) => Check::fail(name, format!("bwrap fails: {why}")).fix(
            "if the gateway runs in a container, give it a /proc without masks: docker run --security-opt \
             systempaths=unconfined --security-opt seccomp=unconfined --security-opt apparmor=unconfined",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn the_fix_names_the_switch_that_is_off() {
        let fix = |off: &'static str, value: &'static str| {
            namespace_fix(&move |path| (path == off).then(|| value.to_owned()))
        };
        assert_eq!(fix("/proc/sys/user/max_user_namespaces", "0\n"), "sudo sysctl -w user.max_user_namespaces=15000");
        assert!(fix("/proc/sys/kernel/unprivileged_userns_clone", "0").contains("unprivileged_userns_clone=1"));
        assert!(fix("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1").contains("AppArmor"));
        assert!(fix("none", "0").contains("docker run"));
    }

    #[test]
    fn without_commands_in_namespaces_nothing_is_asked_for() {
        let mut config = Config::default();
        assert!(needed(&config));
        for provider in config.providers.values_mut() {
            provider.grants.process = None;
        }
        assert_eq!(user_namespaces(&config).status, Status::Skip);
        assert_eq!(isolation(&config).status, Status::Skip);
        assert_ne!(bubblewrap(&config).status, Status::Fail);
    }

    #[test]
    fn the_kernel_of_any_host_that_runs_these_tests_will_do() {
        let check = kernel(&Config::default());
        assert_eq!(check.status, Status::Ok, "{check:?}");
        assert!(check.detail.starts_with("Linux "), "{check:?}");
    }
}
