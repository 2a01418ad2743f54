//! What the shape of the file can't say: keys that depend on each other, on the host, or on what Sandgate reserves.

use std::path::{Component, Path, PathBuf};

use super::ownership::MAX_TTL_MULTIPLIER;
use super::problem::{At, KeyPath, Problems, nearest};
use super::{
    CapacityPolicy, Config, EnvironmentConfig, Isolation, LifecycleConfig, OwnershipConfig, OwnershipType,
    ProcessGrant, ProviderConfig,
};
use crate::error::{Code, Error, Result};
use crate::ids::ProviderName;
use crate::mounts::{RESERVED, SKILL_CATEGORIES, VirtualPath};
use crate::ownership::{self, LeaseTimes, RedisConnection};

pub(super) fn check(config: &Config, problems: &mut Problems) {
    check_default_provider(config, problems);
    check_folders(config, problems);
    check_environment(&config.environment, problems);
    check_skills(config, problems);
    check_mounts(config, problems);
    if let Some(ownership) = &config.ownership {
        check_ownership(ownership, problems);
    }
    for (name, provider) in &config.providers {
        check_lifecycle(&provider.lifecycle, &KeyPath::of(&["providers", name.as_str(), "lifecycle"]), problems);
        if let Some(process) = &provider.grants.process {
            let path = KeyPath::of(&["providers", name.as_str(), "grants", "process"]);
            check_process(config, process, &path, problems);
        }
    }
}

fn check_default_provider(config: &Config, problems: &mut Problems) {
    if config.providers.contains_key(&config.default_provider) {
        return;
    }
    let path = KeyPath::of(&["default_provider"]);
    let shown = problems.shown(&path, config.default_provider.as_str());
    let hint = provider_hint(config, config.default_provider.as_str());
    problems.add(&path, At::Value, format!("there is no provider {shown}"), hint);
}

/// Which provider was meant.
fn provider_hint(config: &Config, name: &str) -> String {
    let names: Vec<&str> = config.providers.keys().map(|name| name.as_str()).collect();
    match nearest(name, names.iter().copied()) {
        Some(meant) => format!("did you mean {meant:?}?"),
        None if names.is_empty() => "add a provider under [providers]".to_owned(),
        None => format!("the providers are {}", names.join(", ")),
    }
}

impl Config {
    /// A provider by its name, as a request gives it; without one, the default provider.
    ///
    /// Errors: [`Code::UnknownProvider`], with the names that there are.
    pub fn provider(&self, name: Option<&str>) -> Result<(&ProviderName, &ProviderConfig)> {
        let name = name.unwrap_or(self.default_provider.as_str());
        self.providers.iter().find(|(known, _)| known.as_str() == name).ok_or_else(|| {
            Error::new(Code::UnknownProvider, format!("there is no provider {name:?}")).hint(provider_hint(self, name))
        })
    }
}

fn check_folders(config: &Config, problems: &mut Problems) {
    let gateway = &config.gateway;
    for (name, folder) in [("state_dir", &gateway.state_dir), ("cache_dir", &gateway.cache_dir)] {
        if let Some(folder) = folder {
            check_absolute(folder, &KeyPath::of(&["gateway", name]), problems);
        }
    }
}

/// An absolute path without `..`; says whether it is one.
fn check_absolute(path: &Path, key: &KeyPath, problems: &mut Problems) -> bool {
    let shown = problems.shown(key, path);
    if !path.is_absolute() {
        problems.add(key, At::Value, format!("{shown} is not an absolute path"), "begin it with /");
        return false;
    }
    if path.components().any(|part| part == Component::ParentDir) {
        problems.add(key, At::Value, format!("{shown} holds \"..\""), "write the path without it");
        return false;
    }
    true
}

