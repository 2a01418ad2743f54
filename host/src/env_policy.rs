//! What a command's environment may contain: which variables of the gateway's own environment it inherits, and which
//! names and values a caller may inject for one command.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use crate::error::{Code, Error, Result};

/// Parts of a name that mark a secret, wherever they stand in it.
const SECRET_PARTS: [&str; 6] = ["KEY", "SECRET", "TOKEN", "PASS", "CREDENTIAL", "DSN"];

/// Names that carry secrets without saying so. `SSH_AUTH_SOCK` lends every key of the operator's agent; `PGSERVICEFILE`
/// names a file of passwords. (`*PWD*` as a pattern would take `PWD` away.)
const SECRET_NAMES: [&str; 20] = [
    "AMQP_URL",
    "CLICKHOUSE_URL",
    "CONNECTION_STRING",
    "CONN_STR",
    "DATABASE_URI",
    "DATABASE_URL",
    "GH_PAT",
    "GITHUB_PAT",
    "MONGODB_URI",
    "MONGO_URL",
    "MYSQL_PWD",
    "MYSQL_URL",
    "PGSERVICEFILE",
    "POSTGRESQL_URL",
    "POSTGRES_URL",
    "RABBITMQ_URL",
    "REDISCLI_AUTH",
    "REDIS_AUTH",
    "REDIS_URL",
    "SSH_AUTH_SOCK",
];

/// Names that run code, or change which code runs, before the command itself does. Whoever may set one of these
/// decides what a granted program does, the isolation wrapper included, so they are neither injected nor inherited.
/// Search paths for an interpreter's libraries (`PYTHONPATH`, `PERL5LIB`, …) are left alone: projects live by them, and
/// they run nothing that the program did not ask for.
const LOADER_NAMES: [&str; 19] = [
    // A shell runs the file they name, or their text, when it starts.
    "BASH_ENV",
    "ENV",
    "ZDOTDIR",
    "PROMPT_COMMAND",
    // Expanded by a tracing shell, command substitutions included.
    "PS4",
    // Change how a shell parses a script that it did not write (`IFS` is reset by modern shells, not by all).
    "BASHOPTS",
    "IFS",
    "SHELLOPTS",
    // Interpreters load the named modules or files before the program.
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "NODE_OPTIONS",
    "PERL5DB",
    "PERL5OPT",
    "PYTHONHOME",
    "PYTHONSTARTUP",
    "RUBYOPT",
    // The C library loads code or tables from them.
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    "LOCPATH",
];

/// Beginnings of such names: the dynamic loader's, and functions exported by bash.
const LOADER_PREFIXES: [&str; 3] = ["LD_", "DYLD_", "BASH_FUNC_"];

/// What an allow list starts with, since hardly any program works without: where programs are, language and terminal.
const BASE_NAMES: [&str; 5] = ["PATH", "LANG", "LC_*", "TZ", "TERM"];

/// The rule that injected names follow.
const NAME_RULE: &str = "[A-Za-z_][A-Za-z0-9_]*";

/// The most bytes that `NAME=value` and its NUL may have: Linux takes no longer string (`MAX_ARG_STRLEN`), and what a
/// redactor has to look for stays small.
pub const MAX_INJECTED_VARIABLE: usize = 128 << 10;

/// The most bytes that all injected variables together may have: Linux takes 2 MiB of arguments and environment, and
/// what is inherited and the command itself need room as well.
pub const MAX_INJECTED: usize = 1 << 20;

/// Which of the gateway's variables a command inherits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EnvMode {
    /// All but those that look like secrets.
    #[default]
    DenyList,
    /// Only those that are named, and `PATH`, `LANG`, `LC_*`, `TZ` and `TERM`.
    AllowList,
}

/// The environment policy of one provider. Names are compared without regard to case.
///
/// In both modes variables that change how a program is loaded or a shell starts (`LD_*`, `BASH_ENV`, `NODE_OPTIONS`,
/// …) are left out: see [`is_loader_name`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EnvPolicy {
    mode: EnvMode,
    /// Upper case; `*` stands for any characters.
    allow: Vec<String>,
    /// Likewise.
    deny: Vec<String>,
}

impl EnvPolicy {
    /// A policy; in names, `*` stands for any characters. What `deny` names is never inherited, what `allow` names is even if it
    /// looks like a secret: the operator said so. About the rest, the mode decides.
    pub fn new<S: AsRef<str>>(
        mode: EnvMode,
        allow: impl IntoIterator<Item = S>,
        deny: impl IntoIterator<Item = S>,
    ) -> Self {
        let mut allow = upper(allow);
        if mode == EnvMode::AllowList {
            allow.extend(BASE_NAMES.map(str::to_owned));
        }
        Self { mode, allow, deny: upper(deny) }
    }

    /// Inherits all but what looks like a secret, and what `extra` names.
    pub fn deny_list<S: AsRef<str>>(extra: impl IntoIterator<Item = S>) -> Self {
        Self::new(EnvMode::DenyList, [], extra)
    }

