//! Checks the parsed file against the JSON Schema of our own types: unknown keys, wrong kinds of values, values out of
//! range. The types say all of this once; serde alone would stop at the first problem and suggest nothing.

use regex::Regex;
use serde_json::Value;
use serde_spanned::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{At, KeyPath, Problems, nearest};
use super::schema::{self, settle};

pub(super) fn check(table: &DeTable<'_>, problems: &mut Problems) {
    check_table(schema::root(), table, &KeyPath::default(), problems);
}

fn check_value(schema: &'static Value, value: &Spanned<DeValue<'_>>, path: &KeyPath, problems: &mut Problems) {
    let schema = settle(schema);
    let value = value.get_ref();
    if let Some(choices) = choices(schema) {
        return check_choice(&choices, value, path, problems);
    }
    match (kind(schema), value) {
        (None, _) => check_free(value, path, problems),
        (Some("object"), DeValue::Table(table)) => check_table(schema, table, path, problems),
        (Some("array"), DeValue::Array(items)) => {
            let least = schema.get("minItems").and_then(Value::as_u64).unwrap_or(0);
            if (items.len() as u64) < least {
                problems.add(path, At::Value, "the list is empty", format!("name at least {least}"));
            }
            for (index, item) in items.iter().enumerate() {
                if let Some(inner) = schema.get("items") {
                    check_value(inner, item, &path.index(index), problems);
                }
            }
        }
        (Some("string"), DeValue::String(text)) => check_text(schema, text, path, problems),
        (Some("integer"), DeValue::Integer(number)) => {
            let number = i128::from_str_radix(number.as_str(), number.radix()).ok();
            check_range(schema, number, path, problems);
        }
        (Some("number"), DeValue::Integer(_) | DeValue::Float(_)) | (Some("boolean"), DeValue::Boolean(_)) => {}
        (Some(expected), value) => {
            let found = found(schema, value, path, problems);
            let hint = format!("write {}", wanted(expected));
            problems.add(path, At::Value, format!("expected {}, found {found}", noun(expected)), hint);
        }
    }
}

fn check_table(schema: &'static Value, table: &DeTable<'_>, path: &KeyPath, problems: &mut Problems) {
    let properties = schema.get("properties").and_then(Value::as_object);
    let additional = schema.get("additionalProperties");
    let name_pattern = schema.get("propertyNames").and_then(|names| names.get("pattern")).and_then(Value::as_str);
    for (key, value) in table {
        let (name, inner_path) = (key.get_ref().as_ref(), path.key(key.get_ref()));
        if let Some(inner) = properties.and_then(|properties| properties.get(name)) {
            check_value(inner, value, &inner_path, problems);
        } else if additional == Some(&Value::Bool(false)) {
            let known: Vec<&str> = properties.into_iter().flat_map(|keys| keys.keys().map(String::as_str)).collect();
            problems.add(&inner_path, At::Key, "unknown key", unknown_key_hint(name, path, &known));
        } else {
            if name_pattern.is_some_and(|pattern| !matches(pattern, name)) {
                let hint = "use 1 to 32 characters of a-z, 0-9 and -, beginning with a letter";
                problems.add(&inner_path, At::Key, format!("the name {name:?} is not usable"), hint);
            }
            match additional.filter(|inner| inner.is_object()) {
                Some(inner) => check_value(inner, value, &inner_path, problems),
                None => check_free(value.get_ref(), &inner_path, problems),
            }
        }
    }
    for name in schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
        if !table.contains_key(name) {
            let example = properties
                .and_then(|keys| keys.get(name))
                .and_then(|key| key.get("description"))
                .and_then(Value::as_str)
                .and_then(|text| text.split_once("Example: `"))
                .and_then(|(_, example)| example.split_once('`'))
                .map(|(example, _)| format!("for example {example}"));
            let hint = example.unwrap_or_else(|| "`sandgate config init` prints a file that shows how".to_owned());
            problems.add(path, At::Key, format!("the key {name:?} is missing"), hint);
        }
    }
    if schema.get("minProperties").is_some() && table.is_empty() {
        let hint = "`sandgate config init` prints a file with one";
        problems.add(path, At::Key, "nothing is configured here, and at least one is needed", hint);
    }
}

/// Keys of earlier versions, and where their meaning is now, seen from the table that they were in.
const MOVED: &[(&str, &str)] = &[("max_sandboxes", "lifecycle.replicas")];

fn unknown_key_hint(name: &str, path: &KeyPath, known: &[&str]) -> String {
    if let Some((_, now)) = MOVED.iter().find(|(old, _)| *old == name) {
        return format!("it is {path}.{now} now");
    }
    if let Some(meant) = nearest(name, known.iter().copied()) {
        return format!("did you mean {meant:?}?");
    }
    let mut hint = if known.is_empty() {
        "this table has no keys".to_owned()
    } else {
        format!("the keys here are {}", known.join(", "))
    };
    // The right key in the wrong table is the other common slip.
    if let Some((table, _)) = schema::keys().iter().find(|(_, key)| key == name) {
        let here = path.to_string();
        let home = if table.is_empty() { "the top of the file".to_owned() } else { format!("[{table}]") };
        if here != *table {
            hint = format!("{name:?} belongs to {home}; {hint}");
        }
    }
    hint
}

