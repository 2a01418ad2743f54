//! The JSON Schema of the file: for editors, and for our own check of its shape.

use std::sync::LazyLock;

use serde_json::Value;

use super::Config;

static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let mut schema = schemars::schema_for!(Config).to_value();
    drop_null_defaults(&mut schema);
    schema
});

/// A default of `null` is how an absent key looks in JSON; TOML has no such thing.
fn drop_null_defaults(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if map.get("default").is_some_and(Value::is_null) {
                map.remove("default");
            }
            map.values_mut().for_each(drop_null_defaults);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_null_defaults),
        _ => {}
    }
}

/// The JSON Schema of `sandgate.toml`, as text.
pub fn schema() -> String {
    format!("{:#}", *SCHEMA)
}

/// The root of the schema.
pub(super) fn root() -> &'static Value {
    &SCHEMA
}

/// What a schema says of itself, with references followed and the "or absent" of an optional key left out.
pub(super) fn settle(mut schema: &'static Value) -> &'static Value {
    // No chain of references in our own types is this long.
    for _ in 0..8 {
        if let Some(name) = schema.get("$ref").and_then(Value::as_str).and_then(|name| name.strip_prefix("#/$defs/")) {
            schema = &root()["$defs"][name];
            continue;
        }
        let inner = schema.get("anyOf").and_then(Value::as_array).and_then(|choices| {
            choices.iter().find(|choice| choice.get("type").and_then(Value::as_str) != Some("null"))
        });
        match inner {
            Some(inner) => schema = inner,
            None => break,
        }
    }
    schema
}

/// All the keys of the file with the tables that they are in, `NAME` standing for a provider: `engine.queue`.
pub(super) fn keys() -> Vec<(String, String)> {
    fn collect(schema: &'static Value, table: &str, keys: &mut Vec<(String, String)>) {
        let schema = settle(schema);
        let below = |name: &str| if table.is_empty() { name.to_owned() } else { format!("{table}.{name}") };
        for (name, inner) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            keys.push((table.to_owned(), name.clone()));
            collect(inner, &below(name), keys);
        }
        if let Some(inner) = schema.get("additionalProperties").filter(|inner| inner.is_object()) {
            collect(inner, &below("NAME"), keys);
        }
        if let Some(inner) = schema.get("items") {
            collect(inner, table, keys);
        }
    }
    let mut keys = Vec::new();
    collect(root(), "", &mut keys);
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_described_and_has_an_example() {
        fn walk(value: &Value, path: &str) {
            for (name, inner) in value.get("properties").and_then(Value::as_object).into_iter().flatten() {
                let text = inner.get("description").and_then(Value::as_str).unwrap_or_default();
                assert!(!text.is_empty(), "{path}.{name} has no description");
                let inner_table = inner.get("$ref").is_some() || inner.get("anyOf").is_some();
                let free_form = matches!(name.as_str(), "mounts" | "providers" | "settings");
                if !inner_table && !free_form {
                    assert!(text.contains("Example: `"), "{path}.{name} has no example");
                }
            }
        }
        walk(root(), "");
        for (name, inner) in root()["$defs"].as_object().unwrap() {
            walk(inner, name);
        }
        assert!(root()["$defs"].as_object().unwrap().len() > 8);
    }

    #[test]
    fn the_schema_is_json_without_null_defaults_and_machine_paths() {
        let text = schema();
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["$defs"]["EngineConfig"]["additionalProperties"], false);
        assert_eq!(value["$defs"]["EngineConfig"]["properties"]["queue"]["default"], 1024);
        assert!(!text.contains("\"default\": null"));
        let ownership = &value["$defs"]["OwnershipConfig"];
        assert_eq!(ownership["required"], serde_json::json!(["type"]));
        assert_eq!(ownership["properties"]["redis_url"]["writeOnly"], true);
        assert_eq!(ownership["properties"]["ttl_multiplier"]["minimum"], 2.0);
        assert_eq!(value["$defs"]["LifecycleConfig"]["properties"]["replicas"]["maximum"], 100_000);
        assert!(!text.contains("/home/") && !text.contains("/root"));
    }

    #[test]
    fn keys_are_found_in_nested_tables() {
        let keys = keys();
        let has = |table: &str, key: &str| keys.iter().any(|(t, k)| t == table && k == key);
        assert!(has("", "default_provider") && has("engine", "queue") && has("mounts", "read_only"));
        assert!(has("providers.NAME.grants.process.limits", "open_files"));
        assert!(has("ownership", "redis_url") && has("providers.NAME.lifecycle", "burst_limit"));
    }
}