    /// Inherits only what `allowed` names, and the base that every program needs.
    pub fn allow_list<S: AsRef<str>>(allowed: impl IntoIterator<Item = S>) -> Self {
        Self::new(EnvMode::AllowList, allowed, [])
    }

    /// Which variables of the host a command inherits, in their order. Names that are not UTF-8 are never inherited:
    /// they can't be compared.
    pub fn inherited(&self, vars: impl IntoIterator<Item = (OsString, OsString)>) -> Vec<(OsString, OsString)> {
        vars.into_iter().filter(|(name, _)| self.inherits(name)).collect()
    }

    /// Whether a command inherits the variable of this name.
    pub fn inherits(&self, name: &OsStr) -> bool {
        let Some(name) = name.to_str() else { return false };
        let name = name.to_uppercase();
        if is_loader_name(&name) {
            return false;
        }
        let named = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, &name));
        if named(&self.deny) {
            return false;
        }
        match self.mode {
            EnvMode::DenyList => named(&self.allow) || !looks_secret(&name),
            EnvMode::AllowList => named(&self.allow),
        }
    }
}

/// Whether a variable of this name changes how programs are loaded or a shell starts.
pub fn is_loader_name(name: &str) -> bool {
    let name = name.to_uppercase();
    LOADER_NAMES.contains(&name.as_str()) || LOADER_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Checks variables that a caller wants to add for one command. The error names the key, never the value.
///
/// # Errors
/// `invalid-argument` (a name or a value that can't be set, or that loads code), `too-large`
/// ([`MAX_INJECTED_VARIABLE`], [`MAX_INJECTED`]).
pub fn check_injected(env: &BTreeMap<String, String>) -> Result<()> {
    let mut total = 0_usize;
    for (name, value) in env {
        let mut bytes = name.bytes();
        let begins_well = bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
        if !begins_well || !bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Err(Error::invalid_argument(format!("environment variable {name:?} has an unusable name"))
                .hint(format!("names must match {NAME_RULE}")));
        }
        if is_loader_name(name) {
            return Err(Error::invalid_argument(format!(
                "environment variable {name:?} is refused: it changes how programs are loaded or a shell starts"
            ))
            .hint("set it inside of the command, where it affects only what comes after"));
        }
        if value.contains('\0') {
            return Err(Error::invalid_argument(format!("the value of environment variable {name:?} holds a NUL")));
        }
        // `=` and the NUL at the end.
        let size = name.len() + value.len() + 2;
        total = total.saturating_add(size);
        let too_large = |what: String, size: usize, limit: usize| {
            Err(Error::new(Code::TooLarge, what)
                .sizes(size as u64, limit as u64)
                .hint("put large values into a file, or into standard input"))
        };
        if size > MAX_INJECTED_VARIABLE {
            let what =
                format!("environment variable {name:?} has {size} bytes; at most {MAX_INJECTED_VARIABLE} can be set");
            return too_large(what, size, MAX_INJECTED_VARIABLE);
        }
        if total > MAX_INJECTED {
            let what = format!(
                "the environment variables up to {name:?} have {total} bytes together; at most {MAX_INJECTED} can be set"
            );
            return too_large(what, total, MAX_INJECTED);
        }
    }
    Ok(())
}

fn upper<S: AsRef<str>>(patterns: impl IntoIterator<Item = S>) -> Vec<String> {
    patterns.into_iter().map(|pattern| pattern.as_ref().to_uppercase()).collect()
}

/// Whether the name alone, in any case, says that the value is a secret.
pub(crate) fn looks_secret(name: &str) -> bool {
    let name = name.to_uppercase();
    SECRET_PARTS.iter().any(|part| name.contains(part)) || SECRET_NAMES.contains(&name.as_str())
}

