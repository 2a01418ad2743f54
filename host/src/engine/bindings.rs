//! The generated host side of `wit/`.

#[allow(missing_docs, unreachable_pub, clippy::all, reason = "generated from the WIT")]
mod generated {
    wasmtime::component::bindgen!({
        path: "wit",
        world: "provider",
        require_store_data_send: true,
    });
}

pub(super) use generated::exports::sandgate::provider::{lifecycle, sandbox};
pub(super) use generated::sandgate::capability::{log, process, settings, types, workspace};
pub(super) use generated::{Provider as Exports, ProviderPre as ExportsPre};
