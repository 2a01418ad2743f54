//! References to environment variables in the file.
//!
//! Any string value, of any key (settings included), may refer to a variable of the gateway's environment. References
//! are resolved once, on the parsed tree before the types are read, so no type needs to know of them:
//!
//! - `$NAME` or `${NAME}` at the beginning is replaced by the variable's value; what follows is kept (`$HOME/skills`);
//! - `env:NAME` as the whole value is replaced too;
//! - `$$` at the beginning stands for one `$`, and the rest is taken as it is.
//!
//! A variable that is not set, or empty, is an error that names key and variable. A value that came from a variable is
//! never shown: errors and the effective configuration show the reference instead.

use std::borrow::Cow;
use std::ffi::OsString;

use toml::de::{DeTable, DeValue};

use super::problem::{At, KeyPath, Problems};

/// Looks up an environment variable.
pub(super) type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

pub(super) fn resolve(table: &mut DeTable<'_>, lookup: Lookup<'_>, problems: &mut Problems) {
    resolve_table(table, &KeyPath::default(), lookup, problems);
}

fn resolve_table(table: &mut DeTable<'_>, path: &KeyPath, lookup: Lookup<'_>, problems: &mut Problems) {
    for (key, value) in table.iter_mut() {
        resolve_value(value.get_mut(), &path.key(key.get_ref()), lookup, problems);
    }
}

fn resolve_value(value: &mut DeValue<'_>, path: &KeyPath, lookup: Lookup<'_>, problems: &mut Problems) {
    match value {
        DeValue::Table(table) => resolve_table(table, path, lookup, problems),
        DeValue::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                resolve_value(item.get_mut(), &path.index(index), lookup, problems);
            }
        }
        DeValue::String(text) => match Reference::parse(text) {
            Reference::None => {}
            Reference::Escaped(plain) => *text = Cow::Owned(plain.to_owned()),
            Reference::Malformed => problems.add(
                path,
                At::Value,
                "a reference to an environment variable needs a name",
                "write $NAME or ${NAME} at the beginning, env:NAME as the whole value, or $$ for one plain $",
            ),
            Reference::Variable { name, rest } => {
                let reason = match lookup(name).map(OsString::into_string) {
                    Some(Ok(found)) if !found.is_empty() => {
                        let resolved = format!("{found}{rest}");
                        problems.references.insert(path.clone(), text.clone().into_owned());
                        *text = Cow::Owned(resolved);
                        return;
                    }
                    Some(Ok(_)) => "is empty",
                    Some(Err(_)) => "holds bytes that are not UTF-8",
                    None => "is not set",
                };
                let message = format!("the environment variable {name} {reason}");
                let hint = format!("set {name} in the gateway's environment, or write $$ if a plain $ was meant");
                problems.add(path, At::Value, message, hint);
            }
        },
        _ => {}
    }
}

enum Reference<'a> {
    None,
    /// The text without the escaping.
    Escaped(&'a str),
    Variable {
        name: &'a str,
        rest: &'a str,
    },
    Malformed,
}

impl<'a> Reference<'a> {
    fn parse(text: &'a str) -> Self {
        if let Some(name) = text.strip_prefix("env:") {
            return if name_length(name) == name.len() && !name.is_empty() {
                Self::Variable { name, rest: "" }
            } else {
                Self::Malformed
            };
        }
        let Some(after) = text.strip_prefix('$') else { return Self::None };
        if after.starts_with('$') {
            return Self::Escaped(after);
        }
        let (name, rest) = match after.strip_prefix('{') {
            Some(braced) => match braced.split_once('}') {
                Some((name, rest)) if name_length(name) == name.len() => (name, rest),
                _ => return Self::Malformed,
            },
            None => after.split_at(name_length(after)),
        };
        if name.is_empty() { Self::Malformed } else { Self::Variable { name, rest } }
    }
}

/// How many bytes of a variable's name a text begins with.
fn name_length(text: &str) -> usize {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return 0;
    }
    text.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(value: &str) -> Result<String, String> {
        let text = format!("[t]\na = [{value:?}]\n");
        let mut table = DeTable::parse(&text).unwrap().into_inner();
        let mut problems = Problems::default();
        let lookup = |name: &str| match name {
            "HOME" => Some("/home/ann".into()),
            "KEY_1" => Some("$HOME env:HOME".into()),
            "EMPTY" => Some("".into()),
            _ => None,
        };
        resolve(&mut table, &lookup, &mut problems);
        match problems.into_error(None, &text) {
            Some(error) => Err(error.to_string()),
            None => Ok(table["t"].get_ref()["a"].get_ref()[0].get_ref().as_str().unwrap().to_owned()),
        }
    }

    #[test]
    fn references_are_replaced_once() {
        for (value, expected) in [
            ("$HOME", "/home/ann"),
            ("${HOME}", "/home/ann"),
            ("env:HOME", "/home/ann"),
            ("$HOME/a$HOME", "/home/ann/a$HOME"),
            ("${HOME}x", "/home/annx"),
            ("$KEY_1", "$HOME env:HOME"),
            ("$$HOME", "$HOME"),
            ("$$$", "$$"),
            ("a$HOME", "a$HOME"),
            ("environment", "environment"),
            ("", ""),
        ] {
            assert_eq!(resolved(value).as_deref(), Ok(expected), "{value}");
        }
    }

    #[test]
    fn a_missing_or_empty_variable_is_an_error_with_key_and_name() {
        let error = resolved("$NOT_SET_HERE").unwrap_err();
        assert!(error.contains("t.a[0]: the environment variable NOT_SET_HERE is not set"), "{error}");
        assert!(resolved("env:EMPTY").unwrap_err().contains("EMPTY is empty"));
    }

    #[test]
    fn half_a_reference_is_an_error() {
        for value in ["$", "$ 5", "$1", "${", "${HOME", "${}", "${A B}", "env:", "env:A-B"] {
            assert!(resolved(value).unwrap_err().contains("needs a name"), "{value}");
        }
    }
}
