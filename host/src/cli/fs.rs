//! `sandgate fs`: a sandbox's files.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use sandgate::config::Loaded;
use sandgate::values::*;
use sandgate::{Error, Sandbox};
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;

use super::args::Whose;
use super::told::Told;
use super::{Outcome, Output, print, visit};

/// Work on a sandbox's files
///
/// Paths are those that commands in the sandbox see, such as /mnt/user-data/workspace/a.txt; relative ones begin at the workspace.
#[derive(Debug, Subcommand)]
pub(super) enum Fs {
    /// Print a file, or a part of it
    #[command(
        after_help = "Examples:\n  sandgate fs read report.txt\n  sandgate fs read build.log --lines 100:120\n  sandgate fs read data.bin --offset 1024 --length 16 | xxd"
    )]
    Read {
        #[command(flatten)]
        at: At,
        /// Only these lines, from 1: FIRST:LAST, FIRST: or :LAST
        #[arg(long, value_name = "FIRST:LAST", value_parser = lines, conflicts_with_all = ["offset", "length"])]
        lines: Option<(u64, Option<u64>)>,
        /// Begin at this byte, from 0
        #[arg(long, value_name = "BYTES")]
        offset: Option<u64>,
        /// Print at most so many bytes
        #[arg(long, value_name = "BYTES")]
        length: Option<u64>,
    },
    /// Write standard input, or a file of this machine, into a file
    #[command(
        after_help = "Examples:\n  echo hello | sandgate fs write notes.txt\n  sandgate fs write data.csv --from ./data.csv --create-new"
    )]
    Write {
        #[command(flatten)]
        at: At,
        /// Take this file instead of standard input
        #[arg(long, value_name = "FILE")]
        from: Option<PathBuf>,
        /// Add to the end
        #[arg(long, conflicts_with = "create_new")]
        append: bool,
        /// Fail if it is there already
        #[arg(long)]
        create_new: bool,
    },
    /// List a directory
    #[command(after_help = "Example:\n  sandgate fs ls --depth 2 /mnt/user-data")]
    Ls {
        #[command(flatten)]
        whose: Whose,
        /// The directory
        #[arg(default_value = ".")]
        path: String,
        /// How deep: 1 lists the directory itself
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_DEPTH)))]
        depth: u32,
        /// At most so many entries
        #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_RESULTS)))]
        limit: u32,
        /// Leave out .git, node_modules and the like
        #[arg(long)]
        skip_ignored: bool,
    },
    /// Find paths by a pattern
    #[command(
        after_help = "Examples:\n  sandgate fs glob '*.py'\n  sandgate fs glob 'src/**/*.{rs,toml}' /mnt/user-data/workspace/project"
    )]
    Glob {
        #[command(flatten)]
        whose: Whose,
        /// The pattern: * and ? within a segment, ** over segments, […], {a,b}
        pattern: String,
        /// Where to look
        #[arg(default_value = ".")]
        path: String,
        /// Directories too
        #[arg(long)]
        dirs: bool,
        /// Also in .git, node_modules and the like
        #[arg(long)]
        no_ignore: bool,
        /// At most so many paths
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_RESULTS)))]
        max: u32,
    },
    /// Find lines by a regular expression
    #[command(
        after_help = "Examples:\n  sandgate fs grep 'fn \\w+' --glob '*.rs'\n  sandgate fs grep --literal 'a.b(c)' src/main.c"
    )]
    Grep {
        #[command(flatten)]
        whose: Whose,
        /// The regular expression
        pattern: String,
        /// Where to look: a directory or a file
        #[arg(default_value = ".")]
        path: String,
        /// Only in files that match this pattern
        #[arg(long, value_name = "PATTERN")]
        glob: Option<String>,
        /// The pattern is plain text
        #[arg(long)]
        literal: bool,
        /// Upper and lower case differ
        #[arg(long)]
        case_sensitive: bool,
        /// Also in .git, node_modules and the like
        #[arg(long)]
        no_ignore: bool,
        /// At most so many lines
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_RESULTS)))]
        max: u32,
    },
    /// Remove a file, a link, or a directory
    #[command(after_help = "Examples:\n  sandgate fs rm notes.txt\n  sandgate fs rm -r build")]
    Rm {
        #[command(flatten)]
        at: At,
        /// A directory with all that is in it
        #[arg(short, long)]
        recursive: bool,
    },
    /// Make a directory and its parents
    #[command(after_help = "Example:\n  sandgate fs mkdir src/deep/inside")]
    Mkdir {
        #[command(flatten)]
        at: At,
    },
    /// Say what a path is (a link is not followed)
    #[command(after_help = "Example:\n  sandgate fs stat notes.txt --output json")]
    Stat {
        #[command(flatten)]
        at: At,
    },
}

