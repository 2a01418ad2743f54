//! The real program, run as its users run it.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

use super::artifacts::{cache_dir, component, program, scratch};

/// How long one run may take; only a hang gets here.
const DEADLINE: Duration = Duration::from_secs(60);

/// The program with a home, a configuration and an environment of its own.
#[derive(Debug)]
pub struct Cli {
    root: TempDir,
    env: Vec<(OsString, OsString)>,
}

/// How a run ended, and what it wrote.
#[derive(Debug)]
pub struct CliOutput {
    /// Its exit code; none if a signal ended it.
    pub code: Option<i32>,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error, as text.
    pub stderr: String,
}

impl Cli {
    /// One with the Local provider and nothing else configured but its folders.
    pub fn new() -> Self {
        Self::with_config("")
    }

    /// One whose configuration has `more` at its end. Its folders and the Local provider are there already.
    pub fn with_config(more: &str) -> Self {
        let cli = Self { root: scratch(), env: Vec::new() };
        let (state, cache) = (cli.root().join("state"), cache_dir());
        cli.write_config(&format!(
            "default_provider = \"local\"\n[gateway]\nstate_dir = {state:?}\ncache_dir = {cache:?}\n\
             [providers.local]\ncomponent = \"builtin:local\"\n\
             grants = {{ process = {{}}, workspace = {{}} }}\n{more}",
        ));
        cli
    }

    /// Where compiled components are kept, one place for all tests.
    pub fn cache_dir() -> PathBuf {
        cache_dir()
    }

    /// Replaces the configuration.
    pub fn write_config(&self, text: &str) {
        std::fs::write(self.config(), text).unwrap();
    }

    /// The configuration file.
    pub fn config(&self) -> PathBuf {
        self.root().join("sandgate.toml")
    }

    /// The directory that it runs in, which is its home as well; its state lies in `state`.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// Adds a variable to its environment, which otherwise has hardly more than a `PATH`.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// The program with arguments, not started yet; its standard input is empty.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(program());
        let providers = component("local").parent().unwrap().to_owned();
        command
            .args(args)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.root())
            .env("SANDGATE_CONFIG", self.config())
            .env("SANDGATE_PROVIDERS", providers)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir(self.root())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Starts it with a standard input that stays open.
    pub fn start(&self, args: &[&str]) -> Child {
        self.command(args).stdin(Stdio::piped()).spawn().unwrap()
    }

    /// Runs it to its end.
    pub async fn run(&self, args: &[&str]) -> CliOutput {
        finish(self.command(args).spawn().unwrap()).await
    }

    /// Runs it to its end with a standard input.
    pub async fn run_with(&self, args: &[&str], input: &[u8]) -> CliOutput {
        let mut child = self.start(args);
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        // It may end without having read all.
        let feed = tokio::spawn(async move { drop(stdin.write_all(&input).await) });
        let output = finish(child).await;
        feed.await.unwrap();
        output
    }

    /// Runs it with `--output json`, expects success, and gives what it printed.
    pub async fn json(&self, args: &[&str]) -> Value {
        let output = self.run(&[&["--output", "json"], args].concat()).await;
        output.expect(0);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{args:?}: {error}: {output:?}"))
    }

    /// Runs it with `--output json`, expects an exit code, and gives the error that it printed.
    pub async fn error(&self, args: &[&str], code: i32) -> Value {
        let output = self.run(&[&["--output", "json"], args].concat()).await;
        output.expect(code);
        serde_json::from_str(&output.stderr).unwrap_or_else(|error| panic!("{args:?}: {error}: {output:?}"))
    }
}

impl Default for Cli {
    fn default() -> Self {
        Self::new()
    }
}

/// Waits for the end of a run.
async fn finish(child: Child) -> CliOutput {
    let output =
        tokio::time::timeout(DEADLINE, child.wait_with_output()).await.expect("sandgate does not end").unwrap();
    assert_ne!(output.status.signal(), Some(6), "it aborted");
    CliOutput {
        code: output.status.code(),
        stdout: output.stdout,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

impl CliOutput {
    /// Expects an exit code.
    #[track_caller]
    pub fn expect(&self, code: i32) -> &Self {
        assert!(self.code == Some(code), "expected {code}: {self:?}\n{}", self.text());
        self
    }

    /// Its standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}
