//! Between the host's values and the generated ones.

use bytes::Bytes;

use super::bindings::{lifecycle, sandbox, types as wit};
use crate::error::{Code, Error, Result};
use crate::instance::IdScheme;
use crate::mounts::VirtualPath;
use crate::values::*;

/// When a provider says nothing usable about when to try again.
const DEFAULT_RETRY_AFTER_MS: u64 = 1_000;

/// The most text of a guest's error that is kept: a guest may echo a whole response body.
const MAX_ERROR_TEXT: usize = 2_000;

impl From<wit::Error> for Error {
    fn from(error: wit::Error) -> Self {
        let (code, text) = match error {
            wit::Error::NotFound(text) => (Code::NotFound, text),
            wit::Error::PermissionDenied(text) => (Code::PermissionDenied, text),
            wit::Error::PathEscapes(text) => (Code::PathEscapes, text),
            wit::Error::ReadOnly(text) => (Code::ReadOnly, text),
            wit::Error::IsADirectory(text) => (Code::IsADirectory, text),
            wit::Error::NotADirectory(text) => (Code::NotADirectory, text),
            wit::Error::AlreadyExists(text) => (Code::AlreadyExists, text),
            wit::Error::Timeout(text) => (Code::Timeout, text),
            wit::Error::Gone(text) => (Code::Gone, text),
            wit::Error::Unavailable(text) => (Code::Unavailable, text),
            wit::Error::Unauthorized(text) => (Code::Unauthorized, text),
            wit::Error::Unsupported(text) => (Code::Unsupported, text),
            wit::Error::InvalidArgument(text) => (Code::InvalidArgument, text),
            wit::Error::CapabilityDenied(text) => (Code::CapabilityDenied, text),
            wit::Error::Other(text) => (Code::Other, text),
            wit::Error::TooLarge(found) => {
                return Self::new(Code::TooLarge, bounded(found.message)).sizes(found.size, found.limit);
            }
            wit::Error::Capacity(found) => {
                return Self::new(Code::Capacity, bounded(found.message)).retry_after_ms(found.retry_after_ms);
            }
        };
        Self::new(code, bounded(text))
    }
}

fn bounded(mut text: String) -> String {
    if text.len() > MAX_ERROR_TEXT {
        let cut = (0..=MAX_ERROR_TEXT).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        let left_out = text.len() - cut;
        text.truncate(cut);
        text.push_str(&format!("… ({left_out} more bytes left out)"));
    }
    text
}

impl From<Error> for wit::Error {
    fn from(error: Error) -> Self {
        let text = error.exact();
        match error.code() {
            Code::NotFound => Self::NotFound(text),
            Code::PermissionDenied => Self::PermissionDenied(text),
            Code::PathEscapes => Self::PathEscapes(text),
            Code::ReadOnly => Self::ReadOnly(text),
            Code::IsADirectory => Self::IsADirectory(text),
            Code::NotADirectory => Self::NotADirectory(text),
            Code::AlreadyExists => Self::AlreadyExists(text),
            Code::Timeout => Self::Timeout(text),
            Code::Gone => Self::Gone(text),
            Code::Unavailable | Code::ExitUnknown => Self::Unavailable(text),
            Code::Unauthorized => Self::Unauthorized(text),
            Code::Unsupported => Self::Unsupported(text),
            Code::InvalidArgument => Self::InvalidArgument(text),
            Code::CapabilityDenied | Code::GrantMissing => Self::CapabilityDenied(text),
            Code::TooLarge => {
                let (size, limit) = error.size_and_limit().unwrap_or_default();
                Self::TooLarge(wit::TooLarge { message: text, size, limit })
            }
            Code::Capacity | Code::Busy => {
                let retry_after_ms = error.retry_after().unwrap_or(DEFAULT_RETRY_AFTER_MS);
                Self::Capacity(wit::Capacity { message: text, retry_after_ms })
            }
            _ => Self::Other(text),
        }
    }
}

impl From<Event> for wit::Event {
    fn from(event: Event) -> Self {
        match event {
            Event::Stdout(bytes) => Self::Stdout(bytes.into()),
            Event::Stderr(bytes) => Self::Stderr(bytes.into()),
            Event::Dropped(count) => Self::Dropped(count),
            Event::Exited(status) => Self::Exited(wit::ExitStatus { code: status.code, signal: status.signal }),
            Event::Failed(error) => Self::Failed(error.into()),
        }
    }
}

