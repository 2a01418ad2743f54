//! What isolating commands needs: openat2, bubblewrap, user namespaces.

use std::fs;
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use super::check::{Check, DEADLINE};
use super::command::{Outcome, find, install, run};
use crate::capability::process::{ProcessGrant, Processes};
use crate::config::{Config, Isolation};
use crate::env_policy::EnvPolicy;

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

/// All that a command gets: made as commands have it, by the same code.
pub(super) fn isolation(config: &Config) -> Check {
    let name = "isolation";
    if !needed(config) {
        return Check::skip(name, NOT_NEEDED);
    }
    if matches!(run("bwrap", &["--version"]), Outcome::Missing) {
        return Check::skip(name, "can't be tried without bubblewrap");
    }
    match try_isolation(config) {
        Ok(()) => {
            Check::ok(name, "a command can have its own processes, /proc, /dev and /tmp, and no more than its network")
        }
        Err(why) => Check::fail(name, why).fix(
            "if the gateway runs in a container, give it a /proc without masks: docker run --security-opt \
             systempaths=unconfined --security-opt seccomp=unconfined --security-opt apparmor=unconfined",
        ),
    }
}

/// Starts one command in what each provider's commands would be in.
fn try_isolation(config: &Config) -> Result<(), String> {
    // What commands see of the system is put together there, and a check leaves nothing behind.
    let folder = tempfile::tempdir().map_err(|error| format!("there is no room for a trial: {error}"))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("no trial can be started: {error}"))?;
    for (name, provider) in &config.providers {
        let Some(process) = provider.grants.process.as_ref().filter(|one| one.isolation == Isolation::Namespace) else {
            continue;
        };
        let grant = ProcessGrant {
            network: process.network,
            system_paths: process.system_paths.clone(),
            ..ProcessGrant::default()
        };
        let policy = Arc::new(EnvPolicy::default());
        let processes = Processes::new(name.clone(), grant, policy, folder.path().to_owned());
        let tried = runtime.block_on(async { tokio::time::timeout(DEADLINE / 2, processes.check_isolation()).await });
        match tried {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(format!("for provider {name}: {}", error.message())),
            Err(_) => {
                return Err(format!("for provider {name}: bwrap did not end within {} s", (DEADLINE / 2).as_secs()));
            }
        }
    }
    Ok(())
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
    fn isolation_is_tried_as_commands_have_it() {
        assert_eq!(isolation(&Config::default()).status, Status::Ok);
        // In commands' small /etc there is no place for another file: only a trial of this very configuration fails.
        let own = ["/etc/hostname", "/etc/fstab", "/etc/login.defs"].into_iter().find(|file| fs::exists(file).unwrap());
        let mut config = Config::default();
        for provider in config.providers.values_mut() {
            provider.grants.process.as_mut().unwrap().system_paths = vec![own.unwrap().into()];
        }
        let check = isolation(&config);
        assert_eq!(check.status, Status::Fail, "{check:?}");
        assert!(check.detail.contains("provider local") && check.detail.contains("/etc"), "{check:?}");
    }

    #[test]
    fn the_kernel_of_any_host_that_runs_these_tests_will_do() {
        let check = kernel(&Config::default());
        assert_eq!(check.status, Status::Ok, "{check:?}");
        assert!(check.detail.starts_with("Linux "), "{check:?}");
    }
}
