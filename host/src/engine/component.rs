//! From bytes to something that can be called: compile, hold the imports against the grants, link.

use std::collections::BTreeSet;
use std::sync::Arc;

use wasmtime::Engine;
use wasmtime::component::{Component, Linker};

use super::bindings::{ExportsPre, log, process, settings, types, workspace};
use super::runtime::Runtime;
use super::sizes;
use super::state::{CallState, Capabilities, Granted};
use crate::error::{Code, Error, Result};
use crate::ids::ProviderName;
use crate::trust;

/// The package that a provider exports, and the version of it that this host speaks.
const WORLD: (&str, &str) = ("sandgate:provider", "0.1.0");
/// What must be exported.
const EXPORTS: [&str; 2] = ["lifecycle", "sandbox"];

/// What one import of a component asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// Types, settings, logging: every provider has them.
    Always,
    /// `grants.<key>` of the provider.
    Grant(&'static str),
    /// Nothing that this gateway knows.
    Unknown,
}

/// What an import asks for, in the words of the configuration.
pub fn ask(import: &str) -> Ask {
    let (name, _version) = import.split_once('@').unwrap_or((import, ""));
    match name {
        "sandgate:capability/types" | "sandgate:capability/settings" | "sandgate:capability/log" => Ask::Always,
        "sandgate:capability/process" => Ask::Grant("process"),
        "sandgate:capability/workspace" => Ask::Grant("workspace"),
        wasi if wasi.starts_with("wasi:http/") => Ask::Unknown,
        wasi if ["wasi:cli/", "wasi:clocks/", "wasi:random/", "wasi:io/", "wasi:filesystem/", "wasi:sockets/"]
            .iter()
            .any(|package| wasi.starts_with(package)) =>
        {
            Ask::Grant("wasi")
        }
        _ => Ask::Unknown,
    }
}

/// What a component wants and gives, before anyone trusts it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interfaces {
    /// Its imports, as `package:name/interface@version`.
    pub imports: Vec<String>,
    /// Its exports.
    pub exports: Vec<String>,
}

/// Compiles (or takes from the cache).
pub(super) fn compile(runtime: &Runtime, name: &str, bytes: &[u8]) -> Result<Component> {
    sizes::check(runtime.options(), name, bytes)?;
    let engine = runtime.engine();
    if let Some(found) = runtime.cache().and_then(|cache| cache.get(engine, bytes)) {
        return Ok(found);
    }
    // What is in the cache went through this before it was compiled.
    trust::classify(bytes)?;
    // Bytes only: `Component::new` would take text as well.
    let component = Component::from_binary(engine, bytes).map_err(|error| {
        let cause = error.root_cause().to_string();
        // How the pool words what does not fit into it, such as too many memories or tables of one component.
        if cause.contains("exceed") {
            let text = format!("the component of provider {name} does not fit into the instance pool: {cause}");
            Error::new(Code::ComponentTooLarge, text).hint("set engine.pooling = \"off\", or build a smaller provider")
        } else {
            Error::new(Code::ComponentInvalid, format!("the component of provider {name} does not compile: {error:#}"))
                .hint("build it with wit-bindgen 0.61 and wit-component 0.258, or a toolchain of that time")
        }
    })?;
    if let Some(cache) = runtime.cache() {
        cache.put(engine, bytes, &component);
    }
    Ok(component)
}

/// What a compiled component imports and exports.
pub(super) fn interfaces(engine: &Engine, component: &Component) -> Interfaces {
    let ty = component.component_type();
    Interfaces {
        imports: ty.imports(engine).map(|(name, _)| name.to_owned()).collect(),
        exports: ty.exports(engine).map(|(name, _)| name.to_owned()).collect(),
    }
}

/// Links what was granted, and nothing else.
pub(super) fn link(engine: &Engine, component: &Component, granted: &Arc<Granted>) -> Result<ExportsPre<CallState>> {
    let name = &granted.provider;
    let found = interfaces(engine, component);
    check_world(name, &found)?;
    check_grants(name, &found, granted)?;

    let mut linker: Linker<CallState> = Linker::new(engine);
    offer(&mut linker, granted)
        .map_err(|error| Error::internal(format!("the capabilities of provider {name} can't be linked: {error:#}")))?;
    linker.instantiate_pre(component).and_then(ExportsPre::new).map_err(|error| {
        Error::new(
            Code::ComponentWorld,
            format!("the component of provider {name} does not fit this gateway: {error:#}"),
        )
        .hint(format!("rebuild it against {}@{}", WORLD.0, WORLD.1))
    })
}

