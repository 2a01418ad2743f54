//! What is wrong with a configuration: collected, so that one run shows all of it.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::Path;

use serde_spanned::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::Error;

/// How many problems are shown at once: more don't help, and a wrong kind of file could have thousands.
const MAX_SHOWN: usize = 20;

/// A key with the tables that it is in: `providers.local.grants.process.programs[0]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct KeyPath(Vec<Step>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    Key(String),
    Index(usize),
}

impl KeyPath {
    /// From keys, for the checks that know where they look.
    pub(super) fn of(keys: &[&str]) -> Self {
        Self(keys.iter().map(|key| Step::Key((*key).to_owned())).collect())
    }

    pub(super) fn key(&self, key: &str) -> Self {
        let mut path = self.clone();
        path.0.push(Step::Key(key.to_owned()));
        path
    }

    pub(super) fn index(&self, index: usize) -> Self {
        let mut path = self.clone();
        path.0.push(Step::Index(index));
        path
    }

    pub(super) fn parent(&self) -> Option<Self> {
        let (_, rest) = self.0.split_last()?;
        Some(Self(rest.to_vec()))
    }

    pub(super) fn steps(&self) -> &[Step] {
        &self.0
    }

    /// Whether it lies in a provider's free-form settings.
    pub(super) fn in_settings(&self) -> bool {
        matches!(&self.0[..], [Step::Key(providers), Step::Key(_), Step::Key(settings), _, ..]
            if providers == "providers" && settings == "settings")
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bare =
            |key: &str| !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        for (number, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(key) => {
                    let dot = if number == 0 { "" } else { "." };
                    if bare(key) { write!(f, "{dot}{key}")? } else { write!(f, "{dot}{key:?}")? }
                }
            }
        }
        Ok(())
    }
}

/// Where the keys and values of a file are, in bytes.
#[derive(Debug, Default)]
pub(super) struct Places(BTreeMap<KeyPath, Place>);

#[derive(Debug, Clone)]
struct Place {
    key: Range<usize>,
    value: Range<usize>,
}

impl Places {
    pub(super) fn of(table: &DeTable<'_>) -> Self {
        let mut places = Self::default();
        places.add_table(table, &KeyPath::default());
        places
    }

    fn add_table(&mut self, table: &DeTable<'_>, path: &KeyPath) {
        for (key, value) in table {
            self.add_value(value, path.key(key.get_ref()), key.span());
        }
    }

    fn add_value(&mut self, value: &Spanned<DeValue<'_>>, path: KeyPath, key: Range<usize>) {
        match value.get_ref() {
            DeValue::Table(table) => self.add_table(table, &path),
            DeValue::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.add_value(item, path.index(index), item.span());
                }
            }
            _ => {}
        }
        self.0.insert(path, Place { key, value: value.span() });
    }

    /// The innermost value that contains a byte.
    pub(super) fn at(&self, byte: usize) -> Option<&KeyPath> {
        self.0
            .iter()
            .filter(|(_, place)| place.value.contains(&byte) || place.key.contains(&byte))
            .max_by_key(|(path, _)| path.0.len())
            .map(|(path, _)| path)
    }
}

/// Which end of an entry a problem is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum At {
    Key,
    Value,
}

#[derive(Debug)]
struct Problem {
    /// The byte in the file; none: the thing is not in it.
    byte: Option<usize>,
    path: KeyPath,
    message: String,
    hint: Option<String>,
}

/// Collects what is wrong, and the values that came from variables and must not be shown.
#[derive(Debug, Default)]
pub(super) struct Problems {
    pub(super) places: Places,
    /// What stood in the file for each value that came from a variable: `$NAME`.
    pub(super) references: BTreeMap<KeyPath, String>,
    found: Vec<Problem>,
}