/// Whether a name fits a pattern in which `*` stands for any characters.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(head) else { return false };
    let Some((middle, tail)) = rest.rsplit_once('*') else { return name.ends_with(rest) };
    for part in middle.split('*') {
        // The leftmost find of each part leaves the most for those after it.
        match name.find(part) {
            Some(at) => name = &name[at + part.len()..],
            None => return false,
        }
    }
    name.ends_with(tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inherits(policy: &EnvPolicy, name: &str) -> bool {
        policy.inherits(OsStr::new(name))
    }

    #[test]
    fn secrets_are_not_inherited() {
        let policy = EnvPolicy::default();
        for name in [
            "OPENAI_API_KEY",
            "aws_secret_access_key",
            "GITHUB_TOKEN",
            "ACTIONS_RUNTIME_TOKEN",
            "DB_PASS",
            "PGPASSFILE",
            "GIT_ASKPASS",
            "SENTRY_DSN",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "DATABASE_URL",
            "redis_url",
            "MYSQL_PWD",
            "REDISCLI_AUTH",
            "PGSERVICEFILE",
            "GH_PAT",
            "SSH_AUTH_SOCK",
            "COMPASS_HOME",
        ] {
            assert!(!inherits(&policy, name), "{name}");
        }
    }

    #[test]
    fn ordinary_variables_are_inherited() {
        let policy = EnvPolicy::default();
        for name in [
            "PATH",
            "HOME",
            "SHELL",
            "USER",
            "LANG",
            "LC_ALL",
            "TMPDIR",
            "VIRTUAL_ENV",
            "PYTHONPATH",
            "PWD",
            "OLDPWD",
            "NEXT_PUBLIC_BASE_URL",
            "SERVICE_ENDPOINT",
        ] {
            assert!(inherits(&policy, name), "{name}");
        }
    }

    #[test]
    fn loader_variables_are_neither_inherited_nor_injected() {
        let all = EnvPolicy::allow_list(["*"]);
        for name in ["LD_PRELOAD", "LD_LIBRARY_PATH", "BASH_ENV", "ENV", "NODE_OPTIONS", "PS4", "ld_audit", "IFS"] {
            assert!(!inherits(&all, name) && !inherits(&EnvPolicy::default(), name), "{name}");
            let error = check_injected(&BTreeMap::from([(name.to_owned(), "s3cret-value".to_owned())])).unwrap_err();
            assert!(error.to_string().contains(name) && !error.to_string().contains("s3cret"), "{error}");
        }
        assert!(!inherits(&all, "BASH_FUNC_ls%%"));
    }

    #[test]
    fn injected_names_and_values_are_checked() {
        for name in ["", "A=B", "a b", "1A", "A-B", "Ä", "A\0", "A\n"] {
            let error = check_injected(&BTreeMap::from([(name.to_owned(), "s3cret".to_owned())])).unwrap_err();
            assert!(error.to_string().contains("[A-Za-z_]") && !error.to_string().contains("s3cret"), "{error}");
        }
        let error = check_injected(&BTreeMap::from([("A".to_owned(), "s3cret\0".to_owned())])).unwrap_err();
        assert!(error.to_string().contains("\"A\"") && !error.to_string().contains("s3cret"), "{error}");
        let good = [("_", ""), ("API_KEY", "x"), ("PATH", "/bin"), ("a1", "\n $'\"")];
        check_injected(&good.map(|(name, value)| (name.to_owned(), value.to_owned())).into()).unwrap();
        check_injected(&BTreeMap::new()).unwrap();
    }

    #[test]
    fn injected_values_are_bounded_one_by_one_and_together() {
        let env = |sizes: &[usize]| -> BTreeMap<String, String> {
            sizes.iter().enumerate().map(|(n, size)| (format!("V{n}"), "s".repeat(size - 4))).collect()
        };
        check_injected(&env(&[MAX_INJECTED_VARIABLE; 8])).unwrap();
        for (sizes, name, found) in [
            (&[10, MAX_INJECTED_VARIABLE + 1][..], "\"V1\"", (131_073, 131_072)),
            (&[[MAX_INJECTED_VARIABLE; 8].as_slice(), &[10]].concat()[..], "\"V8\"", (1_048_586, 1_048_576)),
        ] {
            let error = check_injected(&env(sizes)).unwrap_err();
            assert_eq!((error.code(), error.size_and_limit()), (Code::TooLarge, Some(found)), "{error}");
            assert!(error.to_string().contains(name) && !error.to_string().contains("ssss"), "{error}");
        }
    }

    #[test]
    fn an_operator_can_deny_more_and_allow_only_some() {
        let denied = EnvPolicy::deny_list(["corp_*", "EXACT"]);
        assert!(!inherits(&denied, "CORP_X") && !inherits(&denied, "exact") && inherits(&denied, "EXACTLY"));
        let allowed = EnvPolicy::allow_list(["MY_KEY", "APP_*_URL"]);
        for (name, expected) in [
            ("MY_KEY", true),
            ("APP_X_URL", true),
            ("APP_X_URLS", false),
            ("PATH", true),
            ("LC_TIME", true),
            ("LANGUAGE", false),
            ("HOME", false),
            ("USER", false),
        ] {
            assert_eq!(inherits(&allowed, name), expected, "{name}");
        }
    }

    #[test]
    fn patterns_match_like_wildcards() {
        for (pattern, name, expected) in [
            ("A*", "A", true),
            ("*A", "BA", true),
            ("A*A", "A", false),
            ("A*A", "AA", true),
            ("A*B*C", "AXBXC", true),
            ("A*B*C", "AC", false),
            ("A*B*B", "AB", false),
            ("*", "", true),
            ("*B*", "ABC", true),
            ("**", "X", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn two_hundred_variables_keep_their_order_and_values() {
        let vars = (0..200).map(|n| (OsString::from(format!("V{n}")), OsString::from(format!("value {n}"))));
        let kept = EnvPolicy::default().inherited(vars.clone());
        assert_eq!(kept, vars.collect::<Vec<_>>());
    }
}
