//! Changes to text on its way to and from a command, on streams that are cut anywhere: secrets are redacted, and paths
//! are translated where commands see the host's own.

mod literals;
mod redact;
mod stream;
#[cfg(test)]
mod test_rng;
mod translate;

pub use redact::{MIN_SECRET, REDACTED, Redactor};
pub use translate::{TranslatedStream, Translator};
