//! Everything a Sandgate provider needs: implement [`Lifecycle`] and [`Sandbox`] for a type, [`export!`] it, build for
//! `wasm32-unknown-unknown`.
//!
//! A provider that can only run commands implements [`Sandbox::exec`] and gets every file operation from
//! [`shell`], as portable shell commands.
//!
//! ```no_run
//! use sandgate_guest::prelude::*;
//! use sandgate_guest::process;
//!
//! struct Ssh;
//! sandgate_guest::export!(Ssh);
//!
//! impl Lifecycle for Ssh {
//!     fn describe() -> Description {
//!         Description::new("ssh", "0.1.0", Features::SPLIT_OUTPUT | Features::STDIN)
//!     }
//!     async fn create(request: CreateRequest) -> Result<Vec<u8>> {
//!         Ok(request.sandbox_id.into_bytes())
//!     }
//!     async fn probe(_: Vec<u8>) -> Result<Liveness> {
//!         Ok(Liveness::Alive)
//!     }
//!     async fn destroy(_: Vec<u8>) -> Result<()> {
//!         Ok(())
//!     }
//! }
//!
//! impl Sandbox for Ssh {
//!     async fn exec(
//!         _: Vec<u8>,
//!         request: ExecRequest,
//!         stdin: Option<ByteStream>,
//!         signals: Option<SignalStream>,
//!     ) -> Result<EventStream> {
//!         let args = vec!["host.example".into(), request.command];
//!         process::spawn(process::SpawnRequest::new("ssh", args), stdin, signals).await
//!     }
//! }
//! # fn main() {}
//! ```

mod error;
mod export;
mod provider;
pub mod shell;
mod values;

/// The generated bindings of the world `sandgate:provider/provider`, for what the rest of this crate does not wrap.
#[allow(missing_docs, unsafe_code, unreachable_pub, clippy::all, reason = "generated from the WIT")]
pub mod bindings {
    wit_bindgen::generate!({
        path: "wit",
        world: "provider",
        pub_export_macro: true,
        export_macro_name: "export_provider",
        default_bindings_module: "sandgate_guest::bindings",
        generate_all,
    });
}

pub use bindings::sandgate::capability::{log, process, workspace};
pub use error::Result;
pub use export::settings;
pub use provider::{Lifecycle, Sandbox};
pub use values::*;

/// What almost every provider uses.
pub mod prelude {
    pub use crate::error::Result;
    pub use crate::provider::{Lifecycle, Sandbox};
    pub use crate::values::*;
}
