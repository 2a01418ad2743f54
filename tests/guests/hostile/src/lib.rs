//! A provider that does what no provider should. Its settings or the text of a command say what.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};

use sandgate_guest::prelude::*;
use sandgate_guest::{bindings, process, workspace};

struct Hostile;

/// How often this instance was asked to remember; a fresh one begins at 0.
static REMEMBERED: AtomicU32 = AtomicU32::new(0);

sandgate_guest::export!(Hostile);

/// `behaviour` of the settings: what lifecycle functions do.
#[derive(serde::Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Settings {
    create: String,
}

impl Lifecycle for Hostile {
    fn describe() -> Description {
        Description::new("hostile", "0.6.6", Features::empty())
    }

    async fn create(request: CreateRequest) -> Result<Vec<u8>> {
        let Settings { create } = sandgate_guest::settings()?;
        match create.as_str() {
            "" => Ok(request.sandbox_id.into_bytes()),
            "remember" => Ok(REMEMBERED.fetch_add(1, Ordering::Relaxed).to_string().into_bytes()),
            "huge-record" => Ok(vec![0; 100_000]),
            other => {
                misbehave(other).await?;
                Ok(Vec::new())
            }
        }
    }

    async fn probe(_: Vec<u8>) -> Result<Liveness> {
        Err(Error::Unavailable("who knows".into()))
    }

    async fn destroy(_: Vec<u8>) -> Result<()> {
        Ok(())
    }
}

#[allow(unconditional_recursion, reason = "this is what it is for")]
fn recurse(depth: u64) -> u64 {
    black_box(recurse(black_box(depth + 1)) + depth)
}

/// Waits for ever, on a stream that nobody ever writes to.
async fn wait() {
    let (writer, mut reader) = bindings::wit_stream::new::<u8>();
    let _ = reader.next().await;
    drop(writer);
}

/// What a bad guest may do within one call.
async fn misbehave(how: &str) -> Result<()> {
    match how {
        "spin" => loop {
            black_box(0);
        },
        "grow" => {
            let mut hoard = Vec::new();
            loop {
                hoard.push(vec![1_u8; 1 << 20]);
                black_box(&hoard);
            }
        }
        "recurse" => {
            black_box(recurse(0));
            Ok(())
        }
        "panic" => panic!("on purpose"),
        "log" => {
            for line in 0..5_000 {
                sandgate_guest::log::log(sandgate_guest::log::Level::Info, &format!("line {line}"), &[]);
            }
            Ok(())
        }
        "wait" => {
            wait().await;
            Ok(())
        }
        "huge-error" => Err(Error::Other("x".repeat(1 << 20))),
        "escape" => workspace::stat("/etc/passwd".into()).await.map(drop),
        "escape-dots" => workspace::stat("/mnt/user-data/workspace/../../../etc/passwd".into()).await.map(drop),
        "foreign-program" => {
            let request = process::SpawnRequest::new("python3", vec!["-c".into(), "print(1)".into()]);
            process::spawn(request, None, None).await.map(drop)
        }
        "program-path" => {
            let request = process::SpawnRequest::new("/bin/bash", vec!["-c".into(), "true".into()]);
            process::spawn(request, None, None).await.map(drop)
        }
        other => Err(Error::InvalidArgument(format!("no behaviour {other:?}"))),
    }
}