fn check_environment(environment: &EnvironmentConfig, problems: &mut Problems) {
    for (list, names) in [("allow", &environment.allow), ("deny", &environment.deny)] {
        for (index, name) in names.iter().enumerate() {
            let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '*';
            if name.is_empty() || !name.chars().all(good) || name.starts_with(|c: char| c.is_ascii_digit()) {
                let path = KeyPath::of(&["environment", list]).index(index);
                let shown = problems.shown(&path, name);
                let hint = "use A-Z, a-z, 0-9 and _, with * for any characters, such as \"LC_*\"";
                problems.add(&path, At::Value, format!("{shown} is not a variable's name"), hint);
            }
        }
    }
}

fn check_skills(config: &Config, problems: &mut Problems) {
    let skills = &config.skills;
    let path = KeyPath::of(&["skills", "container_path"]);
    let shown = problems.shown(&path, &skills.container_path);
    if let Some(place) = check_place(&skills.container_path, &path, "/mnt/skills", problems)
        && let Some(reserved) = overlap(&place, RESERVED.iter().copied())
    {
        let message = format!("{shown} overlaps {reserved}, which is Sandgate's own");
        problems.add(&path, At::Value, message, "choose another place, such as /mnt/skills");
    }
    if let Some(host) = &skills.host_path {
        check_host_directory(host, &KeyPath::of(&["skills", "host_path"]), problems);
    }
    for (index, name) in skills.disabled.iter().enumerate() {
        let parts: Vec<&str> = name.split('/').collect();
        let good = parts.iter().all(|part| !matches!(*part, "" | "." | ".."))
            && (parts.len() == 1 || SKILL_CATEGORIES.contains(&parts[0]));
        if !good {
            let path = KeyPath::of(&["skills", "disabled"]).index(index);
            let shown = problems.shown(&path, name);
            let hint = "write \"NAME\", \"CATEGORY/NAME\" or \"integrations/PROVIDER/NAME\", with the category public, \
                        custom, legacy or integrations";
            problems.add(&path, At::Value, format!("{shown} names no skill"), hint);
        }
    }
}

/// A path as sandboxes see it.
fn check_place(text: &str, key: &KeyPath, example: &str, problems: &mut Problems) -> Option<VirtualPath> {
    let message = match VirtualPath::new(text) {
        Ok(place) => return Some(place),
        // Its own message quotes the value.
        Err(_) if problems.references.contains_key(key) => {
            format!("{} is not a usable path", problems.shown(key, text))
        }
        Err(error) => error.message().to_owned(),
    };
    problems.add(key, At::Value, message, format!("write an absolute path, such as {example}"));
    None
}

/// A directory of the host that has to be there; says whether it is.
fn check_host_directory(path: &Path, key: &KeyPath, problems: &mut Problems) -> bool {
    if !check_absolute(path, key, problems) {
        return false;
    }
    let shown = problems.shown(key, path);
    match path.metadata() {
        Ok(found) if found.is_dir() => return true,
        Ok(_) => problems.add(key, At::Value, format!("{shown} is not a directory"), "name a directory"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let hint = "make it (mkdir -p), or correct the path; if the gateway runs in a container, mount the \
                        directory into that container at this path";
            problems.add(key, At::Value, format!("there is no directory {shown} on this host"), hint);
        }
        Err(error) => {
            let hint = "let the gateway's user enter the directories that lead there";
            problems.add(key, At::Value, format!("can't look at {shown}: {error}"), hint);
        }
    }
    false
}

fn check_mounts(config: &Config, problems: &mut Problems) {
    let skills: Vec<String> = VirtualPath::new(&config.skills.container_path)
        .map(|root| {
            SKILL_CATEGORIES.iter().map(|name| format!("{}/{name}", root.as_str().trim_end_matches('/'))).collect()
        })
        .unwrap_or_default();
    let mut taken: Vec<(VirtualPath, usize)> = Vec::new();
    for (index, mount) in config.mounts.iter().enumerate() {
        let base = KeyPath::of(&["mounts"]).index(index);
        let key = base.key("host_path");
        if check_host_directory(&mount.host_path, &key, problems) {
            check_tenants_apart(config, &mount.host_path, &key, problems);
        }

        let key = base.key("container_path");
        let shown = problems.shown(&key, &mount.container_path);
        let Some(place) = check_place(&mount.container_path, &key, "/mnt/data", problems) else { continue };
        let reserved = RESERVED.iter().copied().chain(skills.iter().map(String::as_str));
        if let Some(reserved) = overlap(&place, reserved) {
            let message = format!("{shown} overlaps {reserved}, which is Sandgate's own");
            problems.add(&key, At::Value, message, "choose another place, such as /mnt/data");
        }
        if let Some((_, first)) = taken.iter().find(|(other, _)| *other == place) {
            let message = format!("mounts[{first}] is at {shown} too");
            problems.add(&key, At::Value, message, "remove one of them, or choose another place");
        }
        taken.push((place, index));
    }
}