/// The values of an enumeration.
fn choices(schema: &Value) -> Option<Vec<&str>> {
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return Some(values.iter().filter_map(Value::as_str).collect());
    }
    let values = schema.get("oneOf").and_then(Value::as_array)?;
    // schemars gives documented variants one by one, and plain ones together.
    Some(
        values
            .iter()
            .flat_map(|one| match one.get("const") {
                Some(value) => value.as_str().into_iter().collect(),
                None => choices(one).unwrap_or_default(),
            })
            .collect(),
    )
}

fn check_choice(choices: &[&str], value: &DeValue<'_>, path: &KeyPath, problems: &mut Problems) {
    if value.as_str().is_some_and(|text| choices.contains(&text)) {
        return;
    }
    let meant = value.as_str().and_then(|text| nearest(text, choices.iter().copied()));
    let all = choices.iter().map(|choice| format!("{choice:?}")).collect::<Vec<_>>().join(", ");
    let hint = match meant {
        Some(meant) if choices.len() > 1 => format!("did you mean {meant:?}? Possible are {all}"),
        _ if choices.len() == 1 => format!("only {all} is possible today"),
        _ => format!("possible are {all}"),
    };
    let found = found(&Value::Null, value, path, problems);
    problems.add(path, At::Value, format!("{found} is not possible here"), hint);
}

fn check_text(schema: &Value, text: &str, path: &KeyPath, problems: &mut Problems) {
    let Some(pattern) = schema.get("pattern").and_then(Value::as_str) else { return };
    if !matches(pattern, text) {
        let shown = found(schema, &DeValue::String(text.into()), path, problems);
        let hint = match schema.get("x-accepts").and_then(Value::as_str) {
            Some(accepts) => accepts.to_owned(),
            None => format!("it has to match {pattern}"),
        };
        problems.add(path, At::Value, format!("{shown} does not have the right form"), hint);
    }
}

fn check_range(schema: &Value, number: Option<i128>, path: &KeyPath, problems: &mut Problems) {
    let bound = |name: &str| schema.get(name).and_then(Value::as_i64).map(i128::from);
    let (least, most) = (bound("minimum"), bound("maximum"));
    let fits = number.is_some_and(|n| least.is_none_or(|least| n >= least) && most.is_none_or(|most| n <= most));
    if !fits {
        let shown = number.map_or_else(|| "this number".to_owned(), |number| number.to_string());
        let hint = match (least, most) {
            (Some(least), Some(most)) => format!("use {least} to {most}"),
            (Some(least), None) => format!("use {least} or more"),
            (None, Some(most)) => format!("use at most {most}"),
            (None, None) => "use a smaller number".to_owned(),
        };
        problems.add(path, At::Value, format!("{shown} is out of range"), hint);
    }
}

/// Free-form settings become JSON, which has no dates and no infinite numbers.
fn check_free(value: &DeValue<'_>, path: &KeyPath, problems: &mut Problems) {
    match value {
        DeValue::Table(table) => {
            for (key, value) in table {
                check_free(value.get_ref(), &path.key(key.get_ref()), problems);
            }
        }
        DeValue::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                check_free(item.get_ref(), &path.index(index), problems);
            }
        }
        DeValue::Datetime(_) => {
            problems.add(path, At::Value, "a date can't be handed to a component", "write it as text, in quotes");
        }
        DeValue::Float(number) if !number.as_str().parse::<f64>().is_ok_and(f64::is_finite) => {
            problems.add(path, At::Value, "this number can't be handed to a component", "use a finite number");
        }
        DeValue::Integer(number) if i64::from_str_radix(number.as_str(), number.radix()).is_err() => {
            problems.add(path, At::Value, "this number is too large", "write it as text, in quotes");
        }
        _ => {}
    }
}

fn kind(schema: &Value) -> Option<&str> {
    match schema.get("type")? {
        Value::String(kind) => Some(kind),
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null"),
        _ => None,
    }
}

fn matches(pattern: &str, text: &str) -> bool {
    Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(text))
}

fn noun(kind: &str) -> &str {
    match kind {
        "object" => "a table",
        "array" => "a list",
        "string" => "text",
        "integer" => "a whole number",
        "number" => "a number",
        _ => "true or false",
    }
}

fn wanted(kind: &str) -> &str {
    match kind {
        "object" => "a table: [name] or { key = value }",
        "array" => "a list in brackets: [\"a\", \"b\"]",
        "string" => "it in quotes",
        "integer" | "number" => "a number without quotes and unit",
        _ => "true or false, without quotes",
    }
}

/// A value as an error may show it.
fn found(schema: &Value, value: &DeValue<'_>, path: &KeyPath, problems: &Problems) -> String {
    let secret = schema.get("writeOnly").is_some() || path.in_settings();
    match value {
        DeValue::Table(_) => "a table".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        _ if secret => "something else".to_owned(),
        DeValue::String(text) => problems.shown(path, text),
        DeValue::Integer(number) => format!("the number {number}"),
        DeValue::Float(number) => format!("the number {number}"),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(date) => format!("the date {date}"),
    }
}
