//! `sandgate exec`: a command's output as it comes, and its exit code as ours.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use sandgate::config::Loaded;
use sandgate::values::{ByteStream, CHUNK_SIZE, Event, ExecRequest, STREAM_DEPTH, Signal, SignalStream};
use sandgate::{Code, Error, ExecInput, Sandbox};
use tokio::io::AsyncReadExt;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::args::{Whose, duration, quoted, variable};
use super::told::Told;
use super::{Outcome, Output, visit};

/// As coreutils' `timeout` says it.
pub(super) const TIMED_OUT: u8 = 124;
/// As `docker run` and `env` say it.
pub(super) const NOT_RUN: u8 = 125;

const EXAMPLES: &str = "\
Examples:
  sandgate exec -- python3 -c 'print(1 + 1)'
  sandgate exec --thread t1 -c 'for i in 1 2 3; do echo $i; sleep 1; done'
  sandgate exec --env API_TOKEN --timeout 30s -c 'curl -H \"Authorization: $API_TOKEN\" …'
  printf 'hello' | sandgate exec --stdin -- wc -c
  sandgate exec --provider e2b --thread t1 --keep -- pip install numpy

The exit code is the command's own; 124 if its timeout ended it, 125 if it could not be run.
What is printed is the command's own output, with `--output json` too; errors are JSON then.
A second Ctrl-C kills the command.";

/// Run a command in a sandbox
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Exec {
    #[command(flatten)]
    whose: Whose,

    /// A variable for this command only: NAME=VALUE, or NAME to take the value of sandgate's own environment (a value on
    /// the command line can be seen by other users of this machine)
    #[arg(short, long = "env", value_name = "NAME[=VALUE]", value_parser = variable)]
    env: Vec<(String, String)>,

    /// Where to run it [default: the workspace]
    #[arg(long, value_name = "PATH")]
    cwd: Option<String>,

    /// End it after this time, such as 90, 500ms, 1.5m; 0: no limit of its own [default: the provider's]
    #[arg(long, value_name = "TIME", value_parser = duration, allow_hyphen_values = true)]
    timeout: Option<Duration>,

    /// Keep at most so many bytes of output, head and tail
    #[arg(long, value_name = "BYTES")]
    output_limit: Option<u64>,

    /// Give our standard input to the command (without, it reads end of file)
    #[arg(long)]
    stdin: bool,

    /// Text for the sandbox's shell, instead of a program and its arguments
    #[arg(short, long = "command", value_name = "TEXT", conflicts_with = "argv", required_unless_present = "argv")]
    command: Option<String>,

    /// The program and its arguments, passed exactly
    #[arg(last = true, value_name = "PROGRAM [ARG]…")]
    argv: Vec<String>,
}

impl Exec {
    pub(super) async fn run(self, loaded: Loaded, output: Output) -> Outcome {
        let mut told = Told::listen()?;
        let gateway = visit(loaded).await?;
        let at_end = self.whose.at_end();
        let outcome = match told.unless(self.whose.acquire(&gateway, output)).await {
            // From here on the command is told, and says what becomes of it.
            Ok(Ok(sandbox)) => self.run_in(sandbox).await,
            Ok(Err(error)) => Err(error),
            Err(code) => Ok(code),
        };
        Told::listen()?.close(&gateway, at_end, output, outcome).await
    }

    async fn run_in(self, sandbox: Sandbox) -> Outcome {
        let request = ExecRequest {
            command: self.command.unwrap_or_else(|| quoted(&self.argv)),
            env: self.env.into_iter().collect::<BTreeMap<_, _>>(),
            cwd: self.cwd.map(|cwd| sandbox.path(&cwd)).transpose()?,
            timeout: self.timeout,
            output_limit: self.output_limit,
        };
        let input = ExecInput { stdin: self.stdin.then(standard_input), signals: Some(our_signals()?) };
        let mut running = sandbox.exec_with(request, input).await?;
        while let Some(event) = running.next().await {
            let written = match event {
                Event::Stdout(bytes) => write(std::io::stdout(), &bytes),
                Event::Stderr(bytes) => write(std::io::stderr(), &bytes),
                Event::Dropped(count) => write(
                    std::io::stderr(),
                    format!("\n[sandgate: {count} bytes of output left out here]\n").as_bytes(),
                ),
                Event::Exited(status) => {
                    // Codes beyond a byte can't be passed on; no shell makes any. They must not come out as a success.
                    return Ok(ExitCode::from(u8::try_from(status.code).unwrap_or(u8::MAX)));
                }
                Event::Failed(error) => return Err(error),
            };
            match written {
                Ok(()) => {}
                // Whoever read our output is gone. As a command in a pipe would, this one ends.
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(ExitCode::from(128 + 13)),
                Err(error) => return Err(Error::other(format!("the command's output can't be written: {error}"))),
            }
        }
        Err(Error::new(Code::ExitUnknown, "the command's stream ended without an exit status"))
    }
}

fn write(mut to: impl Write, bytes: &[u8]) -> std::io::Result<()> {
    to.write_all(bytes)?;
    to.flush()
}

/// Our standard input as a stream.
fn standard_input() -> ByteStream {
    let (sender, receiver) = mpsc::channel(STREAM_DEPTH);
    tokio::spawn(async move {
        let mut stdin = tokio::io::stdin();
        let mut buffer = vec![0; CHUNK_SIZE];
        loop {
            let piece = match stdin.read(&mut buffer).await {
                Ok(0) => return,
                Ok(count) => Ok(bytes::Bytes::copy_from_slice(&buffer[..count])),
                Err(error) => Err(Error::other(format!("standard input can't be read: {error}"))),
            };
            if sender.send(piece).await.is_err() {
                return;
            }
        }
    });
    receiver
}

/// What we are told to do, the command is told.
fn our_signals() -> Result<SignalStream, Error> {
    let (sender, receiver) = mpsc::channel(STREAM_DEPTH);
    for (kind, ours) in [
        (SignalKind::interrupt(), Signal::Interrupt),
        (SignalKind::terminate(), Signal::Terminate),
        (SignalKind::hangup(), Signal::Hangup),
    ] {
        let mut signals = signal(kind).map_err(|error| Error::internal(format!("no signals: {error}")))?;
        let sender = sender.clone();
        tokio::spawn(async move {
            let mut again = false;
            while signals.recv().await.is_some() {
                // A command that ignores the first Ctrl-C gets no choice at the second.
                let told = if again && ours == Signal::Interrupt { Signal::Kill } else { ours };
                again = true;
                if sender.send(told).await.is_err() {
                    return;
                }
            }
        });
    }
    Ok(receiver)
}