/// The reserved place that a path is at, below or above. One above would hide it.
fn overlap<'a>(place: &VirtualPath, mut reserved: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    reserved.find(|reserved| {
        VirtualPath::new(reserved).is_ok_and(|own| place.below(&own).is_some() || own.below(place).is_some())
    })
}

/// A directory that every sandbox sees must not show the files of all users.
fn check_tenants_apart(config: &Config, path: &Path, key: &KeyPath, problems: &mut Problems) {
    let state = config.state_dir();
    let (state, real) = (real(&state), real(path));
    if real.starts_with(&state) || state.starts_with(&real) {
        let shown = problems.shown(key, path);
        let message = format!("{shown} overlaps gateway.state_dir, where the files of all users are");
        problems.add(key, At::Value, message, "name a directory that neither holds it nor lies in it");
    }
}

/// A path without links, as far as it exists.
fn real(path: &Path) -> PathBuf {
    for ancestor in path.ancestors() {
        if let (Ok(found), Ok(rest)) = (ancestor.canonicalize(), path.strip_prefix(ancestor)) {
            return found.join(rest);
        }
    }
    path.to_path_buf()
}

fn check_process(config: &Config, process: &ProcessGrant, path: &KeyPath, problems: &mut Problems) {
    for (index, program) in process.programs.iter().enumerate() {
        let key = path.key("programs").index(index);
        if program.is_empty() || program.contains(['/', '\0']) {
            let shown = problems.shown(&key, program);
            let hint = "write its name without a path, such as \"bash\"; it is looked up on the PATH";
            problems.add(&key, At::Value, format!("{shown} is not a program"), hint);
        }
    }
    if process.isolation == Isolation::None {
        if !process.allow_unconfined_commands_on_this_host {
            let message = "\"none\" lets agents do whatever the gateway's user can do on this host";
            let hint = "use \"namespace\", or set allow_unconfined_commands_on_this_host = true beside it";
            problems.add(&path.key("isolation"), At::Value, message, hint);
        }
        if !process.network {
            let message = "without isolation, commands reach the network whatever this says";
            problems.add(
                &path.key("network"),
                At::Value,
                message,
                "write network = true, or isolation = \"namespace\"",
            );
        }
    }
    if let Some(most) = process.max_timeout_seconds
        && process.timeout_seconds > most
    {
        let message = format!("{} is more than max_timeout_seconds, which is {most}", process.timeout_seconds);
        problems.add(&path.key("timeout_seconds"), At::Value, message, "lower the one or raise the other");
    }
    for (index, system) in process.system_paths.iter().enumerate() {
        let key = path.key("system_paths").index(index);
        if check_absolute(system, &key, problems) && system.exists() {
            check_tenants_apart(config, system, &key, problems);
        }
    }
}

