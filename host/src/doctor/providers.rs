//! The providers' components.

use super::check::Check;
use crate::config::{ComponentSource, Config};
use crate::error::Error;
use crate::ids::ProviderName;
use crate::trust::{classify, locate, read_component};

pub(super) fn providers(config: &Config) -> Vec<Check> {
    config
        .providers
        .iter()
        .map(|(name, provider)| {
            let check = format!("provider {name}");
            let read = locate(&provider.component)
                .and_then(|path| read_component(&path, provider.sha256.as_ref()))
                .and_then(|read| classify(&read.bytes).map(|()| read));
            match read {
                Ok(read) => {
                    let pinned = match (&provider.sha256, &provider.component) {
                        (Some(_), _) => "pinned",
                        (None, ComponentSource::Builtin(_)) => "built in",
                        (None, ComponentSource::File(_)) => "not pinned",
                    };
                    let detail = format!(
                        "{}, {} KiB, sha256 {} ({pinned})",
                        read.path.display(),
                        read.bytes.len() >> 10,
                        read.digest
                    );
                    let found = Check::ok(check, detail);
                    if pinned == "not pinned" {
                        found.fix(format!("to pin it, set sha256 = \"{}\" in [providers.{name}]", read.digest))
                    } else {
                        found
                    }
                }
                Err(error) => failed(check, name, &error),
            }
        })
        .collect()
}

fn failed(check: String, name: &ProviderName, error: &Error) -> Check {
    let fix = error.hint_text().map_or_else(|| format!("correct [providers.{name}]"), str::to_owned);
    Check::fail(check, error.message()).fix(fix)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::Status;
    use super::*;
    use crate::config::ProviderConfig;
    use crate::trust::sha256_of;

    #[test]
    fn each_component_is_read_and_its_digest_shown() {
        let folder = tempfile::tempdir().unwrap();
        let (good, text) = (folder.path().join("good.wasm"), folder.path().join("text.wasm"));
        let component = b"\0asm\x0d\0\x01\0";
        fs::write(&good, component).unwrap();
        fs::write(&text, "(component)").unwrap();
        let mut config = Config::default();
        config.providers.clear();
        let mut add = |name: &str, file, pin: Option<&[u8]>| {
            let mut provider = ProviderConfig::new(ComponentSource::File(file));
            provider.sha256 = pin.map(sha256_of);
            config.providers.insert(name.parse().unwrap(), provider);
        };
        add("pinned", good.clone(), Some(component));
        add("free", good.clone(), None);
        add("swapped", good, Some(b"other"));
        add("text", text, None);
        let found = providers(&config);
        let seen: Vec<(&str, Status)> = found.iter().map(|check| (check.name.as_str(), check.status)).collect();
        assert_eq!(
            seen,
            [
                ("provider pinned", Status::Ok),
                ("provider free", Status::Ok),
                ("provider swapped", Status::Fail),
                ("provider text", Status::Fail)
            ]
        );
        assert!(found[0].detail.contains(sha256_of(component).as_str()) && found[0].fix.is_none());
        assert!(found[1].fix.as_ref().unwrap().contains("sha256 = "));
        assert!(found[3].fix.as_ref().unwrap().contains("wasm-tools parse"));
    }
}
