//! What the engine needs of the host: memory and address space.

use std::fs;
use std::path::Path;

use rustix::process::{Resource, getrlimit};

use super::check::Check;
use crate::config::{Config, Pooling};

/// With less memory than this many calls at their limit, ordinary use gets the gateway killed.
const FEWEST_CALLS: u64 = 8;

pub(super) fn memory(config: &Config) -> Check {
    let name = "memory";
    let total = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_memory(&text));
    let group = cgroup_limit(Path::new("/sys/fs/cgroup"), &fs::read_to_string("/proc/self/cgroup").unwrap_or_default());
    let Some(available) = total.into_iter().chain(group).min() else {
        return Check::warn(name, "can't tell how much memory there is: /proc/meminfo is missing")
            .fix("mount /proc where the gateway runs");
    };
    let whose = if group == Some(available) { "the control group's limit" } else { "the host's" };
    let call = config.engine.memory_limit_bytes();
    let detail = format!(
        "{} MiB ({whose}); {} calls at their limit of {} MiB fit",
        available >> 20,
        available / call.max(1),
        call >> 20
    );
    if available < call.saturating_mul(FEWEST_CALLS) {
        return Check::warn(name, detail).fix(format!(
            "give the gateway at least {} MiB (docker run --memory, systemd MemoryMax=), or lower \
             engine.memory_limit_mib",
            (call.saturating_mul(FEWEST_CALLS)) >> 20
        ));
    }
    Check::ok(name, detail)
}

/// In bytes.
fn total_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

/// The lowest memory limit of our control group and those around it, in bytes; none if there is no limit.
fn cgroup_limit(root: &Path, own: &str) -> Option<u64> {
    let mut limits = Vec::new();
    for line in own.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
        let (base, file) = match controllers {
            "" => (root.to_path_buf(), "memory.max"),
            old if old.split(',').any(|one| one == "memory") => (root.join("memory"), "memory.limit_in_bytes"),
            _ => continue,
        };
        // In a container the path may be the host's; its own root has the limit then.
        for group in Path::new(group.trim_start_matches('/')).ancestors() {
            let limit = fs::read_to_string(base.join(group).join(file)).ok();
            limits.extend(limit.and_then(|text| text.trim().parse::<u64>().ok()));
        }
    }
    // The old kind writes a very large number for "no limit".
    limits.into_iter().filter(|limit| *limit < 1 << 60).min()
}

pub(super) fn address_space(config: &Config) -> Check {
    address_space_of(config, getrlimit(Resource::As).current)
}

fn address_space_of(config: &Config, limit: Option<u64>) -> Check {
    let name = "address space";
    let Some(limit) = limit else {
        return Check::ok(name, "not limited; instances can be pooled");
    };
    let detail = format!(
        "limited to {} MiB, while a pool of {} instances reserves several GiB for each",
        limit >> 20,
        config.engine.max_instances
    );
    match config.engine.pooling {
        Pooling::Off => Check::ok(name, format!("limited to {} MiB; pooling is off", limit >> 20)),
        Pooling::Auto => Check::warn(name, format!("pooling: off ({detail}); every call maps its own memory"))
            .fix("ulimit -v unlimited (systemd: LimitAS=infinity), or engine.pooling = \"off\" to have it so"),
        Pooling::On => Check::fail(name, detail).fix("ulimit -v unlimited (systemd: LimitAS=infinity)"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn the_lowest_limit_around_us_counts() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("a/b/memory.max", "max\n");
        write("a/memory.max", "1048576\n");
        write("memory.max", "2097152\n");
        assert_eq!(cgroup_limit(root.path(), "0::/a/b\n"), Some(1 << 20));
        assert_eq!(cgroup_limit(root.path(), "0::/host/path\n"), Some(2 << 20));
        write("memory/x/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(cgroup_limit(root.path(), "5:cpu:/x\n4:memory,other:/x\n"), None);
        assert_eq!(cgroup_limit(root.path(), ""), None);
        assert_eq!(total_memory("MemFree: 1 kB\nMemTotal:       2048 kB\n"), Some(2 << 20));
    }

    #[test]
    fn a_limited_address_space_matters_as_far_as_pooling_does() {
        let mut config = Config::default();
        let mut look = |pooling, limit| {
            config.engine.pooling = pooling;
            address_space_of(&config, limit)
        };
        assert_eq!(look(Pooling::On, None).status, Status::Ok);
        assert_eq!(look(Pooling::Off, Some(1 << 30)).status, Status::Ok);
        assert_eq!(look(Pooling::On, Some(1 << 30)).status, Status::Fail);
        let check = look(Pooling::Auto, Some(1 << 30));
        assert_eq!(check.status, Status::Warn);
        assert!(check.detail.starts_with("pooling: off (limited to 1024 MiB"), "{check:?}");
        assert!(check.fix.unwrap().starts_with("ulimit -v unlimited"));
    }

    #[test]
    fn too_little_memory_for_the_calls_is_a_warning() {
        let mut config = Config::default();
        assert!(memory(&config).detail.contains("calls at their limit of 64 MiB fit"));
        config.engine.memory_limit_mib = u32::MAX;
        assert_eq!(memory(&config).status, Status::Warn);
    }
}
