//! `sandgate provider`: what is configured, what a component asks for, and how one is made.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use sandgate::config::{Config, Loaded};
use sandgate::engine::{Ask, Interfaces, ask, inspect};
use sandgate::ids::ProviderName;
use sandgate::{Error, trust};
use serde_json::{Value, json};

use super::{Outcome, Output, print, visit};

/// Look at and make provider components
#[derive(Debug, Subcommand)]
pub(super) enum Provider {
    /// Load every configured provider and say what became of it
    #[command(after_help = "Example:\n  sandgate provider list --output json")]
    List,
    /// Say what a component asks for, and what the configuration would grant; nothing of a file is run
    #[command(after_help = "Examples:\n  sandgate provider inspect local\n  sandgate provider inspect ./acme.wasm")]
    Inspect {
        /// A configured provider's name, or a file
        component: String,
    },
    /// Make a component of a core module that cargo built for wasm32-unknown-unknown
    #[command(
        after_help = "Example:\n  sandgate provider componentize target/wasm32-unknown-unknown/release/acme.wasm -o acme.wasm"
    )]
    Componentize {
        /// The module
        module: PathBuf,
        /// Where to write the component
        #[arg(short, long, value_name = "FILE")]
        out: PathBuf,
    },
}

impl Provider {
    pub(super) async fn run(self, loaded: impl Fn() -> Result<Loaded, Error>, output: Output) -> Outcome {
        match self {
            Self::List => list(loaded()?, output).await,
            Self::Inspect { component } => inspect_component(&component, &loaded()?.config, output),
            Self::Componentize { module, out } => componentize(&module, &out, output),
        }
    }
}

async fn list(loaded: Loaded, output: Output) -> Outcome {
    let gateway = visit(loaded).await?;
    let reports = gateway.reports().await;
    let all_well = reports.iter().all(|report| report.provider.is_ok());
    let mut rows = vec![["NAME", "STATE", "VERSION", "SHA256", "GRANTS", "FEATURES"].map(String::from).to_vec()];
    let mut objects = Vec::new();
    for report in &reports {
        let default = report.name == gateway.config().default_provider;
        let grants = gateway.config().providers.get(&report.name).map(granted).unwrap_or_default();
        let file = report.file.as_ref().map(|file| file.display().to_string());
        match &report.provider {
            Ok(provider) => {
                let description = provider.description();
                let features = description.features.names();
                let digest = report.digest.clone().unwrap_or_default();
                rows.push(vec![
                    format!("{}{}", report.name, if default { " (default)" } else { "" }),
                    "ready".into(),
                    description.version.clone(),
                    digest.chars().take(12).collect(),
                    grants.join(","),
                    features.join(","),
                ]);
                objects.push(json!({
                    "name": report.name.as_str(), "default": default, "state": "ready", "version": description.version,
                    "sha256": digest, "file": file, "grants": grants, "features": features,
                }));
            }
            Err(error) => {
                rows.push(vec![
                    report.name.to_string(),
                    "failed".into(),
                    "-".into(),
                    "-".into(),
                    grants.join(","),
                    "-".into(),
                ]);
                rows.push(vec![format!("  error[{}]: {error}", error.code())]);
                objects.push(json!({
                    "name": report.name.as_str(), "default": default, "state": "failed", "grants": grants,
                    "error": { "code": error.code().as_str(), "message": error.message(), "hint": error.hint_text() },
                }));
            }
        }
    }
    match output {
        Output::Json => print::json(&objects)?,
        Output::Table => print::table(&rows)?,
    }
    Ok(if all_well { ExitCode::SUCCESS } else { ExitCode::from(4) })
}

/// The keys under `grants` that a provider has.
fn granted(provider: &sandgate::config::ProviderConfig) -> Vec<&'static str> {
    let grants = &provider.grants;
    [("process", grants.process.is_some()), ("workspace", grants.workspace.is_some()), ("wasi", grants.wasi.is_some())]
        .into_iter()
        .filter_map(|(key, has)| has.then_some(key))
        .collect()
}

