//! From the configuration's keys to what ownership and lifecycle take.

use std::time::Duration;

use crate::config::{CapacityPolicy as Policy, Config, LifecycleConfig, ProviderConfig, Reset};
use crate::error::{Error, Result};
use crate::lifecycle::{CapacityPolicy, Deadlines, Features, ResetPolicy, Settings};
use crate::ownership::{LeaseTimes, Resolved};

/// How many sandboxes of an ephemeral provider there may be: they cost a directory each, so as many as in the system that
/// Sandgate takes over from.
const EPHEMERAL_REPLICAS: u32 = 256;

/// How many sandboxes of any other provider there may be: each is a container or a machine.
const REPLICAS: u32 = 3;

/// Where leases are kept.
pub(super) fn ownership(config: &Config, env: &dyn Fn(&str) -> Option<String>) -> Result<Resolved> {
    config.lease_store(env)
}

/// How one provider's sandboxes are kept.
pub(super) fn lifecycle_settings(
    provider: &ProviderConfig,
    features: &Features,
    lease: LeaseTimes,
) -> Result<Settings> {
    let keys = &provider.lifecycle;
    let defaults = Settings::default();
    // What costs nothing to make needs no keeping, but what its commands left running is kept until someone else needs the place.
    let idle_timeout = if features.ephemeral { Duration::ZERO } else { defaults.idle_timeout };
    let seconds = |given: Option<u64>, default| given.map_or(default, Duration::from_secs);
    let settings = Settings {
        lease,
        idle_timeout: seconds(keys.idle_timeout_seconds, idle_timeout),
        check_interval: seconds(keys.check_interval_seconds, defaults.check_interval),
        capacity: capacity(keys, features.ephemeral)?,
        deadlines: deadlines(keys),
        reset: match keys.reset.unwrap_or(Reset::Nothing) {
            Reset::Nothing => ResetPolicy::Nothing,
            Reset::Park => ResetPolicy::Park,
            Reset::Destroy => ResetPolicy::DestroyAll,
        },
        ..defaults
    };
    settings.check()?;
    Ok(settings)
}

/// How long each step at a backend may take.
pub(super) fn deadlines(keys: &LifecycleConfig) -> Deadlines {
    let defaults = Deadlines::default();
    let seconds = |given: Option<u64>, default| given.map_or(default, Duration::from_secs);
    Deadlines {
        create: seconds(keys.create_timeout_seconds, defaults.create),
        stop: seconds(keys.stop_timeout_seconds, defaults.stop),
        ..defaults
    }
}

