//! What people and programs get to read.

use std::io::Write;

use sandgate::{Code, Error};
use serde::Serialize;

use super::Output;

/// An error on standard error.
pub(super) fn error(output: Output, error: &Error) {
    let mut stderr = std::io::stderr().lock();
    // Nobody is left to tell if standard error is closed.
    let _ = match output {
        Output::Table => {
            let hint = error.hint_text().map(|hint| format!("\n  hint: {}", lines(hint).replace('\n', "\n  ")));
            // Only a configuration's problems are meant to be several lines: a name in another message may hold one.
            let message = if error.code() == Code::Config { lines } else { shown }(error.message());
            writeln!(stderr, "error[{}]: {message}{}", error.code(), hint.unwrap_or_default())
        }
        Output::Json => {
            let object = serde_json::json!({
                "code": error.code().as_str(),
                "message": error.message(),
                "hint": error.hint_text(),
                "retry_after_ms": error.retry_after(),
            });
            writeln!(stderr, "{object}")
        }
    };
}

/// Something worth knowing, on standard error.
pub(super) fn note(output: Output, text: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = match output {
        Output::Table => writeln!(stderr, "note: {text}"),
        Output::Json => writeln!(stderr, "{}", serde_json::json!({ "note": text })),
    };
}

/// What is wrong with the command line, as JSON on standard error.
pub(super) fn usage_as_json(error: &clap::Error) {
    let object = serde_json::json!({
        "code": "usage",
        "message": error.to_string().trim_end(),
        "hint": "see `sandgate --help`",
        "retry_after_ms": null,
    });
    let _ = writeln!(std::io::stderr().lock(), "{object}");
}

/// A value as JSON on standard output.
pub(super) fn json(value: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Error::internal(error.to_string()))?;
    line(&text)
}

/// A line on standard output. A reader that went away (`| head`) is no error.
pub(super) fn line(text: &str) -> Result<(), Error> {
    let mut stdout = std::io::stdout().lock();
    match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::other(format!("standard output can't be written: {error}")))
        }
        _ => Ok(()),
    }
}

/// Rows with aligned columns; the last column is not padded.
pub(super) fn table(rows: &[Vec<String>]) -> Result<(), Error> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    for row in rows {
        let mut text = String::new();
        for (column, cell) in row.iter().enumerate() {
            text.push_str(cell);
            if column + 1 < row.len() {
                let fill = widths.get(column).copied().unwrap_or(0).saturating_sub(cell.chars().count());
                text.extend(std::iter::repeat_n(' ', fill + 2));
            }
        }
        line(text.trim_end())?;
    }
    Ok(())
}

/// A text of several lines as it may be shown in a terminal: it may hold names that an agent chose.
fn lines(text: &str) -> String {
    text.split('\n').map(shown).collect::<Vec<_>>().join("\n")
}

/// A path or a line as it may be shown in a terminal: control characters are escaped, so that a file's name can't
/// redraw the screen or pretend to be two.
pub(super) fn shown(text: &str) -> String {
    if !text.chars().any(char::is_control) {
        return text.to_owned();
    }
    text.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() }).collect()
}
