//! The frame of every script.

use super::failure::Code;
use super::quote::{Target, quote};

/// A script about one path, which it finds in `$p`. It runs in a subshell, so that a backend which types all commands
/// into one long-lived shell keeps that shell, without what such a shell may have been set to, and in the locale `C`, whose messages [`super::failure`] knows.
pub(super) fn script(target: &Target, tools: &[&str], body: &str) -> String {
    format!(
        "(\nLC_ALL=C; export LC_ALL; set +e +u +C\n\
         for t in {tools}; do command -v \"$t\" >/dev/null 2>&1 || {{ printf '%s\\n' \"$t\" >&2; exit {no_tool}; }}; done\n\
         p={path}\n{body}\n)",
        tools = tools.join(" "),
        no_tool = Code::NoTool,
        path = quote(target.as_str()),
    )
}

/// A script that clears up when it is told to end. The shell that runs it must not end before it: where the command has a
/// process namespace of its own, that would kill what clears up.
pub(super) fn clearing_up(script: &str) -> String {
    format!("trap : {ENDINGS}\n{script}\n__sandgate=$?; trap - {ENDINGS}; (exit $__sandgate)")
}

/// The signals that end a command and that it can hear.
pub(super) const ENDINGS: &str = "HUP INT TERM PIPE";

/// Sets `$s` to what `stat` says of `$p` in `format`, or ends the script with the reason why it can't.
pub(super) fn stat(options: &str, format: &str) -> String {
    format!("s=$(stat {options} -c '{format}' -- \"$p\" 2>&1) || {{ printf '%s\\n' \"$s\" >&2; exit 1; }}")
}

/// Ends the script unless `$p` is a directory, or a link to one, that this user can read. Without it, a tool that
/// refuses the root of a search would look like a search without results.
pub(super) fn readable_dir() -> String {
    format!(
        "{stat}\ncase $s in 4???) ;; *) exit {not_a_directory} ;; esac\n{{ [ -r \"$p\" ] && [ -x \"$p\" ]; }} || exit {denied}",
        stat = stat("-L", "%f"),
        not_a_directory = Code::NotADirectory,
        denied = Code::Denied,
    )
}
