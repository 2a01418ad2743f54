//! From the traits to the component's exports, and the settings.

use serde::de::DeserializeOwned;

use crate::bindings::exports::sandgate::provider::{lifecycle, sandbox};
use crate::bindings::sandgate::capability::settings as host_settings;
use crate::error::Result;
use crate::provider::{Lifecycle, Sandbox};
use crate::values::*;

/// Makes the component export a type that implements [`Lifecycle`] and [`Sandbox`].
#[macro_export]
macro_rules! export {
    ($provider:ident) => {
        $crate::bindings::export_provider!($provider with_types_in $crate::bindings);
    };
}

/// The provider's settings, `[providers.NAME.settings]` of the configuration. Let the type deny unknown fields, so that
/// a mistyped key is reported and not ignored.
pub fn settings<T: DeserializeOwned>() -> Result<T> {
    serde_json::from_str(&host_settings::get()).map_err(|error| {
        Error::InvalidArgument(format!(
            "the provider's settings are not usable: {error}; see [providers.NAME.settings]"
        ))
    })
}

impl<T: Lifecycle> lifecycle::Guest for T {
    async fn describe() -> Description {
        T::describe()
    }

    async fn create(request: CreateRequest) -> Result<Vec<u8>> {
        T::create(request).await
    }

    async fn find(request: CreateRequest) -> Result<Option<Vec<u8>>> {
        T::find(request).await
    }

    async fn inventory(deployment: String, cursor: Option<String>) -> Result<Page> {
        T::inventory(deployment, cursor).await
    }

    async fn probe(instance: Vec<u8>) -> Result<Liveness> {
        T::probe(instance).await
    }

    async fn destroy(instance: Vec<u8>) -> Result<()> {
        T::destroy(instance).await
    }

    async fn extend(instance: Vec<u8>, timeout_ms: u64) -> Result<()> {
        T::extend(instance, timeout_ms).await
    }
}

impl<T: Sandbox> sandbox::Guest for T {
    async fn exec(
        instance: Vec<u8>,
        request: ExecRequest,
        stdin: Option<ByteStream>,
        signals: Option<SignalStream>,
    ) -> Result<EventStream> {
        T::exec(instance, request, stdin, signals).await
    }

    async fn read_file(instance: Vec<u8>, path: String, range: ReadRange) -> Result<Content> {
        T::read_file(instance, path, range).await
    }

    async fn write_file(instance: Vec<u8>, path: String, data: ByteStream, options: WriteOptions) -> Result<u64> {
        T::write_file(instance, path, data, options).await
    }

    async fn stat(instance: Vec<u8>, path: String) -> Result<FileStat> {
        T::stat(instance, path).await
    }

    async fn list_dir(instance: Vec<u8>, path: String, options: ListOptions) -> Result<Listing> {
        T::list_dir(instance, path, options).await
    }

    async fn glob(instance: Vec<u8>, path: String, pattern: String, options: GlobOptions) -> Result<GlobResult> {
        T::glob(instance, path, pattern, options).await
    }

    async fn grep(instance: Vec<u8>, path: String, pattern: String, options: GrepOptions) -> Result<GrepResult> {
        T::grep(instance, path, pattern, options).await
    }

    async fn remove(instance: Vec<u8>, path: String, recursive: bool) -> Result<()> {
        T::remove(instance, path, recursive).await
    }

    async fn make_dir(instance: Vec<u8>, path: String) -> Result<()> {
        T::make_dir(instance, path).await
    }
}
