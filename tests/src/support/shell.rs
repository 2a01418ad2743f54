//! Commands in a sandbox.

use bytes::Bytes;
use sandgate::values::{ByteStream, Event, ExecRequest};
use sandgate::{DEFAULT_COLLECT_LIMIT, Error, ExecInput, Output, Running, Sandbox};
use tokio::sync::mpsc;

/// A request for a command and nothing else.
pub fn command(text: impl Into<String>) -> ExecRequest {
    ExecRequest { command: text.into(), ..ExecRequest::default() }
}

/// Runs a command to its end.
pub async fn run(sandbox: &Sandbox, request: ExecRequest) -> Output {
    sandbox.exec(request).await.unwrap().output(DEFAULT_COLLECT_LIMIT).await
}

/// Runs a command that must succeed and say nothing on standard error; gives its output.
pub async fn sh(sandbox: &Sandbox, text: &str) -> String {
    let output = run(sandbox, command(text)).await;
    assert!(output.success() && output.stderr.is_empty(), "{text}: {output:?}");
    assert_eq!(output.dropped, 0);
    String::from_utf8(output.stdout.to_vec()).unwrap()
}

/// Bytes as text, for messages and comparisons.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The error that was expected.
pub fn failure<T: std::fmt::Debug>(result: Result<T, Error>) -> Error {
    result.expect_err("this must not succeed")
}

/// One word that a POSIX shell takes exactly as it is.
pub fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Names that careless code breaks on: as long as a name may be, hidden, with what shells and options take as theirs.
pub fn odd_names() -> Vec<String> {
    let mut names: Vec<String> = [
        "plain",
        "with space",
        " leading",
        "trailing ",
        "-rf",
        "--help",
        "-",
        "new\nline",
        "ends with newline\n",
        "tab\there",
        "cr\rhere",
        "it's",
        "\"double\"",
        "$(touch canary)",
        "`touch canary`",
        "$HOME",
        "a;touch canary",
        "a&b|c<d>e",
        "*",
        "?x",
        "[ab]",
        "{a,b}",
        "~",
        "#hash",
        "!bang",
        "back\\slash",
        "\\n",
        "%s%d",
        "a=b",
        "a:b",
        ".hidden",
        "..hidden",
        "...",
        "ünïcode 🦀",
        "\u{7f}\u{1b}[31m",
    ]
    .map(str::to_owned)
    .into();
    names.push("n".repeat(255));
    names
}

/// A command that is talked to line by line, so that a test waits for what the command does and never for time.
#[derive(Debug)]
pub struct Handshake {
    running: Running,
    stdin: Option<mpsc::Sender<Result<Bytes, Error>>>,
}

impl Handshake {
    /// Starts a command that reads lines.
    pub async fn start(sandbox: &Sandbox, request: ExecRequest) -> Self {
        let (stdin, stream): (_, ByteStream) = mpsc::channel(4);
        let running = sandbox.exec_with(request, ExecInput { stdin: Some(stream), signals: None }).await.unwrap();
        Self { running, stdin: Some(stdin) }
    }

    /// Sends a line.
    pub async fn say(&self, line: &str) {
        let stdin = self.stdin.as_ref().expect("standard input was closed");
        stdin.send(Ok(format!("{line}\n").into())).await.unwrap();
    }

    /// Ends its standard input.
    pub fn close(&mut self) {
        self.stdin = None;
    }

    /// The next event.
    pub async fn next(&mut self) -> Event {
        self.running.next().await.expect("the command has ended")
    }

    /// All events that are left.
    pub async fn rest(mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.running.next().await {
            events.push(event);
        }
        events
    }
}