fn capacity(keys: &LifecycleConfig, ephemeral: bool) -> Result<CapacityPolicy> {
    let limit = keys.replicas.unwrap_or(if ephemeral { EPHEMERAL_REPLICAS } else { REPLICAS });
    let policy = keys.capacity_policy.unwrap_or(if ephemeral { Policy::Reject } else { Policy::Soft });
    Ok(match policy {
        Policy::Soft => CapacityPolicy::Soft { replicas: limit },
        Policy::Wait => CapacityPolicy::Wait { limit, timeout: keys.acquire_timeout() },
        Policy::Reject => CapacityPolicy::Reject { limit },
        Policy::Burst => {
            let extra = keys.burst_limit.ok_or_else(|| {
                Error::config("the capacity policy \"burst\" needs burst_limit")
                    .hint("add burst_limit = 2, or use \"reject\"")
            })?;
            CapacityPolicy::Burst { limit, extra }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{OwnershipConfig, OwnershipType};

    fn settings(lifecycle: LifecycleConfig, ephemeral: bool) -> Result<Settings> {
        let provider = ProviderConfig { lifecycle, ..ProviderConfig::builtin_local() };
        let features = Features { ephemeral, ..Features::default() };
        lifecycle_settings(&provider, &features, LeaseTimes::new(Duration::from_secs(7), 3.0).unwrap())
    }

    #[test]
    fn what_is_absent_has_the_documented_default() {
        let durable = settings(LifecycleConfig::default(), false).unwrap();
        assert_eq!(durable.idle_timeout, Duration::from_secs(600));
        assert_eq!(durable.check_interval, Duration::from_secs(60));
        assert_eq!(durable.capacity, CapacityPolicy::Soft { replicas: 3 });
        assert_eq!(durable.deadlines.stop, Duration::from_secs(120));
        assert_eq!(durable.deadlines.create, Duration::from_secs(600));
        assert_eq!(durable.lease.ttl(), Duration::from_secs(21));
        let ephemeral = settings(LifecycleConfig::default(), true).unwrap();
        assert_eq!(ephemeral.idle_timeout, Duration::ZERO);
        assert_eq!(ephemeral.capacity, CapacityPolicy::Reject { limit: 256 });
        assert_eq!(ephemeral.deadlines, durable.deadlines);
        assert_eq!(LifecycleConfig::default().shutdown_grace(), Duration::from_secs(10));
    }

    #[test]
    fn what_is_given_counts_for_every_provider() {
        let keys = LifecycleConfig {
            idle_timeout_seconds: Some(0),
            check_interval_seconds: Some(5),
            replicas: Some(4),
            capacity_policy: Some(Policy::Wait),
            acquire_timeout_seconds: Some(9),
            stop_timeout_seconds: Some(11),
            create_timeout_seconds: Some(12),
            reset: Some(Reset::Park),
            ..LifecycleConfig::default()
        };
        for ephemeral in [false, true] {
            let found = settings(keys.clone(), ephemeral).unwrap();
            assert_eq!((found.idle_timeout, found.check_interval), (Duration::ZERO, Duration::from_secs(5)));
            assert_eq!(found.capacity, CapacityPolicy::Wait { limit: 4, timeout: Duration::from_secs(9) });
            assert_eq!(found.deadlines.stop, Duration::from_secs(11));
            assert_eq!(found.deadlines.create, Duration::from_secs(12));
            assert_eq!(found.deadlines.probe, Deadlines::default().probe);
            assert_eq!(found.reset, ResetPolicy::Park);
        }
    }

    #[test]
    fn policies_take_what_belongs_to_them() {
        let capacity = |capacity_policy, burst_limit| {
            let keys = LifecycleConfig { capacity_policy, burst_limit, ..LifecycleConfig::default() };
            settings(keys, false).map(|settings| settings.capacity)
        };
        let minute = Duration::from_secs(60);
        assert_eq!(capacity(Some(Policy::Wait), None), Ok(CapacityPolicy::Wait { limit: 3, timeout: minute }));
        assert_eq!(capacity(Some(Policy::Reject), None), Ok(CapacityPolicy::Reject { limit: 3 }));
        assert_eq!(capacity(Some(Policy::Burst), Some(2)), Ok(CapacityPolicy::Burst { limit: 3, extra: 2 }));
        assert!(capacity(Some(Policy::Burst), None).unwrap_err().to_string().contains("burst_limit"));
        let none = LifecycleConfig { replicas: Some(0), ..LifecycleConfig::default() };
        assert!(settings(none, true).is_err(), "made in code, and never checked");
    }

    #[test]
    fn the_store_is_that_of_the_section_or_of_the_environment() {
        let env = |name: &str| (name == "DEER_FLOW_SANDBOX_OWNERSHIP_REDIS_URL").then(|| "redis://there".to_owned());
        let mut config = Config::default();
        assert_eq!(ownership(&config, &|_| None).unwrap().redis_url, None);
        assert_eq!(ownership(&config, &env).unwrap().redis_url.as_deref(), Some("redis://there"));
        config.ownership = Some(OwnershipConfig::new(OwnershipType::Memory));
        assert_eq!(ownership(&config, &env).unwrap().redis_url, None);
    }
}
