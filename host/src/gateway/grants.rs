//! From the configuration's keys to what the engine and the capabilities take.

use std::path::Path;
use std::sync::Arc;

use super::policy::deadlines;
use crate::capability::process::{Isolation, ProcessGrant, Processes, ResourceLimits};
use crate::capability::workspace::Limits;
use crate::config::{self, Config, EnvironmentConfig, ProviderConfig};
use crate::engine::{EngineOptions, Granted, Pooling};
use crate::env_policy::{EnvMode, EnvPolicy};
use crate::error::{Error, Result};
use crate::ids::ProviderName;
use crate::mounts::{Access, Layout, Mount, Skills, VirtualPath};

/// How the engine runs guests.
pub(super) fn engine_options(config: &Config) -> Result<EngineOptions> {
    let engine = &config.engine;
    let memory_limit = usize::try_from(engine.memory_limit_bytes())
        .map_err(|_| Error::config("engine.memory_limit_mib is more than this machine can address"))?;
    Ok(EngineOptions {
        memory_limit,
        table_elements: engine.table_elements as usize,
        cpu_limit: engine.cpu_time(),
        call_timeout: engine.call_timeout(),
        max_instances: engine.max_instances as usize,
        queue: engine.queue as usize,
        queue_timeout: engine.queue_timeout(),
        idle_instances: engine.idle_instances as usize,
        stack: engine.stack_kib as usize * 1024,
        pooling: match engine.pooling {
            config::Pooling::Auto => Pooling::Auto,
            config::Pooling::On => Pooling::On,
            config::Pooling::Off => Pooling::Off,
        },
        cache_dir: Some(config.cache_dir().join("components")),
    })
}

/// The directories of sandboxes.
pub(super) fn layout(config: &Config) -> Result<Layout> {
    let mounts = config.mounts.iter().map(|mount| {
        let access = if mount.read_only { Access::ReadOnly } else { Access::ReadWrite };
        Ok(Mount { at: VirtualPath::new(&mount.container_path)?, host: mount.host_path.clone(), access })
    });
    let state = config.state_dir();
    let skills = match &config.skills.host_path {
        Some(source) => {
            let at = VirtualPath::new(&config.skills.container_path)?;
            Some(Skills::new(source.clone(), at, state.clone(), &config.skills.disabled)?)
        }
        None => None,
    };
    Ok(Layout::new(state, mounts.collect::<Result<_>>()?, skills))
}

/// Which variables of our own environment commands inherit.
pub(super) fn env_policy(config: &EnvironmentConfig) -> EnvPolicy {
    let mode = match config.mode {
        config::EnvironmentMode::DenyList => EnvMode::DenyList,
        config::EnvironmentMode::AllowList => EnvMode::AllowList,
    };
    EnvPolicy::new(mode, &config.allow, &config.deny)
}

/// What a provider may use.
pub(super) fn granted(
    name: &ProviderName,
    provider: &ProviderConfig,
    policy: &Arc<EnvPolicy>,
    state: &Path,
) -> Granted {
    let deadlines = deadlines(&provider.lifecycle);
    let grants = &provider.grants;
    let processes = |grant| Processes::new(name.clone(), process_grant(grant), Arc::clone(policy), state.join("etc"));
    Granted {
        provider: name.clone(),
        process: grants.process.as_ref().map(processes),
        workspace: grants.workspace.as_ref().map(|grant| Limits { max_write: Some(grant.max_write_bytes()) }),
        wasi: grants.wasi.is_some(),
        settings: provider.settings.expose_json(),
        slow_call_timeout: deadlines.create.max(deadlines.stop),
    }
}

/// Whether the provider's commands run in namespaces, where virtual paths are real ones.
pub(super) fn in_namespaces(provider: &ProviderConfig) -> bool {
    provider.grants.process.as_ref().is_none_or(|grant| grant.isolation == config::Isolation::Namespace)
}

fn process_grant(grant: &config::ProcessGrant) -> ProcessGrant {
    ProcessGrant {
        programs: grant.programs.clone(),
        isolation: match grant.isolation {
            config::Isolation::Namespace => Isolation::Namespace,
            config::Isolation::None => Isolation::None,
        },
        network: grant.network,
        default_timeout: Some(grant.timeout()),
        max_timeout: grant.max_timeout(),
        output_limit: grant.output_limit,
        limits: ResourceLimits {
            memory_mib: grant.limits.memory_mib,
            cpu_seconds: grant.limits.cpu_seconds,
            processes: grant.limits.processes,
            file_size_mib: grant.limits.file_size_mib,
            open_files: grant.limits.open_files,
        },
        system_paths: grant.system_paths.clone(),
        bwrap: None,
    }
}
