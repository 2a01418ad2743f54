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
///
/// An error names the key, never its value, which may be a secret.
pub fn settings<T: DeserializeOwned>() -> Result<T> {
    read_settings(&host_settings::get())
}

fn read_settings<T: DeserializeOwned>(json: &str) -> Result<T> {
    serde_json::from_str(json).map_err(|error| {
        Error::InvalidArgument(format!(
            "the provider's settings are not usable: {}; see [providers.NAME.settings]",
            complaint(json, &error)
        ))
    })
}

/// What is wrong, without the parser's own text: that quotes values.
fn complaint(json: &str, error: &serde_json::Error) -> String {
    let place = format!("(line {}, column {} of their JSON)", error.line(), error.column());
    if error.classify() != serde_json::error::Category::Data {
        return format!("they are not JSON {place}");
    }
    let text = error.to_string();
    if let Some((field, _)) = text.strip_prefix("missing field `").and_then(|rest| rest.split_once('`')) {
        return format!("key {field:?} is missing");
    }
    let said = if text.starts_with("unknown field ") { "is unknown" } else { "has a value of the wrong type or form" };
    match last_key(json, error.line(), error.column()) {
        Some(key) => format!("key \"{key}\" {said} {place}"),
        None => format!("a key {said} {place}"),
    }
}

/// The last key of the outermost object that stands before a place: the one that the parser was at.
fn last_key(json: &str, line: usize, column: usize) -> Option<&str> {
    let start: usize = json.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let end = start.saturating_add(column).min(json.len());
    let (mut depth, mut opened, mut escaped, mut in_key_place) = (0_u32, None, false, false);
    let mut key = None;
    for (at, byte) in json.bytes().enumerate().take(end) {
        match (opened, byte) {
            (Some(_), _) if escaped => escaped = false,
            (Some(_), b'\\') => escaped = true,
            (Some(from), b'"') => {
                if depth == 1 && in_key_place {
                    key = json.get(from..at);
                }
                (opened, in_key_place) = (None, false);
            }
            (Some(_), _) => {}
            (None, b'"') => opened = Some(at + 1),
            (None, b'{' | b'[') => (depth, in_key_place) = (depth + 1, byte == b'{'),
            (None, b'}' | b']') => (depth, in_key_place) = (depth.saturating_sub(1), false),
            (None, b',') => in_key_place = true,
            (None, _) => {}
        }
    }
    key
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

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read from JSON")]
    struct Settings {
        url: String,
        #[serde(default)]
        port: u16,
        #[serde(default)]
        kind: Option<Kind>,
        #[serde(default)]
        hosts: Vec<u16>,
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        One,
    }

    #[test]
    fn an_error_names_the_key_and_never_a_value() {
        for (json, parts) in [
            (r#"{"url":"a","port":"hunter2"}"#, &["\"port\"", "wrong type", "line 1, column"][..]),
            (r#"{"url":"a","kind":"hunter2"}"#, &["\"kind\"", "wrong type"]),
            (r#"{"url":"a, \"hunter2\": {","hosts":[1,"hunter2"],"port":1}"#, &["\"hosts\"", "wrong type"]),
            ("{\n\"url\":\"a\",\n\"port\":\"hunter2\"}", &["\"port\"", "line 3"]),
            (r#"{"url":"hunter2","prot":1}"#, &["\"prot\"", "is unknown"]),
            (r#"{"port":22}"#, &["\"url\"", "is missing"]),
            (r#""hunter2""#, &["a key", "wrong type"]),
            (r#"{"url":"hunter2"#, &["not JSON"]),
        ] {
            let error = format!("{:?}", read_settings::<Settings>(json).unwrap_err()).replace("\\\"", "\"");
            assert!(!error.contains("hunter2"), "{json}: {error}");
            assert!(parts.iter().all(|part| error.contains(part)), "{parts:?}: {error}");
        }
        assert!(read_settings::<Settings>(r#"{"url":"a","port":22}"#).is_ok());
    }
}