/// Whose file, and which.
#[derive(Debug, Args)]
pub(super) struct At {
    #[command(flatten)]
    whose: Whose,
    /// The path
    path: String,
}

fn lines(text: &str) -> Result<(u64, Option<u64>), String> {
    let usage = || format!("{text:?} is no range of lines; write FIRST:LAST, FIRST: or :LAST, counted from 1");
    let (first, last) = text.split_once(':').ok_or_else(usage)?;
    let number = |text: &str| text.parse::<u64>().ok().filter(|&line| line > 0).ok_or_else(usage);
    let first = if first.is_empty() { 1 } else { number(first)? };
    let last = if last.is_empty() { None } else { Some(number(last)?) };
    if last.is_some_and(|last| last < first) {
        return Err(usage());
    }
    Ok((first, last))
}

impl Fs {
    fn whose(&self) -> &Whose {
        match self {
            Self::Read { at, .. }
            | Self::Write { at, .. }
            | Self::Rm { at, .. }
            | Self::Mkdir { at }
            | Self::Stat { at } => &at.whose,
            Self::Ls { whose, .. } | Self::Glob { whose, .. } | Self::Grep { whose, .. } => whose,
        }
    }

    pub(super) async fn run(self, loaded: Loaded, output: Output) -> Outcome {
        let mut told = Told::listen()?;
        let gateway = visit(loaded).await?;
        let at_end = self.whose().at_end();
        let work = async {
            let sandbox = self.whose().acquire(&gateway, output).await?;
            self.run_in(&sandbox, output).await
        };
        let outcome = told.unless(work).await.unwrap_or_else(Ok);
        told.close(&gateway, at_end, output, outcome).await
    }

    async fn run_in(self, sandbox: &Sandbox, output: Output) -> Outcome {
        match self {
            Self::Read { at, lines, offset, length } => {
                let range = match (lines, offset, length) {
                    (Some((start, end)), ..) => ReadRange::Lines { start, end },
                    (None, None, None) => ReadRange::All,
                    (None, offset, length) => ReadRange::Bytes { offset: offset.unwrap_or(0), length },
                };
                read(sandbox, &at.path, range).await
            }
            Self::Write { at, from, append, create_new } => {
                let mode = match (append, create_new) {
                    (true, _) => WriteMode::Append,
                    (_, true) => WriteMode::CreateNew,
                    _ => WriteMode::Replace,
                };
                let path = sandbox.path(&at.path)?;
                let data = input(from).await?;
                let written = sandbox.write_file(&path, data, WriteOptions { mode, text: false }).await?;
                report(output, json!({ "path": path.as_str(), "written": written }), "")
            }
            Self::Ls { path, depth, limit, skip_ignored, .. } => {
                let options = ListOptions { max_depth: depth, limit, skip_ignored };
                let listing = sandbox.list_dir(&sandbox.path(&path)?, options).await?;
                if output == Output::Json {
                    print::json(&listing)?;
                    return Ok(ExitCode::SUCCESS);
                }
                let rows: Vec<Vec<String>> = listing
                    .entries
                    .iter()
                    .map(|entry| {
                        let slash = if entry.kind == FileKind::Directory { "/" } else { "" };
                        let kind =
                            serde_json::to_value(entry.kind).ok().and_then(|kind| kind.as_str().map(String::from));
                        let path = print::shown(&entry.path);
                        vec![kind.unwrap_or_default(), entry.size.to_string(), format!("{path}{slash}")]
                    })
                    .collect();
                print::table(&rows)?;
                notes(listing.truncated, listing.skipped, "--limit");
                Ok(ExitCode::SUCCESS)
            }
            Self::Glob { pattern, path, dirs, no_ignore, max, .. } => {
                let options = GlobOptions { include_dirs: dirs, max_results: max, skip_ignored: !no_ignore };
                let found = sandbox.glob(&sandbox.path(&path)?, &pattern, options).await?;
                if output == Output::Json {
                    print::json(&found)?;
                    return Ok(ExitCode::SUCCESS);
                }
                for path in &found.paths {
                    print::line(&print::shown(path))?;
                }
                notes(found.truncated, found.skipped, "--max");
                Ok(ExitCode::SUCCESS)
            }
            Self::Grep { pattern, path, glob, literal, case_sensitive, no_ignore, max, .. } => {
                let options = GrepOptions { glob, literal, case_sensitive, max_results: max, skip_ignored: !no_ignore };
                let found = sandbox.grep(&sandbox.path(&path)?, &pattern, options).await?;
                if output == Output::Json {
                    print::json(&found)?;
                    return Ok(ExitCode::SUCCESS);
                }
                for found in &found.matches {
                    let (path, line) = (print::shown(&found.path), print::shown(&found.line));
                    print::line(&format!("{path}:{}: {line}", found.line_number))?;
                }
                notes(found.truncated, found.skipped, "--max");
                Ok(ExitCode::SUCCESS)
            }
            Self::Rm { at, recursive } => {
                let path = sandbox.path(&at.path)?;
                sandbox.remove(&path, recursive).await?;
                report(output, json!({ "path": path.as_str(), "removed": true }), "")
            }
            Self::Mkdir { at } => {
                let path = sandbox.path(&at.path)?;
                sandbox.make_dir(&path).await?;
                report(output, json!({ "path": path.as_str(), "made": true }), "")
            }
            Self::Stat { at } => {
                let path = sandbox.path(&at.path)?;
                let stat = sandbox.stat(&path).await?;
                let mut object = serde_json::to_value(&stat).map_err(|error| Error::internal(error.to_string()))?;
                object["path"] = json!(path.as_str());
                let access = if stat.read_only { "read-only" } else { "read-write" };
                let kind = object["kind"].as_str().unwrap_or_default().to_owned();
                let path = print::shown(path.as_str());
                report(output, object, &format!("{kind}  {} bytes  mode {:o}  {access}  {path}", stat.size, stat.mode))
            }
        }
    }
}

