//! The file to begin with.

/// A starter file: every key, explained, with its default. As it is, it means the same as the built-in configuration.
pub fn init() -> &'static str {
    include_str!("starter.toml")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::load::{fixed, parse_with};
    use super::super::{CapacityPolicy, Config, LifecycleConfig, OwnershipConfig, OwnershipType, Reset, schema};
    use super::*;
    use crate::ids::ProviderName;
    use crate::ownership::DEFAULT_KEY_PREFIX;

    /// Turns every `#key = …` and `#[table]` into a line that counts; prose is `# …`.
    fn uncommented() -> (String, tempfile::NamedTempFile) {
        let setting = |line: &&str| {
            let Some(rest) = line.strip_prefix('#') else { return false };
            // The lines of a list are indented.
            !rest.is_empty() && (!rest.starts_with(' ') || rest.starts_with("    "))
        };
        let text: String = init()
            .lines()
            .map(|line| if setting(&line) { &line[1..] } else { line })
            .map(|line| format!("{line}\n"))
            .collect();
        // The one file that an example names and no machine has.
        let authority = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(authority.path(), include_str!("test-ca.pem")).unwrap();
        let example = "/etc/sandgate/redis-ca.pem";
        assert!(text.contains(example));
        (text.replace(example, authority.path().to_str().unwrap()), authority)
    }

    fn read(text: &str) -> Config {
        parse_with(text, Some(Path::new("sandgate.toml")), &fixed(&[("HOME", "/h")])).unwrap().config
    }

    fn default() -> Config {
        let mut config = Config::default();
        super::super::dirs::fill(&mut config, &fixed(&[("HOME", "/h")]));
        config
    }

    #[test]
    fn it_means_the_same_as_no_file() {
        assert_eq!(read(init()), default());
    }

    #[test]
    fn every_commented_line_is_valid_and_shows_the_default() {
        let (text, authority) = uncommented();
        assert!(text.contains("\nqueue = 1024\n"), "{text}");
        let mut config = read(&text);
        // What is an example, since the default is "none".
        let (local, plain) = (&mut config.providers[&ProviderName::local()], default());
        assert!(local.grants.wasi.take().is_some() && local.sha256.take().is_some() && !local.settings.is_empty());
        local.settings = Default::default();
        let lifecycle = std::mem::take(&mut local.lifecycle);
        let defaults = LifecycleConfig {
            idle_timeout_seconds: Some(0),
            check_interval_seconds: Some(60),
            replicas: Some(256),
            capacity_policy: Some(CapacityPolicy::Reject),
            burst_limit: None,
            acquire_timeout_seconds: None,
            stop_timeout_seconds: Some(120),
            create_timeout_seconds: Some(600),
            shutdown_grace_seconds: Some(10),
            reset: Some(Reset::Nothing),
        };
        assert_eq!(lifecycle, defaults);
        let process = local.grants.process.as_mut().unwrap();
        assert!(process.max_timeout_seconds.take().is_some() && process.output_limit.take().is_some());
        assert!(!std::mem::take(&mut process.system_paths).is_empty());
        let limits = std::mem::take(&mut process.limits);
        assert!(limits.memory_mib.is_some() && limits.cpu_seconds.is_some() && limits.processes.is_some());
        assert!(limits.file_size_mib.is_some() && limits.open_files.is_some());
        let mut example = |name: &str| {
            let name: ProviderName = name.parse().unwrap();
            config.providers.shift_remove(&name).unwrap().lifecycle
        };
        let (waiting, bursting) = (example("waiting"), example("bursting"));
        assert_eq!(waiting.acquire_timeout(), LifecycleConfig::default().acquire_timeout());
        assert_eq!((waiting.idle_timeout_seconds, waiting.replicas), (Some(600), Some(3)));
        assert!(bursting.burst_limit.is_some());
        let mut ownership = config.ownership.take().unwrap();
        assert!(ownership.redis_url.take().is_some());
        assert_eq!(ownership.redis_ca_file.take().as_deref(), Some(authority.path()));
        assert_eq!(ownership.key_prefix.take().as_deref(), Some(DEFAULT_KEY_PREFIX));
        assert_eq!(ownership, OwnershipConfig::new(OwnershipType::Redis));
        assert_eq!(config.mounts.len(), 1);
        config.mounts.clear();
        assert!(config.skills.host_path.take().is_some());
        assert_eq!(config.gateway.state_dir.as_deref(), Some(Path::new("/var/lib/sandgate")));
        config.gateway = plain.gateway.clone();
        assert_eq!(config, plain);
    }

    #[test]
    fn every_key_of_the_schema_is_in_it() {
        let (text, _authority) = uncommented();
        let missing: Vec<String> = schema::keys()
            .into_iter()
            .filter(|(_, key)| {
                let own_line = |line: &str| {
                    line.strip_prefix(key.as_str()).is_some_and(|rest| rest.starts_with(" = "))
                        || line
                            .strip_prefix('[')
                            .is_some_and(|table| table.trim_matches(['[', ']']).split('.').any(|part| part == key))
                };
                !text.lines().any(own_line)
            })
            .map(|(table, key)| format!("{table}.{key}"))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert!(schema::keys().len() > 40);
    }
}