impl From<wit::Event> for Event {
    fn from(event: wit::Event) -> Self {
        match event {
            wit::Event::Stdout(bytes) => Self::Stdout(Bytes::from(bytes)),
            wit::Event::Stderr(bytes) => Self::Stderr(Bytes::from(bytes)),
            wit::Event::Dropped(count) => Self::Dropped(count),
            wit::Event::Exited(status) => Self::Exited(ExitStatus { code: status.code, signal: status.signal }),
            wit::Event::Failed(error) => Self::Failed(error.into()),
        }
    }
}

/// Conversions between enums and records whose fields and cases have the same names on both sides.
macro_rules! both_ways {
    (enum $host:ident { $($case:ident),* $(,)? }) => {
        impl From<$host> for wit::$host {
            fn from(value: $host) -> Self {
                match value { $($host::$case => Self::$case),* }
            }
        }
        impl From<wit::$host> for $host {
            fn from(value: wit::$host) -> Self {
                match value { $(wit::$host::$case => Self::$case),* }
            }
        }
    };
    (record $host:ident { $($field:ident),* $(,)? }) => {
        impl From<$host> for wit::$host {
            fn from(value: $host) -> Self {
                Self { $($field: value.$field.into()),* }
            }
        }
        impl From<wit::$host> for $host {
            fn from(value: wit::$host) -> Self {
                Self { $($field: value.$field.into()),* }
            }
        }
    };
    (list $host:ident { $list:ident, $($field:ident),* $(,)? }) => {
        impl From<$host> for wit::$host {
            fn from(value: $host) -> Self {
                Self { $list: value.$list.into_iter().map(Into::into).collect(), $($field: value.$field),* }
            }
        }
        impl From<wit::$host> for $host {
            fn from(value: wit::$host) -> Self {
                Self { $list: value.$list.into_iter().map(Into::into).collect(), $($field: value.$field),* }
            }
        }
    };
}

both_ways!(
    enum Signal {
        Hangup,
        Interrupt,
        Quit,
        Kill,
        Terminate,
        Usr1,
        Usr2,
    }
);
both_ways!(
    enum FileKind {
        File,
        Directory,
        Symlink,
        Other,
    }
);
both_ways!(
    enum WriteMode {
        Replace,
        Append,
        CreateNew,
    }
);
both_ways!(record FileStat { kind, size, modified_ms, mode, read_only });
both_ways!(record WriteOptions { mode, text });
both_ways!(record ListOptions { max_depth, limit, skip_ignored });
both_ways!(record DirEntry { path, kind, size });
both_ways!(record GlobOptions { include_dirs, max_results, skip_ignored });
both_ways!(record GrepOptions { glob, literal, case_sensitive, max_results, skip_ignored });
both_ways!(record GrepMatch { path, line_number, line });
both_ways!(list Listing { entries, truncated, skipped });
both_ways!(list GlobResult { paths, truncated, skipped });
both_ways!(list GrepResult { matches, truncated, skipped });

impl From<ReadRange> for wit::ReadRange {
    fn from(range: ReadRange) -> Self {
        match range {
            ReadRange::All => Self::All,
            ReadRange::Bytes { offset, length } => Self::Bytes(wit::ByteRange { offset, length }),
            ReadRange::Lines { start, end } => Self::Lines(wit::LineRange { start, end }),
        }
    }
}

impl From<wit::ReadRange> for ReadRange {
    fn from(range: wit::ReadRange) -> Self {
        match range {
            wit::ReadRange::All => Self::All,
            wit::ReadRange::Bytes(bytes) => Self::Bytes { offset: bytes.offset, length: bytes.length },
            wit::ReadRange::Lines(lines) => Self::Lines { start: lines.start, end: lines.end },
        }
    }
}

/// A request in the generated form. Durations under a millisecond become one, since 0 says "no limit".
pub(super) fn exec_request(request: &ExecRequest) -> sandbox::ExecRequest {
    sandbox::ExecRequest {
        command: request.command.clone(),
        env: request.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        cwd: request.cwd.as_ref().map(ToString::to_string),
        timeout_ms: request.timeout.map(|timeout| {
            let milliseconds = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
            if timeout.is_zero() { 0 } else { milliseconds.max(1) }
        }),
        output_limit: request.output_limit,
    }
}

