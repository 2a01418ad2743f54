//! Sandgate lends code-execution sandboxes to AI agents. This crate is the trusted host: it loads sandbox providers as
//! WebAssembly components, grants each what its operator allowed, and runs commands and file operations through them.
//!
//! [`Gateway`] lends a [`Sandbox`] to a [`Scope`]; that is all of the public face that most programs need. Everything fallible
//! returns an [`Error`] with a stable [`Code`].
//!
//! ```
//! use sandgate::config::Config;
//! use sandgate::values::{ExecRequest, ReadRange, WriteOptions};
//! use sandgate::{DEFAULT_COLLECT_LIMIT, Gateway, Scope};
//!
//! # #[tokio::main]
//! # async fn main() -> sandgate::Result<()> {
//! // The built-in configuration: the Local provider, isolated by namespaces.
//! let mut config = Config::default();
//! # let state = tempfile::tempdir().map_err(|error| sandgate::Error::other(error.to_string()))?;
//! # config.gateway.state_dir = Some(state.path().join("state"));
//! config.engine.call_timeout_seconds = 30;
//! let gateway = Gateway::open(config).await?;
//!
//! let scope = Scope::new("ann".parse()?, "thread-1".parse()?);
//! let sandbox = gateway.acquire(&scope).await?;
//!
//! let script = sandbox.path("greet.sh")?;
//! sandbox.write(&script, "echo hello, $NAME; exit 3", WriteOptions::default()).await?;
//! let request = ExecRequest {
//!     command: "sh greet.sh".into(),
//!     env: [("NAME".into(), "world".into())].into(),
//!     ..ExecRequest::default()
//! };
//! let output = sandbox.exec(request).await?.output(DEFAULT_COLLECT_LIMIT).await;
//! assert_eq!(&output.stdout[..], b"hello, world\n");
//! assert_eq!(output.end?.code, 3);
//!
//! // What leads out of the sandbox is refused, with a code that programs can match on.
//! sandbox.exec(ExecRequest { command: "ln -s /etc/passwd link".into(), ..ExecRequest::default() }).await?
//!     .output(DEFAULT_COLLECT_LIMIT).await;
//! let refused = sandbox.read(&sandbox.path("link")?, ReadRange::All, 1 << 20).await;
//! assert_eq!(refused.unwrap_err().code(), sandgate::Code::PathEscapes);
//!
//! gateway.release(sandbox).await;
//! gateway.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! The components that come with Sandgate are looked for in `$SANDGATE_PROVIDERS`, in `providers` beside the running
//! program, and in `../lib/sandgate/providers` from there.

pub mod capability;
mod componentize;
pub mod config;
pub mod doctor;
pub mod engine;
pub mod env_policy;
pub mod error;
pub mod gateway;
pub mod ids;
pub mod instance;
pub mod lifecycle;
pub mod mounts;
pub mod ownership;
pub mod rewrite;
pub mod runtime;
pub mod trust;
pub mod values;

pub use componentize::componentize;
pub use error::{Code, Error, Result};
pub use gateway::{DEFAULT_COLLECT_LIMIT, ExecInput, Gateway, Output, ProviderReport, Reading, Running, Sandbox};
pub use ids::Scope;
pub use lifecycle::{ShutdownMode, Upkeep};
