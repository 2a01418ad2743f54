//! From the core module that a compiler makes to the component that a gateway loads.

use wit_component::ComponentEncoder;

use crate::error::{Code, Error, Result};

/// Makes a component of a core module that was built with wit-bindgen (the crate `sandgate-guest`).
pub fn componentize(module: &[u8]) -> Result<Vec<u8>> {
    let broken = |error: anyhow::Error| {
        Error::new(Code::ComponentInvalid, format!("the module can't be made a component: {error:#}"))
            .hint("build it for wasm32-unknown-unknown with the crate sandgate-guest")
    };
    if !wasmparser::Parser::is_core_wasm(module) {
        return Err(Error::new(Code::ComponentInvalid, "this is no core WebAssembly module")
            .hint("give the .wasm file that cargo built for wasm32-unknown-unknown"));
    }
    ComponentEncoder::default().validate(true).module(module).and_then(|encoder| encoder.encode()).map_err(broken)
}
