//! One error type for the whole library: a stable [`Code`], a message for people, and a hint what to do next.

use std::fmt::{self, Write as _};

/// What went wrong, as programs match on it. The text of a code never changes: the command line, HTTP and MCP all
/// show the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Code {
    // What a sandbox operation may answer (the cases of `sandgate:capability/types.error`).
    /// No such file, directory, program or sandbox.
    NotFound,
    /// The operating system or the backend refuses.
    PermissionDenied,
    /// A path leads out of its mount.
    PathEscapes,
    /// The mount can't be written.
    ReadOnly,
    /// A file was expected.
    IsADirectory,
    /// A directory was expected.
    NotADirectory,
    /// It is there already, or a directory is not empty.
    AlreadyExists,
    /// Over a size limit.
    TooLarge,
    /// A deadline passed.
    Timeout,
    /// The sandbox no longer exists.
    Gone,
    /// No answer; the state is unknown.
    Unavailable,
    /// The backend refuses the operator's credentials.
    Unauthorized,
    /// No room for another sandbox.
    Capacity,
    /// This provider can't do it.
    Unsupported,
    /// A malformed argument.
    InvalidArgument,
    /// Not granted to this provider.
    CapabilityDenied,
    /// Anything else that a provider says.
    Other,

    // What the host adds.
    /// All call slots are taken and the queue is full.
    Busy,
    /// A command's stream ended without saying how the command ended.
    ExitUnknown,
    /// The guest crashed (unreachable code, a bad memory access, too deep a recursion, …).
    GuestTrap,
    /// The guest used more CPU time than a call may.
    GuestCpu,
    /// The guest wanted more memory or table space than a call may.
    GuestMemory,
    /// The guest broke the interface's own rules.
    GuestProtocol,
    /// The component file is empty.
    ComponentEmpty,
    /// The file is text, not WebAssembly.
    ComponentText,
    /// A core WebAssembly module, not a component.
    ComponentCoreModule,
    /// The file breaks off in the middle.
    ComponentTruncated,
    /// Not WebAssembly, or not valid.
    ComponentInvalid,
    /// A component, but not for a world that this gateway offers.
    ComponentWorld,
    /// The component needs more than the limits allow.
    ComponentTooLarge,
    /// The component can't be read from where it should be.
    ComponentUnreadable,
    /// The component's bytes aren't those that were pinned.
    DigestMismatch,
    /// The component imports what the operator did not grant.
    GrantMissing,
    /// The configuration can't be read or is wrong.
    Config,
    /// The configuration has no such provider.
    UnknownProvider,
    /// The lease store does not answer, so nobody knows who owns a sandbox.
    LeaseStoreDown,
    /// The sandbox of this scope is being torn down; a new one can be had when that is done.
    BeingDestroyed,
    /// Another gateway looks after the sandbox.
    NotOwner,
    /// The sandbox id belongs to another scope.
    IdentityCollision,
    /// The shared count of sandboxes is not known yet.
    CapacityInitializing,
    /// The shared count of sandboxes can't be read.
    CapacityBackend,
    /// This gateway is shutting down.
    ShuttingDown,
    /// A bug of ours.
    Internal,
}

impl Code {
    /// The stable text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "not-found",
            Self::PermissionDenied => "permission-denied",
            Self::PathEscapes => "path-escapes",
            Self::ReadOnly => "read-only",
            Self::IsADirectory => "is-a-directory",
            Self::NotADirectory => "not-a-directory",
            Self::AlreadyExists => "already-exists",
            Self::TooLarge => "too-large",
            Self::Timeout => "timeout",
            Self::Gone => "gone",
            Self::Unavailable => "unavailable",
            Self::Unauthorized => "unauthorized",
            Self::Capacity => "capacity",
            Self::Unsupported => "unsupported",
            Self::InvalidArgument => "invalid-argument",
            Self::CapabilityDenied => "capability-denied",
            Self::Other => "other",
            Self::Busy => "busy",
            Self::ExitUnknown => "exit-unknown",
            Self::GuestTrap => "guest-trap",
            Self::GuestCpu => "guest-cpu",
            Self::GuestMemory => "guest-memory",
            Self::GuestProtocol => "guest-protocol",
            Self::ComponentEmpty => "component-empty",
            Self::ComponentText => "component-text",
            Self::ComponentCoreModule => "component-core-module",
            Self::ComponentTruncated => "component-truncated",
            Self::ComponentInvalid => "component-invalid",
            Self::ComponentWorld => "component-world",
            Self::ComponentTooLarge => "component-too-large",
            Self::ComponentUnreadable => "component-unreadable",
            Self::DigestMismatch => "digest-mismatch",
            Self::GrantMissing => "grant-missing",
            Self::Config => "config",
            Self::UnknownProvider => "unknown-provider",
            Self::LeaseStoreDown => "lease-store-down",
            Self::BeingDestroyed => "being-destroyed",
            Self::NotOwner => "not-owner",
            Self::IdentityCollision => "identity-collision",
            Self::CapacityInitializing => "capacity-initializing",
            Self::CapacityBackend => "capacity-backend",
            Self::ShuttingDown => "shutting-down",
            Self::Internal => "internal",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What every fallible operation of the library returns.
///
/// [`Display`](fmt::Display) gives the message and, if there is one, the hint, for a terminal or a log. Neither ever
/// holds a secret or a path of the host that the caller did not name. A message may hold names that an agent or a provider
/// chose: there, their control characters are escaped, while [`message`](Self::message) has them as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    code: Code,
    message: String,
    hint: Option<String>,
    retry_after_ms: Option<u64>,
    size: Option<(u64, u64)>,
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Problems of a configuration are laid out in lines, and only the operator has a say in them.
        escape(f, &self.message, self.code == Code::Config)?;
        match &self.hint {
            None => Ok(()),
            // Hints are our own words: a line break in one is meant.
            Some(hint) => f.write_str("; ").and_then(|()| escape(f, hint, true)),
        }
    }
}