fn inspect_component(component: &str, config: &Config, output: Output) -> Outcome {
    let name = ProviderName::new(component).ok().filter(|name| config.providers.contains_key(name));
    let provider = name.as_ref().and_then(|name| config.providers.get(name));
    let file = match provider {
        Some(provider) => trust::locate(&provider.component)?,
        None => PathBuf::from(component),
    };
    if provider.is_none() && !file.exists() {
        let known: Vec<&str> = config.providers.keys().map(ProviderName::as_str).collect();
        return Err(Error::not_found(format!("{component:?} is neither a file nor a configured provider"))
            .hint(format!("the configuration has {}", known.join(", "))));
    }
    let read = trust::read_component(&file, provider.and_then(|provider| provider.sha256.as_ref()))?;
    trust::classify(&read.bytes).map_err(|error| error.context(file.display()))?;
    let interfaces = inspect(&read.bytes)?;
    let grants = provider.map(granted).unwrap_or_default();
    let digest = read.digest.to_string();
    let imports: Vec<Value> = interfaces.imports.iter().map(|import| import_report(import, &grants)).collect();
    if output == Output::Json {
        print::json(&json!({
            "file": file.display().to_string(), "size": read.bytes.len(), "sha256": digest,
            "exports": interfaces.exports, "imports": imports,
            "provider": name.as_ref().map(ProviderName::as_str),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    print_inspection(&file, read.bytes.len(), &digest, &interfaces, &imports)?;
    let missing: Vec<&str> =
        imports.iter().filter(|import| import["granted"] == false).filter_map(|i| i["grant"].as_str()).collect();
    let called = name.as_ref().map_or("NAME", ProviderName::as_str);
    if !missing.is_empty() {
        print::line("\nTo grant what it asks for, if you trust it with that, add to the configuration:")?;
        for key in missing {
            print::line(&format!("  [providers.{called}.grants.{key}]"))?;
        }
    }
    print::line(&format!("\nTo pin exactly these bytes:\n  [providers.{called}]\n  sha256 = \"{digest}\""))?;
    Ok(ExitCode::SUCCESS)
}

fn import_report(import: &str, grants: &[&str]) -> Value {
    match ask(import) {
        Ask::Always => json!({ "import": import, "grant": null, "granted": true }),
        Ask::Grant(key) => json!({ "import": import, "grant": key, "granted": grants.contains(&key) }),
        Ask::Unknown => json!({ "import": import, "grant": null, "granted": false, "unknown": true }),
    }
}

fn print_inspection(
    file: &Path,
    size: usize,
    digest: &str,
    interfaces: &Interfaces,
    imports: &[Value],
) -> Result<(), Error> {
    print::table(&[
        vec!["File:".into(), file.display().to_string()],
        vec!["Size:".into(), format!("{size} bytes")],
        vec!["Sha256:".into(), digest.to_owned()],
    ])?;
    print::line("\nExports")?;
    for export in &interfaces.exports {
        print::line(&format!("  {export}"))?;
    }
    print::line("\nImports")?;
    let rows: Vec<Vec<String>> = imports
        .iter()
        .map(|import| {
            let state = match (&import["grant"], &import["granted"], &import["unknown"]) {
                (_, _, Value::Bool(true)) => "not offered by this gateway: it would not load".to_owned(),
                (Value::Null, ..) => "always there".to_owned(),
                (Value::String(key), Value::Bool(true), _) => format!("granted by grants.{key}"),
                (key, ..) => format!("NOT granted (needs grants.{})", key.as_str().unwrap_or_default()),
            };
            vec![format!("  {}", import["import"].as_str().unwrap_or_default()), state]
        })
        .collect();
    print::table(&rows)
}

fn componentize(module: &Path, out: &Path, output: Output) -> Outcome {
    let bytes = std::fs::read(module)
        .map_err(|error| Error::not_found(format!("{} can't be read: {error}", module.display())))?;
    let component = sandgate::componentize(&bytes).map_err(|error| error.context(module.display()))?;
    // Beside it and renamed, so that a gateway that starts now reads the old one or the new one.
    let part = out.with_extension("wasm.part");
    std::fs::write(&part, &component)
        .and_then(|()| std::fs::rename(&part, out))
        .map_err(|error| Error::other(format!("{} can't be written: {error}", out.display())))?;
    let interfaces = inspect(&component)?;
    let digest = trust::sha256_of(&component).to_string();
    match output {
        Output::Json => print::json(&json!({
            "file": out.display().to_string(), "size": component.len(), "sha256": digest, "imports": interfaces.imports,
        }))?,
        Output::Table => print::line(&format!("{}  {} bytes  sha256 {digest}", out.display(), component.len()))?,
    }
    Ok(ExitCode::SUCCESS)
}