fn check_ownership(ownership: &OwnershipConfig, problems: &mut Problems) {
    let key = |name| KeyPath::of(&["ownership", name]);
    match ownership.kind {
        OwnershipType::Redis => check_redis(ownership, problems),
        OwnershipType::Memory => {
            let given = [
                ("redis_url", ownership.redis_url.is_some()),
                ("redis_ca_file", ownership.redis_ca_file.is_some()),
                ("key_prefix", ownership.key_prefix.is_some()),
            ];
            for (name, _) in given.into_iter().filter(|(_, given)| *given) {
                let message = "with type = \"memory\" nothing is kept in Redis";
                problems.add(&key(name), At::Key, message, "write type = \"redis\", or remove this key");
            }
        }
    }
    // An interval of 0 is out of range, which is said already.
    let interval = ownership.renewal_interval().max(std::time::Duration::from_secs(1));
    let path = key("ttl_multiplier");
    match LeaseTimes::new(interval, ownership.ttl_multiplier) {
        Err(error) => problems.add(&path, At::Value, error.message(), error.hint_text().unwrap_or_default()),
        Ok(_) if ownership.ttl_multiplier > MAX_TTL_MULTIPLIER => {
            let message = format!("{} is out of range", ownership.ttl_multiplier);
            problems.add(&path, At::Value, message, format!("use 2 to {MAX_TTL_MULTIPLIER}"));
        }
        Ok(_) => {}
    }
}

fn check_redis(config: &OwnershipConfig, problems: &mut Problems) {
    let key = |name| KeyPath::of(&["ownership", name]);
    let url = config.redis_url.as_ref().map(super::Secret::expose);
    let mut good_url = true;
    if let Some(Err(error)) = url.map(|url| RedisConnection::open(url, None)) {
        good_url = false;
        // Its own message shows a part of the URL.
        let hint = error.hint_text().unwrap_or_default();
        problems.add(&key("redis_url"), At::Value, "this is not the URL of a Redis deployment", hint);
    }
    if let Some(file) = &config.redis_ca_file
        && check_absolute(file, &key("redis_ca_file"), problems)
    {
        let path = key("redis_ca_file");
        let shown = problems.shown(&path, file);
        // With a URL for which an authority makes sense, so that only the file can be wrong.
        if let Err(error) = RedisConnection::open("rediss://localhost", Some(file)) {
            let why = if problems.references.contains_key(&path) { "it can't be read as PEM" } else { error.message() };
            let message = format!("{shown} holds no usable certificate authority: {why}");
            problems.add(&path, At::Value, message, "name a PEM file that the gateway's user can read");
        } else if url.is_some_and(|url| good_url && RedisConnection::open(url, Some(file)).is_err()) {
            let hint = "use a rediss:// or rediss+cluster:// URL, or remove it; for Sentinel, add the authority to those \
                        that this host trusts";
            problems.add(&path, At::Key, "a certificate authority does not go with this redis_url", hint);
        }
    }
    if let Some(prefix) = &config.key_prefix {
        let section =
            ownership::OwnershipConfig { key_prefix: Some(prefix.clone()), ..ownership::OwnershipConfig::default() };
        if let Err(error) = ownership::resolve(Some(&section), None, &|_| None) {
            let path = key("key_prefix");
            let message = format!("{} is not usable", problems.shown(&path, prefix));
            problems.add(&path, At::Value, message, error.hint_text().unwrap_or_default());
        }
    }
}

/// Keys of one policy that another would not look at.
fn check_lifecycle(lifecycle: &LifecycleConfig, path: &KeyPath, problems: &mut Problems) {
    let policy = lifecycle.capacity_policy;
    if policy == Some(CapacityPolicy::Burst) && lifecycle.burst_limit.is_none() {
        let message = "\"burst\" needs burst_limit";
        problems.add(&path.key("capacity_policy"), At::Value, message, "add burst_limit = 2, or use \"reject\"");
    }
    for (name, given, belongs) in [
        ("burst_limit", lifecycle.burst_limit.is_some(), CapacityPolicy::Burst),
        ("acquire_timeout_seconds", lifecycle.acquire_timeout_seconds.is_some(), CapacityPolicy::Wait),
    ] {
        if given && policy != Some(belongs) {
            let (message, hint) = match belongs {
                CapacityPolicy::Burst => ("only the policy \"burst\" looks at it", "capacity_policy = \"burst\""),
                _ => ("only the policy \"wait\" looks at it", "capacity_policy = \"wait\""),
            };
            problems.add(&path.key(name), At::Key, message, format!("remove it, or write {hint}"));
        }
    }
}
