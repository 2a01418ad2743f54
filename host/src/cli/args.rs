//! Arguments that several commands share.

use std::time::Duration;

use clap::Args;
use sandgate::ids::{ProviderName, Scope, ThreadId, UserId};
use sandgate::lifecycle::ShutdownMode;
use sandgate::{Error, Gateway, Sandbox};

use super::{Output, print};

/// Whose sandbox, and of which provider.
#[derive(Debug, Clone, Args)]
pub(super) struct Whose {
    /// The provider [default: the configuration's default_provider]
    #[arg(short, long, value_name = "NAME")]
    pub(super) provider: Option<ProviderName>,

    /// The user that the sandbox belongs to
    #[arg(short, long, value_name = "ID", default_value = UserId::DEFAULT)]
    pub(super) user: UserId,

    /// The thread that the sandbox belongs to [default: the user's sandbox without a thread]
    #[arg(short, long, value_name = "ID")]
    pub(super) thread: Option<ThreadId>,

    /// Leave the sandbox running at the end, for the next command or for a gateway to adopt. Without, one that this
    /// command had to make is stopped, and one that was there is left as it was
    #[arg(long)]
    pub(super) keep: bool,
}

impl Whose {
    /// Lends the sandbox.
    pub(super) async fn acquire(&self, gateway: &Gateway, output: Output) -> Result<Sandbox, Error> {
        let scope = Scope { user: self.user.clone(), thread: self.thread.clone() };
        let provider = self.provider.as_ref().unwrap_or(&gateway.config().default_provider);
        let sandbox = gateway.acquire_from(provider, &scope).await?;
        if self.keep && gateway.lifecycle(provider).await?.features().ephemeral {
            let text = format!(
                "--keep: sandboxes of provider {provider} end with their gateway, which is this command; their files stay"
            );
            print::note(output, &text);
        }
        Ok(sandbox)
    }

    /// What becomes of the sandbox at the end.
    pub(super) fn at_end(&self) -> ShutdownMode {
        if self.keep { ShutdownMode::Keep } else { ShutdownMode::StopMade }
    }
}

/// A time: `90`, `90s`, `1.5m`, `500ms`, `2h`. Zero says "no limit".
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let usage = || format!("{text:?} is no time; write seconds (90) or a number with ms, s, m or h (500ms, 1.5m)");
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let seconds_per_unit = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(usage()),
    };
    let number: f64 = number.parse().map_err(|_| usage())?;
    Duration::try_from_secs_f64(number * seconds_per_unit).map_err(|_| usage())
}

/// A variable for a command: `NAME=VALUE`, or `NAME` with the value of our own environment.
pub(super) fn variable(text: &str) -> Result<(String, String), String> {
    if let Some((name, value)) = text.split_once('=') {
        return Ok((name.to_owned(), value.to_owned()));
    }
    match std::env::var(text) {
        Ok(value) => Ok((text.to_owned(), value)),
        Err(_) => Err(format!(
            "{text:?} is not set (or is not UTF-8) in the environment of sandgate; write NAME=VALUE or set it"
        )),
    }
}

/// Words as one command text that a POSIX shell takes apart into exactly these words.
pub(super) fn quoted(words: &[String]) -> String {
    let quote = |word: &String| format!("'{}'", word.replace('\'', r"'\''"));
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, milliseconds) in [("90", 90_000), ("1.5m", 90_000), ("500ms", 500), ("2h", 7_200_000), ("0", 0)] {
            assert_eq!(duration(text).map(|time| time.as_millis()), Ok(milliseconds), "{text}");
        }
        for text in ["", "-1", "1d", "s", "1.2.3", "1e400", "99999999999999999999999h", "NaN", "inf"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn quoting_keeps_every_word() {
        let words: Vec<String> = ["a b", "", "it's", "$HOME", "-n", "new\nline", "`x`", "\\"].map(String::from).into();
        let script = format!("printf '%s\\0' {}", quoted(&words));
        let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        let back: Vec<String> =
            String::from_utf8(output.stdout).unwrap().split_terminator('\0').map(String::from).collect();
        assert_eq!(back, words);
    }
}
