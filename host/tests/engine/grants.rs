//! Only what was granted gets in, and a refusal says how to grant it.

use std::fmt::Write;
use std::path::Path;

use sandgate::Gateway;
use sandgate::config;
use sandgate::engine::{Granted, Provider, Runtime};
use sandgate::error::Code;

use crate::support::{Bench, granted, hostile, hostile_file, local, name, options};

#[tokio::test]
async fn a_refusal_names_import_key_and_line() {
    let runtime = Runtime::new(options()).unwrap();
    for bytes in [hostile(), local()] {
        for (key, import) in
            [("process", "sandgate:capability/process@0.1.0"), ("workspace", "sandgate:capability/workspace@0.1.0")]
        {
            let all = granted("{}");
            let granted = match key {
                "process" => Granted { process: None, ..all },
                _ => Granted { workspace: None, ..all },
            };
            let error = Provider::load(&runtime, bytes.clone(), granted).await.unwrap_err();
            assert_eq!(error.code(), Code::GrantMissing);
            let text = error.to_string();
            assert!(text.contains(import) && text.contains(&format!("[providers.bad.grants.{key}]")), "{text}");
        }
    }
}

async fn load(toml: &str, folder: &Path) -> sandgate::Result<()> {
    let mut config = config::parse(toml, Path::new("sandgate.toml")).unwrap().config;
    config.gateway.state_dir = Some(folder.join("state"));
    config.gateway.cache_dir = Some(folder.join("cache"));
    config.engine.max_instances = 2;
    config.engine.idle_instances = 0;
    let gateway = Gateway::open(config).await?;
    gateway.provider(&name()).await.map(drop)
}

#[tokio::test]
async fn the_lines_that_a_refusal_prints_are_what_it_takes() {
    let folder = tempfile::tempdir().unwrap();
    let mut toml = format!("default_provider = \"bad\"\n[providers.bad]\ncomponent = {:?}\n", hostile_file());
    let error = load(&toml, folder.path()).await.unwrap_err();
    assert_eq!(error.code(), Code::GrantMissing, "{error}");
    let text = error.to_string();
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with('[')).collect();
    assert_eq!(lines.len(), 2, "{text}");
    lines.iter().for_each(|line| writeln!(toml, "{line}").unwrap());
    load(&toml, folder.path()).await.unwrap();
}

#[tokio::test]
async fn what_lies_outside_of_a_grant_is_denied() {
    let bench = Bench::hostile(options()).await;
    for (behaviour, code, named) in [
        ("foreign-program", Code::CapabilityDenied, "python3"),
        ("program-path", Code::CapabilityDenied, "/bin/bash"),
        ("escape", Code::PermissionDenied, "/etc/passwd"),
        ("escape-dots", Code::PathEscapes, ".."),
    ] {
        let error = bench.exec(behaviour).await.unwrap_err();
        assert_eq!(error.code(), code, "{behaviour}: {error}");
        assert!(error.to_string().contains(named), "{behaviour}: {error}");
        let host = bench.room.folder.path().to_str().unwrap();
        assert!(!error.to_string().contains(host), "{error}");
    }
}
