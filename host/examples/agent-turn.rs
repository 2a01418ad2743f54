//! A whole agent turn on the Local provider: what `make demo` shows.
#![expect(clippy::print_stdout, reason = "it is there to be read")]

use std::path::{Path, PathBuf};
use std::time::Instant;

use sandgate::config::{Config, MountConfig};
use sandgate::ids::Scope;
use sandgate::values::{Event, ExecRequest, GlobOptions, GrepOptions, ListOptions, ReadRange, WriteOptions};
use sandgate::{DEFAULT_COLLECT_LIMIT, Error, Gateway, Sandbox};

const SCRIPT: &str = r#"#!/usr/bin/env bash
for step in 1 2 3; do
    echo "step $step of 3, as $(whoami) in $PWD"
    sleep 0.3
done
echo "a warning" >&2
find /mnt/code -name '*.rs' | wc -l > /mnt/user-data/outputs/count.txt
"#;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let code = std::env::args().nth(1).map_or_else(|| PathBuf::from("."), PathBuf::from);
    let code = code.canonicalize().map_err(|error| Error::not_found(format!("{}: {error}", code.display())))?;
    let state = tempfile::tempdir().map_err(|error| Error::other(error.to_string()))?;
    turn(config(state.path(), code)).await
}

/// The built-in configuration, with a source tree to look at and its own place for files.
fn config(state: &Path, code: PathBuf) -> Config {
    let mut config = Config::default();
    config.gateway.state_dir = Some(state.to_path_buf());
    config.mounts.push(MountConfig { host_path: code, container_path: "/mnt/code".into(), read_only: true });
    config
}

async fn turn(config: Config) -> Result<(), Error> {
    println!("Sandgate lends sandboxes to AI agents. This is one turn of one, on this machine.\n");
    let gateway = Gateway::open(config).await?;
    let begun = Instant::now();
    let provider = gateway.provider(&gateway.config().default_provider).await?;
    let imports = &provider.interfaces().imports;
    title(
        "provider",
        &format!("a WebAssembly component, {:.1?} to load; it may use only what it was granted:", begun.elapsed()),
    );
    for import in imports.iter().filter(|import| !import.contains("/types@")) {
        println!("    {import}");
    }

    let scope = Scope::new("ann".parse()?, "demo".parse()?);
    let begun = Instant::now();
    let sandbox = gateway.acquire(&scope).await?;
    title("acquire", &format!("user ann, thread demo: sandbox {} in {:.1?}", sandbox.id(), begun.elapsed()));

    let script = sandbox.path("count.sh")?;
    let written = sandbox.write(&script, SCRIPT, WriteOptions { text: true, ..WriteOptions::default() }).await?;
    title("write", &format!("{script}, {written} bytes"));

    title("run", "bash count.sh, its output as it comes:");
    stream(&sandbox, "bash count.sh").await?;

    let lines = sandbox.read(&script, ReadRange::Lines { start: 2, end: Some(3) }, 1 << 20).await?;
    title("read", "lines 2 to 3 of count.sh:");
    print_lines(&String::from_utf8_lossy(&lines));

    title("list", "/mnt/user-data, two levels deep:");
    let options = ListOptions { max_depth: 2, ..ListOptions::default() };
    for entry in sandbox.list_dir(&sandbox.path("/mnt/user-data")?, options).await?.entries {
        println!("    {:>6}  {}", entry.size, entry.path);
    }

    let code = sandbox.path("/mnt/code")?;
    let begun = Instant::now();
    let found = sandbox.glob(&code, "*.wit", GlobOptions::default()).await?;
    title("glob", &format!("*.wit in /mnt/code, {} files in {:.1?}:", found.paths.len(), begun.elapsed()));
    for path in &found.paths {
        println!("    {path}");
    }

    let begun = Instant::now();
    let options = GrepOptions { glob: Some("*.rs".into()), max_results: 5, ..GrepOptions::default() };
    let found = sandbox.grep(&code, r"pub async fn \w+", options).await?;
    title(
        "grep",
        &format!("pub async fn in /mnt/code, the first {} lines in {:.1?}:", found.matches.len(), begun.elapsed()),
    );
    for found in &found.matches {
        println!("    {}:{}: {}", found.path, found.line_number, found.line.trim());
    }

    denials(&sandbox).await?;

    gateway.release(sandbox).await;
    gateway.shutdown().await;
    title("release", "the sandbox is given back, and the gateway ends it when it shuts down");
    println!("\nThe same from the command line: `sandgate exec -- echo hello`, `sandgate fs ls`, `sandgate doctor`.");
    Ok(())
}

/// What an agent can't do here.
async fn denials(sandbox: &Sandbox) -> Result<(), Error> {
    title("denied", "what it may not do:");
    let write = sandbox.write(&sandbox.path("/mnt/code/evil.rs")?, "x", WriteOptions::default()).await;
    println!("    write /mnt/code/evil.rs    {}", refusal(write.err()));
    let read = sandbox.stat(&sandbox.path("/etc/shadow")?).await;
    println!("    read /etc/shadow           {}", refusal(read.err()));
    let dots = sandbox.path("../../../etc/shadow");
    println!("    read ../../../etc/shadow   {}", refusal(dots.err()));
    let commands = [
        ("cat /etc/shadow", "cat /etc/shadow"),
        ("ls /home /root", "ls -A /home /root"),
        ("reach the network", "exec 3<>/dev/tcp/192.0.2.1/80"),
    ];
    for (name, command) in commands {
        let run = sandbox.exec(ExecRequest { command: command.into(), ..ExecRequest::default() }).await?;
        let output = run.output(DEFAULT_COLLECT_LIMIT).await;
        let said = String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or("(nothing)").to_owned();
        let end = output.end.map_or_else(|error| error.code().to_string(), |status| format!("exit {}", status.code));
        println!("    {name:26} {end}: {said}");
    }
    Ok(())
}

fn refusal(error: Option<Error>) -> String {
    error.map_or_else(|| "was ALLOWED: please report this".to_owned(), |error| format!("{}: {error}", error.code()))
}

fn title(name: &str, text: &str) {
    println!("\n{name:>9}  {text}");
}

fn print_lines(text: &str) {
    for line in text.lines() {
        println!("    {line}");
    }
}

/// Runs a command and prints what it says when it says it.
async fn stream(sandbox: &Sandbox, command: &str) -> Result<(), Error> {
    let begun = Instant::now();
    let mut run = sandbox.exec(ExecRequest { command: command.into(), ..ExecRequest::default() }).await?;
    while let Some(event) = run.next().await {
        let at = format!("{:>7.1?}", begun.elapsed());
        match event {
            Event::Stdout(bytes) => {
                print_lines(&format!("{at}  stdout  {}", String::from_utf8_lossy(&bytes).trim_end()))
            }
            Event::Stderr(bytes) => {
                print_lines(&format!("{at}  stderr  {}", String::from_utf8_lossy(&bytes).trim_end()))
            }
            Event::Dropped(count) => println!("    {at}  ({count} bytes left out)"),
            Event::Exited(status) => println!("    {at}  exit {}", status.code),
            Event::Failed(error) => return Err(error),
        }
    }
    Ok(())
}
