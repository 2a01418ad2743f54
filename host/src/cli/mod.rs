//! The command line: what is asked, who answers, and the exit code.

mod args;
mod config;
mod doctor;
mod exec;
mod fs;
mod print;
mod provider;
mod sandbox;
mod told;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use sandgate::config::{Loaded, load};
use sandgate::lifecycle::Upkeep;
use sandgate::{Code, Error, Gateway};

const AFTER_HELP: &str = "\
Examples:
  sandgate exec --thread t1 -- python3 -c 'print(6 * 7)'
  echo hello | sandgate fs write notes.txt --thread t1
  sandgate config init --file sandgate.toml

Exit codes:
  0    it worked
  1    it was tried and failed (the error's code says how: not-found, path-escapes, …)
  2    the command line is wrong
  3    the configuration is wrong
  4    a provider's component is missing, refused or broken
  5    try again: busy, no capacity, or no answer
  124  exec: the command was ended by its timeout
  125  exec: the command could not be run, or how it ended is unknown
  N    exec: the command's own exit code; 128 + N for signal N

With `--output json`, errors are JSON objects on standard error: {\"code\", \"message\", \"hint\"}.";

/// Lend code-execution sandboxes to AI agents.
///
/// Without a configuration file the built-in one is used: the Local provider, isolated by namespaces, on this machine.
#[derive(Debug, Parser)]
#[command(name = "sandgate", version, after_help = AFTER_HELP, propagate_version = true, disable_help_subcommand = true)]
struct Cli {
    /// The configuration file [default: $SANDGATE_CONFIG, ./sandgate.toml, ~/.config/sandgate/sandgate.toml, /etc/sandgate/sandgate.toml]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,

    /// How results and errors are printed
    #[arg(long, global = true, value_enum, default_value_t = Output::Table)]
    output: Output,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people
    Table,
    /// For programs
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a command in a sandbox
    Exec(exec::Exec),
    /// Work on a sandbox's files
    #[command(subcommand)]
    Fs(fs::Fs),
    /// Look at sandboxes and end them
    #[command(subcommand)]
    Sandbox(sandbox::Sandbox),
    /// Look at and make provider components
    #[command(subcommand)]
    Provider(provider::Provider),
    /// Look at the configuration
    #[command(subcommand)]
    Config(config::Config),
    /// Say what this machine lacks, and how to get it
    #[command(
        after_help = "Examples:\n  sandgate doctor\n  sandgate doctor --output json | jq '.checks[] | select(.status != \"ok\")'"
    )]
    Doctor,
    /// Print a completion script for a shell
    #[command(after_help = "Example:\n  sandgate completions bash > /etc/bash_completion.d/sandgate")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// How a command of ours ended.
type Outcome = Result<ExitCode, Error>;

/// Parses the command line, runs it and prints what went wrong.
pub(crate) fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && asks_for_json() => {
            print::usage_as_json(&error);
            return ExitCode::from(2);
        }
        Err(error) => error.exit(),
    };
    let output = cli.output;
    logging(output);
    let failure_code = matches!(cli.command, Command::Exec(_)).then_some(exec::NOT_RUN);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            print::error(output, &Error::internal(format!("no threads to run on: {error}")));
            return ExitCode::from(1);
        }
    };
    let outcome = runtime.block_on(dispatch(cli));
    // Not the usual drop, which waits for blocked threads: a read from a terminal may never come back.
    runtime.shutdown_background();
    outcome.unwrap_or_else(|error| {
        print::error(output, &error);
        ExitCode::from(exit_code(error.code(), failure_code))
    })
}

/// Whether a command line that can't be parsed asks for JSON all the same.
fn asks_for_json() -> bool {
    let words: Vec<_> = std::env::args_os().collect();
    let pair = |pair: &[std::ffi::OsString]| pair[0] == "--output" && pair[1] == "json";
    words.windows(2).any(pair) || words.iter().any(|word| word == "--output=json")
}

async fn dispatch(cli: Cli) -> Outcome {
    let (config, output) = (cli.config, cli.output);
    let loaded = || load(config.as_deref());
    match cli.command {
        Command::Exec(exec) => exec.run(loaded()?, output).await,
        Command::Fs(fs) => fs.run(loaded()?, output).await,
        Command::Sandbox(sandbox) => sandbox.run(loaded()?, output).await,
        Command::Provider(provider) => provider.run(loaded, output).await,
        Command::Config(command) => command.run(loaded, output),
        Command::Doctor => doctor::run(loaded(), output).await,
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "sandgate", &mut std::io::stdout());
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Opens a gateway for a single command: it adopts nothing that it would only leave behind.
async fn visit(loaded: Loaded) -> Result<Gateway, Error> {
    Gateway::open_with(loaded.config, Upkeep::LeasesOnly).await
}

/// Diagnostics go to standard error, and only warnings unless `RUST_LOG` says otherwise.
fn logging(output: Output) {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match output {
        Output::Table => subscriber.with_ansi(std::io::stderr().is_terminal()).init(),
        // A program that reads JSON from standard error reads all of it.
        Output::Json => subscriber.json().init(),
    }
}

/// The exit code for an error; `exec` has one for all that is not the command's own.
fn exit_code(code: Code, exec: Option<u8>) -> u8 {
    match code {
        Code::Config | Code::UnknownProvider => exec.unwrap_or(3),
        Code::Busy
        | Code::Capacity
        | Code::CapacityInitializing
        | Code::CapacityBackend
        | Code::BeingDestroyed
        | Code::LeaseStoreDown
        | Code::ShuttingDown
        | Code::Unavailable => exec.unwrap_or(5),
        Code::Timeout if exec.is_some() => exec::TIMED_OUT,
        Code::DigestMismatch | Code::GrantMissing => exec.unwrap_or(4),
        code if code.as_str().starts_with("component-") => exec.unwrap_or(4),
        _ => exec.unwrap_or(1),
    }
}
