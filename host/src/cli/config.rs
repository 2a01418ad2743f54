//! `sandgate config`: what the configuration says, and what it could say.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use sandgate::Error;
use sandgate::config::{self, Loaded};
use serde_json::json;

use super::{Outcome, Output, print};

/// Look at the configuration
#[derive(Debug, Subcommand)]
pub(super) enum Config {
    /// Check the configuration file; every problem is told, with line, key and remedy
    #[command(after_help = "Example:\n  sandgate --config ./sandgate.toml config check")]
    Check,
    /// Print the configuration in effect, defaults included and secrets left out: TOML, or JSON with --output json
    #[command(after_help = "Example:\n  sandgate config show")]
    Show,
    /// Print the JSON Schema of the configuration file
    #[command(after_help = "Example:\n  sandgate config schema > sandgate.schema.json")]
    Schema,
    /// Write a commented configuration file to begin with (always TOML)
    #[command(after_help = "Example:\n  sandgate config init --file sandgate.toml")]
    Init {
        /// Where to [default: standard output]; a file that is there is not touched
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
}

impl Config {
    pub(super) fn run(self, loaded: impl Fn() -> Result<Loaded, Error>, output: Output) -> Outcome {
        match self {
            Self::Check => {
                let loaded = loaded()?;
                let file = loaded.file.as_ref().map(|file| file.display().to_string());
                match output {
                    Output::Json => print::json(&json!({ "ok": true, "file": file }))?,
                    Output::Table => print::line(&match file {
                        Some(file) => format!("{file}: all well"),
                        None => {
                            "no configuration file: the built-in configuration is used (see `sandgate config init`)"
                                .into()
                        }
                    })?,
                }
            }
            Self::Show if output == Output::Json => print::json(&loaded()?.effective_json()?)?,
            Self::Show => print::line(loaded()?.effective()?.trim_end())?,
            Self::Schema => print::line(config::schema().trim_end())?,
            Self::Init { file: None } => print::line(config::init().trim_end())?,
            Self::Init { file: Some(file) } => {
                let written = std::fs::File::create_new(&file).and_then(|mut to| {
                    use std::io::Write;
                    to.write_all(config::init().as_bytes())
                });
                written.map_err(|error| match error.kind() {
                    std::io::ErrorKind::AlreadyExists => {
                        Error::already_exists(format!("{} is there already", file.display()))
                            .hint("name another file, or remove it first")
                    }
                    _ => Error::other(format!("{} can't be written: {error}", file.display())),
                })?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