impl Problems {
    pub(super) fn add(&mut self, path: &KeyPath, at: At, message: impl Into<String>, hint: impl Into<String>) {
        // A key that is absent is shown where its table begins.
        let mut place = None;
        let mut nearest = Some(path.clone());
        while let Some(here) = nearest {
            place = self.places.0.get(&here);
            if place.is_some() {
                break;
            }
            nearest = here.parent();
        }
        let byte = place.map(|place| if at == At::Key { place.key.start } else { place.value.start });
        let hint = Some(hint.into()).filter(|hint| !hint.is_empty());
        self.found.push(Problem { byte, path: path.clone(), message: message.into(), hint });
    }

    pub(super) fn add_at(&mut self, byte: Option<usize>, path: KeyPath, message: String) {
        self.found.push(Problem { byte, path, message, hint: None });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// A value as it may be shown: `$NAME` if it came from a variable.
    pub(super) fn shown(&self, path: &KeyPath, value: impl fmt::Debug) -> String {
        match self.references.get(path) {
            Some(reference) => format!("the value of {reference}"),
            None => format!("{value:?}"),
        }
    }

    /// One error for all, in the order of the file; none if nothing is wrong.
    pub(super) fn into_error(self, file: Option<&Path>, text: &str) -> Option<Error> {
        let mut found = self.found;
        found.sort_by_key(|problem| problem.byte);
        found.dedup_by(|a, b| a.path == b.path && a.message == b.message);
        let name = file.map_or_else(|| "the configuration".to_owned(), |file| file.display().to_string());
        let place = |problem: &Problem| {
            problem.byte.map(|byte| {
                let (line, column) = position(text, byte);
                format!("line {line}, column {column}: ")
            })
        };
        let what = |problem: &Problem| {
            let path = problem.path.to_string();
            if path.is_empty() { problem.message.clone() } else { format!("{path}: {}", problem.message) }
        };
        match &found[..] {
            [] => None,
            [problem] => {
                let place = place(problem).map_or_else(|| ": ".to_owned(), |place| format!(", {place}"));
                let error = Error::config(format!("{name}{place}{}", what(problem)));
                Some(match &problem.hint {
                    Some(hint) => error.hint(hint.clone()),
                    None => error,
                })
            }
            many => {
                let mut message = format!("{} problems in {name}", many.len());
                for problem in many.iter().take(MAX_SHOWN) {
                    let hint = problem.hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default();
                    let place = place(problem).unwrap_or_default();
                    message.push_str(&format!("\n  {place}{}{hint}", what(problem)));
                }
                if many.len() > MAX_SHOWN {
                    message.push_str(&format!("\n  and {} more", many.len() - MAX_SHOWN));
                }
                Some(Error::config(message))
            }
        }
    }
}

/// Line and column of a byte, from 1, the column in characters.
fn position(text: &str, byte: usize) -> (usize, usize) {
    let before: String = text.char_indices().take_while(|(at, _)| *at < byte).map(|(_, c)| c).collect();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
    (line, column)
}

/// The candidate that was most likely meant, if one is near enough. `-` and `_` and the case make no difference.
pub(super) fn nearest<'a>(text: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.to_lowercase().replace('-', "_");
    let wanted = plain(text);
    candidates
        .map(|candidate| (strsim::osa_distance(&wanted, &plain(candidate)), candidate))
        // A third of the letters may be wrong; more is another word.
        .filter(|(distance, candidate)| *distance <= candidate.chars().count().max(3) / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_lines_and_characters_from_one() {
        let text = "ä = 1\nbö = 2\n";
        assert_eq!(position(text, 0), (1, 1));
        assert_eq!(position(text, text.find("bö").unwrap()), (2, 1));
        assert_eq!(position(text, text.find('2').unwrap()), (2, 6));
        assert_eq!(position(text, 1000), (3, 1));
    }

    #[test]
    fn only_near_names_are_suggested() {
        let names = || ["memory_limit_mib", "queue", "cpu_ms"].into_iter();
        assert_eq!(nearest("memroy_limit_mib", names()), Some("memory_limit_mib"));
        assert_eq!(nearest("Memory-Limit-MiB", names()), Some("memory_limit_mib"));
        assert_eq!(nearest("quue", names()), Some("queue"));
        assert_eq!(nearest("colour", names()), None);
        assert_eq!(nearest("", names()), None);
    }
}
