//! Finds, reads and checks the file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::de::{DeTable, Deserializer};

use super::problem::{KeyPath, Problems};
use super::resolve::Lookup;
use super::{ComponentSource, Config, check, dirs, resolve, shape};
use crate::error::{Error, Result};

/// The largest file that is read: a thousand providers fit into it, an endless device does not.
const MAX_FILE: u64 = 1 << 20;

/// The variable that names the file.
const VARIABLE: &str = "SANDGATE_CONFIG";

/// The file's name where no name is given.
const FILE_NAME: &str = "sandgate.toml";

/// A configuration that was read and checked, and where it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// The configuration: references resolved, paths absolute, the gateway's folders filled in.
    pub config: Config,
    /// The file; none: the built-in configuration, as there was no file.
    pub file: Option<PathBuf>,
    /// What stood in the file for each value that came from a variable.
    pub(super) references: BTreeMap<KeyPath, String>,
}

/// Loads the configuration: `named` (what `--config` says), else `$SANDGATE_CONFIG`, else the first that exists of
/// `./sandgate.toml`, `$XDG_CONFIG_HOME/sandgate/sandgate.toml` (`~/.config` by default) and
/// `/etc/sandgate/sandgate.toml`, else the built-in one.
///
/// A file that was named and is missing is an error, and so is one that can't be read, wherever it is.
pub fn load(named: Option<&Path>) -> Result<Loaded> {
    load_with(named, Path::new("."), &|name| std::env::var_os(name))
}

/// Reads a configuration from text. `file` is what errors call it; relative component paths begin at its folder.
pub fn parse(text: &str, file: &Path) -> Result<Loaded> {
    parse_with(text, Some(file), &|name| std::env::var_os(name))
}

pub(super) fn load_with(named: Option<&Path>, here: &Path, lookup: Lookup<'_>) -> Result<Loaded> {
    let variable = lookup(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    let named = match (named, &variable) {
        (Some(path), _) => Some((path, "--config")),
        (None, Some(path)) => Some((path.as_path(), "$SANDGATE_CONFIG")),
        (None, None) => None,
    };
    if let Some((path, by)) = named {
        let text = read(path)?.ok_or_else(|| {
            Error::config(format!("there is no {}, which {by} names", path.display()))
                .hint("correct the path, or write the file: `sandgate config init` prints one to begin with")
        })?;
        return parse_with(&text, Some(path), lookup);
    }
    for path in candidates(here, lookup) {
        if let Some(text) = read(&path)? {
            return parse_with(&text, Some(&path), lookup);
        }
    }
    let mut config = Config::default();
    dirs::fill(&mut config, lookup);
    config.check()?;
    Ok(Loaded { config, file: None, references: BTreeMap::new() })
}

impl Config {
    /// Checks a configuration that was made in code, as [`load`] checks a file: ranges, forms, what has to fit
    /// together, what has to be on this host. All problems come in one error.
    pub fn check(&self) -> Result<()> {
        let text = toml::to_string(self)
            .map_err(|error| Error::config(format!("the configuration can't be written as TOML: {error}")))?;
        let table = DeTable::parse(&text).map_err(|error| Error::internal(error.message()))?;
        let mut problems = Problems::default();
        shape::check(table.get_ref(), &mut problems);
        check::check(self, &mut problems);
        problems.into_error(None, "").map_or(Ok(()), Err)
    }
}

/// Where a file is looked for that nobody named, in this order.
fn candidates(here: &Path, lookup: Lookup<'_>) -> Vec<PathBuf> {
    let user = dirs::base(lookup, "XDG_CONFIG_HOME", ".config").map(|base| base.join("sandgate").join(FILE_NAME));
    let own = if here == Path::new(".") { PathBuf::from(FILE_NAME) } else { here.join(FILE_NAME) };
    [Some(own), user, Some(Path::new("/etc/sandgate").join(FILE_NAME))].into_iter().flatten().collect()
}

/// The text of a file; none if it is not there.
fn read(path: &Path) -> Result<Option<String>> {
    let failed = |error: std::io::Error| {
        Error::config(format!("can't read {}: {error}", path.display()))
            .hint("make it a file that the gateway's user can read")
    };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(Error::config(format!("{} is larger than {} KiB", path.display(), MAX_FILE >> 10))
            .hint("is this the right file?"));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(error) => {
            let good = error.utf8_error().valid_up_to();
            let line = error.as_bytes()[..good].iter().filter(|byte| **byte == b'\n').count() + 1;
            Err(Error::config(format!("{}, line {line}: not UTF-8 text", path.display()))
                .hint("save the file as UTF-8"))
        }
    }
}

pub(super) fn parse_with(text: &str, file: Option<&Path>, lookup: Lookup<'_>) -> Result<Loaded> {
    let mut problems = Problems::default();
    let (mut table, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let message = error.message().lines().collect::<Vec<_>>().join(", ");
        problems.add_at(error.span().map(|span| span.start), KeyPath::default(), format!("not TOML: {message}"));
    }
    if let Some(error) = problems.into_error(file, text) {
        // What follows from half a file would only hide the cause.
        return Err(error);
    }

    let mut problems = Problems::default();
    problems.places = super::problem::Places::of(table.get_ref());
    resolve::resolve(table.get_mut(), lookup, &mut problems);
    shape::check(table.get_ref(), &mut problems);
    if !problems.is_empty() {
        return Err(problems.into_error(file, text).unwrap_or_else(|| Error::config("unusable")));
    }

    let mut config = match Config::deserialize(Deserializer::from(table)) {
        Ok(config) => config,
        Err(error) => {
            add_type_error(&error, &mut problems);
            return Err(problems.into_error(file, text).unwrap_or_else(|| Error::config("unusable")));
        }
    };
    dirs::fill(&mut config, lookup);
    anchor(&mut config, file);
    check::check(&config, &mut problems);
    let references = std::mem::take(&mut problems.references);
    match problems.into_error(file, text) {
        Some(error) => Err(error),
        None => Ok(Loaded { config, file: file.map(Path::to_path_buf), references }),
    }
}

/// What a type of ours says of its value, unless the value must not be shown.
fn add_type_error(error: &toml::de::Error, problems: &mut Problems) {
    let byte = error.span().map(|span| span.start);
    let path = byte.and_then(|byte| problems.places.at(byte)).cloned();
    let message = match path.as_ref().map(|path| problems.references.get(path)) {
        Some(Some(reference)) => format!("the value of {reference} is not usable here"),
        Some(None) => error.message().to_owned(),
        // Without a place nobody knows whether the message quotes a secret.
        None if problems.references.is_empty() => error.message().to_owned(),
        None => "a value is not usable".to_owned(),
    };
    problems.add_at(byte, path.unwrap_or_default(), message);
}

/// Makes relative component paths begin at the file's folder, wherever the gateway was started.
fn anchor(config: &mut Config, file: Option<&Path>) {
    let folder = file.and_then(Path::parent).unwrap_or(Path::new(""));
    let folder = std::path::absolute(if folder.as_os_str().is_empty() { Path::new(".") } else { folder });
    let Ok(folder) = folder else { return };
    for provider in config.providers.values_mut() {
        if let ComponentSource::File(path) = &mut provider.component {
            *path = folder.join(&*path);
        }
    }
}

/// A lookup in a fixed list, for tests.
#[cfg(test)]
pub(super) fn fixed(list: &'static [(&'static str, &'static str)]) -> impl Fn(&str) -> Option<std::ffi::OsString> {
    move |name| list.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into())
}
