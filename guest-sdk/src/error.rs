//! Errors are the interface's own variant; here are the ways to make and show one.

use crate::values::Error;

/// What every function of a provider returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The text inside, for whatever case.
    pub fn message(&self) -> &str {
        match self {
            Self::NotFound(text)
            | Self::PermissionDenied(text)
            | Self::PathEscapes(text)
            | Self::ReadOnly(text)
            | Self::IsADirectory(text)
            | Self::NotADirectory(text)
            | Self::AlreadyExists(text)
            | Self::Timeout(text)
            | Self::Gone(text)
            | Self::Unavailable(text)
            | Self::Unauthorized(text)
            | Self::Unsupported(text)
            | Self::InvalidArgument(text)
            | Self::CapabilityDenied(text)
            | Self::Other(text) => text,
            Self::TooLarge(too_large) => &too_large.message,
            Self::Capacity(capacity) => &capacity.message,
        }
    }

    /// What a function without an implementation answers.
    pub fn not_supported(operation: &str) -> Self {
        Self::Unsupported(format!("this provider has no {operation}"))
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Self::Other(format!("unexpected JSON: {error}"))
    }
}