/// A path that a guest gave.
pub(super) fn guest_path(base: &VirtualPath, text: &str) -> Result<VirtualPath> {
    VirtualPath::parse_in(base, text)
}

/// What a provider says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// Its own name.
    pub name: String,
    /// Its own version.
    pub version: String,
    /// How its sandboxes are named.
    pub id_scheme: IdScheme,
    /// What it can do.
    pub features: Features,
}

/// What a provider can do; see the WIT of `features`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "documented in the WIT")]
pub struct Features {
    pub shares_mounts: bool,
    pub findable: bool,
    pub listable: bool,
    pub extendable: bool,
    pub ephemeral: bool,
    pub split_output: bool,
    pub stdin: bool,
    pub signals: bool,
}

impl Features {
    /// The names of those that it has, as in the WIT.
    pub fn names(&self) -> Vec<&'static str> {
        [
            ("shares-mounts", self.shares_mounts),
            ("findable", self.findable),
            ("listable", self.listable),
            ("extendable", self.extendable),
            ("ephemeral", self.ephemeral),
            ("split-output", self.split_output),
            ("stdin", self.stdin),
            ("signals", self.signals),
        ]
        .into_iter()
        .filter_map(|(name, has)| has.then_some(name))
        .collect()
    }
}

/// The longest name or version that a provider may give itself.
const MAX_NAME: usize = 64;

impl TryFrom<lifecycle::Description> for Description {
    type Error = Error;

    fn try_from(found: lifecycle::Description) -> Result<Self> {
        let printable =
            |text: &str| (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        for (what, text) in [("name", &found.name), ("version", &found.version)] {
            if !printable(text) {
                return Err(Error::new(
                    Code::GuestProtocol,
                    format!("the provider's own {what} is not 1 to {MAX_NAME} printable ASCII characters"),
                ));
            }
        }
        let has = |feature| found.features.contains(feature);
        Ok(Self {
            id_scheme: match found.id_scheme {
                lifecycle::IdScheme::Hashed => IdScheme::Hashed,
                lifecycle::IdScheme::Readable => IdScheme::Readable,
            },
            features: Features {
                shares_mounts: has(lifecycle::Features::SHARES_MOUNTS),
                findable: has(lifecycle::Features::FINDABLE),
                listable: has(lifecycle::Features::LISTABLE),
                extendable: has(lifecycle::Features::EXTENDABLE),
                ephemeral: has(lifecycle::Features::EPHEMERAL),
                split_output: has(lifecycle::Features::SPLIT_OUTPUT),
                stdin: has(lifecycle::Features::STDIN),
                signals: has(lifecycle::Features::SIGNALS),
            },
            name: found.name,
            version: found.version,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_of_an_error_survives_both_ways() {
        for code in [
            Code::NotFound,
            Code::PermissionDenied,
            Code::PathEscapes,
            Code::ReadOnly,
            Code::IsADirectory,
            Code::NotADirectory,
            Code::AlreadyExists,
            Code::Timeout,
            Code::Gone,
            Code::Unavailable,
            Code::Unauthorized,
            Code::Unsupported,
            Code::InvalidArgument,
            Code::CapabilityDenied,
            Code::Other,
        ] {
            let there = wit::Error::from(Error::new(code, "what").hint("next"));
            let back = Error::from(there);
            assert_eq!((back.code(), back.to_string().as_str()), (code, "what; next"));
        }
        let large = Error::from(wit::Error::from(Error::new(Code::TooLarge, "big").sizes(7, 5)));
        assert_eq!((large.code(), large.size_and_limit()), (Code::TooLarge, Some((7, 5))));
        let full = Error::from(wit::Error::from(Error::new(Code::Capacity, "full").retry_after_ms(9)));
        assert_eq!((full.code(), full.retry_after()), (Code::Capacity, Some(9)));
    }

    #[test]
    fn a_guests_endless_error_text_is_cut_and_says_so() {
        let error = Error::from(wit::Error::Other("ä".repeat(5_000)));
        assert!(error.message().len() < MAX_ERROR_TEXT + 60 && error.message().ends_with("(8000 more bytes left out)"));
    }
}