/// Puts what was granted into a linker.
fn offer(linker: &mut Linker<CallState>, granted: &Granted) -> wasmtime::Result<()> {
    types::add_to_linker::<_, Capabilities>(linker, |state| state)?;
    settings::add_to_linker::<_, Capabilities>(linker, |state| state)?;
    log::add_to_linker::<_, Capabilities>(linker, |state| state)?;
    if granted.process.is_some() {
        process::add_to_linker::<_, Capabilities>(linker, |state| state)?;
    }
    if granted.workspace.is_some() {
        workspace::add_to_linker::<_, Capabilities>(linker, |state| state)?;
    }
    if granted.wasi {
        wasmtime_wasi::p2::add_to_linker_async(linker)?;
        wasmtime_wasi::p3::add_to_linker(linker)?;
    }
    Ok(())
}

fn check_world(name: &ProviderName, found: &Interfaces) -> Result<()> {
    let (package, offered) = WORLD;
    let compatible = |version: &str| version.split('.').take(2).eq(offered.split('.').take(2));
    let versions: BTreeSet<&str> = found
        .exports
        .iter()
        .filter_map(|export| export.strip_prefix(package)?.strip_prefix('/')?.split_once('@'))
        .map(|(_, version)| version)
        .collect();
    if let Some(other) = versions.iter().find(|version| !compatible(version)) {
        return Err(Error::new(
            Code::ComponentWorld,
            format!("the component of provider {name} is made for {package}@{other}; this gateway offers {offered}"),
        )
        .hint(format!(
            "use a gateway that offers {package}@{other}, or rebuild the provider with sandgate-guest {offered}"
        )));
    }
    let missing: Vec<String> = EXPORTS
        .iter()
        .map(|interface| format!("{package}/{interface}@{offered}"))
        .filter(|wanted| {
            let stem = wanted.split('@').next().unwrap_or_default();
            !found.exports.iter().any(|export| export.split('@').next() == Some(stem))
        })
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::new(
        Code::ComponentWorld,
        format!(
            "the component of provider {name} is no sandbox provider: it does not export {}",
            missing.join(" and ")
        ),
    )
    .hint("write it with the crate sandgate-guest, or against the WIT in the folder wit"))
}

fn check_grants(name: &ProviderName, found: &Interfaces, granted: &Granted) -> Result<()> {
    let has = |key| match key {
        "process" => granted.process.is_some(),
        "workspace" => granted.workspace.is_some(),
        "wasi" => granted.wasi,
        _ => false,
    };
    let unknown: Vec<&str> =
        found.imports.iter().map(String::as_str).filter(|import| ask(import) == Ask::Unknown).collect();
    if !unknown.is_empty() {
        return Err(Error::new(
            Code::ComponentWorld,
            format!(
                "the component of provider {name} imports {}, which this gateway does not offer",
                unknown.join(", ")
            ),
        )
        .hint("use a gateway that offers it, or build the provider without it"));
    }
    let missing: Vec<(&str, &'static str)> = found
        .imports
        .iter()
        .filter_map(|import| match ask(import) {
            Ask::Grant(key) if !has(key) => Some((import.as_str(), key)),
            _ => None,
        })
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let imports: Vec<&str> = missing.iter().map(|(import, _)| *import).collect();
    let keys: BTreeSet<&str> = missing.iter().map(|(_, key)| *key).collect();
    let lines: Vec<String> = keys.iter().map(|key| format!("[providers.{name}.grants.{key}]")).collect();
    Err(Error::new(
        Code::GrantMissing,
        format!(
            "the component of provider {name} imports {}, which the configuration does not grant",
            imports.join(", ")
        ),
    )
    .hint(format!("if you trust it with that, add to the configuration:\n{}", lines.join("\n"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_told_in_the_words_of_the_configuration() {
        assert_eq!(ask("sandgate:capability/process@0.1.0"), Ask::Grant("process"));
        assert_eq!(ask("sandgate:capability/log@0.1.0"), Ask::Always);
        assert_eq!(ask("wasi:cli/environment@0.2.6"), Ask::Grant("wasi"));
        assert_eq!(ask("wasi:http/client@0.3.0"), Ask::Unknown);
        assert_eq!(ask("evil:thing/x"), Ask::Unknown);
    }

    #[test]
    fn a_newer_world_names_both_versions() {
        let name = ProviderName::new("acme").unwrap();
        let exports =
            vec!["sandgate:provider/lifecycle@0.2.0".to_owned(), "sandgate:provider/sandbox@0.2.0".to_owned()];
        let error = check_world(&name, &Interfaces { imports: vec![], exports }).unwrap_err();
        assert_eq!(error.code(), Code::ComponentWorld);
        assert!(error.to_string().contains("@0.2.0") && error.to_string().contains("offers 0.1.0"), "{error}");
        let error = check_world(&name, &Interfaces { imports: vec![], exports: vec!["a:b/c".into()] }).unwrap_err();
        assert!(error.to_string().contains("sandgate:provider/sandbox@0.1.0"), "{error}");
    }
}
