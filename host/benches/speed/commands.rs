//! Commands: starting one, and what it writes, against the very same bubblewrap command started directly.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::process::Stdio;

use sandgate::values::{Event, ExecRequest};
use sandgate::{Gateway, Sandbox};
use tokio::io::AsyncReadExt;

use super::table::{Table, in_turn};
use super::{config, sandbox};

const STARTS: usize = 200;
const GIB: u64 = 1 << 30;
const STREAMS: usize = 7;

pub(crate) async fn rows(table: &mut Table) {
    let (start, stream) = ("exec true", "stream 1 GiB of output");
    if !table.wants(start) && !table.wants(stream) {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(config(state.path())).await.unwrap();
    let sandbox = sandbox(&gateway, "bench").await;
    let isolation = isolation_of(&sandbox, &state.path().join("state/etc/seccomp.bpf")).await;
    if table.wants(start) {
        let (ours, theirs) = in_turn(
            STARTS,
            || async {
                assert_eq!(drain(&sandbox, "true").await, 0);
            },
            || async {
                let output = direct(&isolation, "true").output().await.unwrap();
                assert!(output.status.success());
            },
        )
        .await;
        table.time(start, &ours, &theirs, 1.15);
    }
    if table.wants(stream) {
        let script = format!("head -c {GIB} /dev/zero");
        let (ours, theirs) = in_turn(
            STREAMS,
            || async {
                assert_eq!(drain(&sandbox, &script).await, GIB);
            },
            || async {
                let mut child = direct(&isolation, &script).spawn().unwrap();
                let (mut pipe, mut buffer, mut size) = (child.stdout.take().unwrap(), vec![0; 64 << 10], 0);
                loop {
                    match pipe.read(&mut buffer).await.unwrap() {
                        0 => break,
                        count => size += count as u64,
                    }
                }
                assert!(size == GIB && child.wait().await.unwrap().success());
            },
        )
        .await;
        table.speed(stream, &ours, &theirs, 0.7);
    }
    gateway.shutdown().await;
}

/// Runs a command through the component and counts what it writes.
async fn drain(sandbox: &Sandbox, command: &str) -> u64 {
    let mut running = sandbox.exec(ExecRequest { command: command.into(), ..ExecRequest::default() }).await.unwrap();
    let mut size = 0;
    while let Some(event) = running.next().await {
        match event {
            Event::Stdout(bytes) | Event::Stderr(bytes) => size += bytes.len() as u64,
            Event::Dropped(count) => panic!("{count} bytes were dropped"),
            Event::Exited(status) => assert_eq!(status.code, 0),
            Event::Failed(error) => panic!("{error}"),
        }
    }
    size
}

/// The bubblewrap command line that the sandbox's commands have, up to the shell: read from one that runs. With it the
/// small shell in front that opens the seccomp filter and the place for the status, which can't be seen any more.
async fn isolation_of(sandbox: &Sandbox, filter: &Path) -> Vec<OsString> {
    const MARK: &str = "echo here; read line";
    let (keep, stdin) = tokio::sync::mpsc::channel(1);
    let input = sandgate::ExecInput { stdin: Some(stdin), signals: None };
    let request = ExecRequest { command: MARK.into(), ..ExecRequest::default() };
    let mut running = sandbox.exec_with(request, input).await.unwrap();
    assert!(matches!(running.next().await, Some(Event::Stdout(_))));
    let lines = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let line = std::fs::read(entry.ok()?.path().join("cmdline")).ok()?;
        let words: Vec<OsString> =
            line.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect();
        let shell = words.iter().position(|word| word == "--")?;
        let ours = words.first()?.to_string_lossy().ends_with("bwrap") && words.iter().any(|word| word == MARK);
        ours.then(|| words[..=shell].to_vec())
    });
    let bwrap = lines.last().expect("the command that was just started has a bwrap process");
    assert!(filter.exists() && bwrap.iter().any(|word| word == "--seccomp"));
    let mut isolation: Vec<OsString> =
        ["sh", "-c", "exec 9< \"$0\" 8> /dev/null && exec \"$@\""].map(OsString::from).to_vec();
    isolation.push(filter.into());
    isolation.extend(bwrap);
    drop(keep);
    while running.next().await.is_some() {}
    isolation
}

fn direct(isolation: &[OsString], script: &str) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(&isolation[0]);
    command.args(&isolation[1..]).args(["bash", "-c", script]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}