fn report(output: Output, object: serde_json::Value, text: &str) -> Outcome {
    match output {
        Output::Json => print::json(&object)?,
        Output::Table if text.is_empty() => {}
        Output::Table => print::line(text)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What a list leaves out, on standard error.
#[expect(clippy::print_stderr, reason = "notes for people")]
fn notes(truncated: bool, skipped: u32, option: &str) {
    if truncated {
        eprintln!("note: there is more; raise {option} or look at a part");
    }
    if skipped > 0 {
        eprintln!("note: {skipped} entries could not be read, or have names that are not UTF-8");
    }
}

async fn read(sandbox: &Sandbox, path: &str, range: ReadRange) -> Outcome {
    let mut content = sandbox.read_file(&sandbox.path(path)?, range).await?;
    let mut stdout = std::io::stdout().lock();
    while let Some(piece) = content.data.recv().await {
        if let Err(error) = stdout.write_all(&piece?) {
            return ended_output(&error);
        }
    }
    match stdout.flush() {
        Err(error) => ended_output(&error),
        Ok(()) => Ok(ExitCode::SUCCESS),
    }
}

/// `sandgate fs read big | head` is no failure.
fn ended_output(error: &std::io::Error) -> Outcome {
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Error::other(format!("standard output can't be written: {error}")))
}

/// A file of this machine or standard input, as a stream.
async fn input(from: Option<PathBuf>) -> Result<ByteStream, Error> {
    let (sender, receiver) = mpsc::channel(STREAM_DEPTH);
    let (mut source, name): (Box<dyn tokio::io::AsyncRead + Send + Unpin>, String) = match from {
        None => (Box::new(tokio::io::stdin()), "standard input".into()),
        Some(file) => {
            let name = file.display().to_string();
            let opened = tokio::fs::File::open(&file).await;
            let opened = opened.map_err(|error| {
                Error::not_found(format!("{name} can't be opened: {error}")).hint("--from names a file of this machine")
            })?;
            (Box::new(opened), name)
        }
    };
    tokio::spawn(async move {
        let mut buffer = bytes::BytesMut::with_capacity(CHUNK_SIZE);
        loop {
            buffer.reserve(CHUNK_SIZE);
            let piece = match source.read_buf(&mut buffer).await {
                Ok(0) => return,
                Ok(_) => Ok(buffer.split().freeze()),
                Err(error) => Err(Error::other(format!("{name} can't be read: {error}"))),
            };
            if sender.send(piece).await.is_err() {
                return;
            }
        }
    });
    Ok(receiver)
}