impl Sandbox for Hostile {
    async fn exec(
        _: Vec<u8>,
        request: ExecRequest,
        stdin: Option<ByteStream>,
        signals: Option<SignalStream>,
    ) -> Result<EventStream> {
        let command = request.command.as_str();
        if let Some(text) = command.strip_prefix("upper:") {
            // A guest that really works on the output: reads the host's stream, writes one of its own.
            let spawn = process::SpawnRequest::new("bash", vec!["-c".into(), text.into()]);
            let mut source = process::spawn(spawn, stdin, signals).await?;
            let (mut writer, events) = bindings::wit_stream::new();
            wit_bindgen::rt::async_support::spawn_local(async move {
                while let Some(event) = source.next().await {
                    let event = match event {
                        Event::Stdout(bytes) => Event::Stdout(bytes.to_ascii_uppercase()),
                        other => other,
                    };
                    if writer.write_one(event).await.is_some() {
                        return;
                    }
                }
            });
            return Ok(events);
        }
        if let Some(text) = command.strip_prefix("pass:") {
            let spawn = process::SpawnRequest::new("bash", vec!["-c".into(), text.into()]);
            return process::spawn(spawn, stdin, signals).await;
        }
        if let Some(text) = command.strip_prefix("feed:") {
            // Gives the command an input of its own making that never ends, and goes on holding it.
            let (mut input, stdin) = bindings::wit_stream::new();
            let spawn = process::SpawnRequest::new("bash", vec!["-c".into(), text.into()]);
            let events = process::spawn(spawn, Some(stdin), signals).await?;
            wit_bindgen::rt::async_support::spawn_local(async move {
                input.write_all(b"fed\n".to_vec()).await;
                wait().await;
                drop(input);
            });
            return Ok(events);
        }
        let (mut writer, events) = bindings::wit_stream::new();
        let task: std::pin::Pin<Box<dyn Future<Output = ()>>> = match command {
            "no-exit" => Box::pin(async move {
                writer.write_one(Event::Stdout(b"and then".to_vec())).await;
            }),
            "two-exits" => Box::pin(async move {
                for code in [1, 2] {
                    writer.write_one(Event::Exited(ExitStatus::from_code(code))).await;
                }
            }),
            "endless" => {
                Box::pin(async move { while writer.write_one(Event::Stdout(vec![b'x'; 65_536])).await.is_none() {} })
            }
            "count-stdin" => Box::pin(async move {
                let count = match stdin {
                    Some(stdin) => stdin.collect().await.len(),
                    None => 0,
                };
                writer.write_one(Event::Stdout(count.to_string().into_bytes())).await;
                writer.write_one(Event::Exited(ExitStatus::from_code(0))).await;
            }),
            "silent" => Box::pin(async move {
                wait().await;
                drop(writer);
            }),
            "huge-event" => Box::pin(async move {
                writer.write_one(Event::Stdout(vec![b'x'; 10 << 20])).await;
            }),
            "trap-midway" => Box::pin(async move {
                writer.write_one(Event::Stdout(b"so far".to_vec())).await;
                panic!("midway");
            }),
            "spin-midway" => Box::pin(async move {
                writer.write_one(Event::Stdout(b"so far".to_vec())).await;
                let _ = misbehave("spin").await;
            }),
            other => {
                misbehave(other).await?;
                return Err(Error::Other(format!("{other} came to its end")));
            }
        };
        wit_bindgen::rt::async_support::spawn_local(task);
        Ok(events)
    }

    async fn read_file(_: Vec<u8>, path: String, _: ReadRange) -> Result<Content> {
        let (mut writer, data) = bindings::wit_stream::new();
        let (done_writer, done) = bindings::wit_future::new(|| Ok(()));
        let failing = path.ends_with("broken");
        let silent = path.ends_with("silent");
        let hanging = path.ends_with("hanging");
        wit_bindgen::rt::async_support::spawn_local(async move {
            writer.write_all(b"half".to_vec()).await;
            if hanging {
                wait().await;
            }
            drop(writer);
            if silent {
                wait().await;
            }
            let end = if failing { Err(Error::Unavailable("the line went dead".into())) } else { Ok(()) };
            let _ = done_writer.write(end).await;
        });
        let stat = FileStat { kind: FileKind::File, size: 4, modified_ms: None, mode: 0o644, read_only: false };
        Ok(Content { stat, data, done })
    }

    async fn write_file(_: Vec<u8>, _: String, data: ByteStream, _: WriteOptions) -> Result<u64> {
        // Reads it all itself, so that the host's stream passes through guest memory.
        Ok(data.collect().await.len() as u64)
    }
}