/// Writes a text so that it can neither steer a terminal nor, without `lines`, pretend to be more than one line.
fn escape(f: &mut fmt::Formatter<'_>, text: &str, lines: bool) -> fmt::Result {
    text.chars().try_for_each(|c| match c {
        '\n' if lines => f.write_char(c),
        c if c.is_control() => write!(f, "{}", c.escape_default()),
        c => f.write_char(c),
    })
}

impl Error {
    /// An error with a message that names the thing and what happened to it (lower case, no full stop).
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, retry_after_ms: None, size: None }
    }

    /// Say what to do next (lower case, no full stop).
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Say when to try again.
    #[must_use]
    pub fn retry_after_ms(mut self, milliseconds: u64) -> Self {
        self.retry_after_ms = Some(milliseconds);
        self
    }

    /// Say how large it was and how large it may be, in bytes.
    #[must_use]
    pub fn sizes(mut self, size: u64, limit: u64) -> Self {
        self.size = Some((size, limit));
        self
    }

    /// Put a context in front of the message: `what: message`.
    #[must_use]
    pub fn context(mut self, what: impl fmt::Display) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// Change the texts, for example to take secrets out of them.
    #[must_use]
    pub(crate) fn map_text(mut self, change: impl Fn(&str) -> String) -> Self {
        self.message = change(&self.message);
        self.hint = self.hint.as_deref().map(change);
        self
    }

    /// Message and hint as they are, for another program: it gets names that it can use, and secrets are still found.
    pub(crate) fn exact(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{}; {hint}", self.message),
            None => self.message.clone(),
        }
    }

    /// What programs match on.
    pub fn code(&self) -> Code {
        self.code
    }

    /// What happened, without the hint.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What to do next.
    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// When to try again, in milliseconds.
    pub fn retry_after(&self) -> Option<u64> {
        self.retry_after_ms
    }

    /// The size that was found and the limit, in bytes.
    pub fn size_and_limit(&self) -> Option<(u64, u64)> {
        self.size
    }
}

/// The library's result type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Makes one short constructor per common code: `Error::not_found("…")`.
macro_rules! constructors {
    ($($name:ident => $code:ident),* $(,)?) => {
        impl Error {
            $(
                #[doc = concat!("An error with [`Code::", stringify!($code), "`].")]
                pub fn $name(message: impl Into<String>) -> Self {
                    Self::new(Code::$code, message)
                }
            )*
        }
    };
}

constructors! {
    not_found => NotFound,
    permission_denied => PermissionDenied,
    path_escapes => PathEscapes,
    read_only => ReadOnly,
    is_a_directory => IsADirectory,
    not_a_directory => NotADirectory,
    already_exists => AlreadyExists,
    timeout => Timeout,
    unavailable => Unavailable,
    unsupported => Unsupported,
    invalid_argument => InvalidArgument,
    capability_denied => CapabilityDenied,
    other => Other,
    config => Config,
    internal => Internal,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_an_error_can_not_forge_lines_or_steer_a_terminal() {
        let name = "/mnt/a\n2026-01-01 ERROR forged\r\u{1b}[2J\u{9b}31mü\t\u{7}";
        let error = Error::not_found(format!("{name} does not exist")).hint("look\nelsewhere\u{1b}");
        let shown = r"/mnt/a\n2026-01-01 ERROR forged\r\u{1b}[2J\u{9b}31mü\t\u{7} does not exist; look".to_owned()
            + "\nelsewhere\\u{1b}";
        assert_eq!(error.to_string(), shown);
        // Programs get what is meant.
        assert_eq!(error.message(), format!("{name} does not exist"));
        assert_eq!(error.exact(), format!("{name} does not exist; look\nelsewhere\u{1b}"));
        // An error in an error is not escaped twice.
        assert_eq!(Error::other(error.to_string()).message(), shown);
    }

    #[test]
    fn the_problems_of_a_configuration_keep_their_lines() {
        assert_eq!(Error::config("2 problems\n  a\n  b\u{1b}").to_string(), "2 problems\n  a\n  b\\u{1b}");
    }
}
