//! The operations of a sandbox by its own `exec`.

use super::ere::Pattern;
use super::files::{make_dir_script, parse_stat, remove_script, stat_script};
use super::glob::{GlobSink, glob_script};
use super::grep::{GrepSink, grep_script};
use super::list::{ListSink, list_script};
use super::matcher::Matcher;
use super::quote::Target;
use super::read::{Reading, Step, read_script};
use super::run::{Flow, NoOutput, OneLine, Run, Sink};
use super::write::{commit_script, parse_upload, upload_script};
use crate::bindings::{wit_future, wit_stream};
use crate::error::Result;
use crate::provider::Sandbox;
use crate::values::*;

/// Starts a script. Its own limits are the provider's.
async fn start<S: Sandbox>(instance: Vec<u8>, script: String, stdin: Option<ByteStream>) -> Result<EventStream> {
    S::exec(instance, ExecRequest::new(script), stdin, None).await
}

/// Runs a script to its result. When the result is there before the script has ended, dropping the events ends it.
async fn run<S: Sandbox, K: Sink>(
    instance: Vec<u8>,
    target: Target,
    script: String,
    stdin: Option<ByteStream>,
    sink: K,
) -> Result<K::Output> {
    let mut events = start::<S>(instance, script, stdin).await?;
    let mut run = Run::new(target, sink);
    while let Some(event) = events.next().await {
        if run.see(event)? == Flow::Enough {
            return run.finish();
        }
    }
    Err(run.cut())
}

/// Reads a file or a part of it, by one command. The state is there at once; the bytes come as they are taken.
///
/// Links are followed. The result of `done` is an error if the command was ended or failed after the file was opened, or
/// if the provider's output limit cut it.
pub async fn read_file<S: Sandbox>(instance: Vec<u8>, path: String, range: ReadRange) -> Result<Content> {
    let target = Target::parse(&path)?;
    let script = read_script(&target, range)?;
    let mut events = start::<S>(instance, script, None).await?;
    let mut reading = Reading::new(target);
    let mut ended = false;
    let (stat, first) = loop {
        let Some(event) = events.next().await else { return Err(reading.cut()) };
        let first = match reading.see(event)? {
            Step::Data(bytes) => bytes,
            Step::More => continue,
            Step::End => {
                ended = true;
                Vec::new()
            }
        };
        if let Some(stat) = reading.stat() {
            break (stat, first);
        }
    };
    let (mut writer, data) = wit_stream::new();
    let broken = || Err(Error::Unavailable("the reading of a file was broken off".into()));
    let (result, done) = wit_future::new::<Result<()>>(broken);
    wit_bindgen::rt::async_support::spawn_local(async move {
        let mut bytes = first;
        let end = loop {
            // What is not taken is given back: then nobody reads any more, and the command is ended by leaving it.
            if !bytes.is_empty() && !writer.write_all(std::mem::take(&mut bytes)).await.is_empty() {
                break Ok(());
            }
            if ended {
                break Ok(());
            }
            let Some(event) = events.next().await else { break Err(reading.cut()) };
            match reading.see(event) {
                Ok(Step::Data(more)) => bytes = more,
                Ok(Step::More) => {}
                Ok(Step::End) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        drop(events);
        drop(writer);
        // An error here means that nobody wants to know.
        let _ = result.write(end).await;
    });
    Ok(Content { stat, data, done })
}

/// Writes all of `data`, by two commands: into a new file beside the target, and from there in place. Makes parents;
/// follows a link in the last segment; a replaced file's mode stays, and its owner where that is allowed.
///
/// When `data` breaks off, the target is as it was, in every mode. A file `.upload-NUMBERS.part` may stay beside it.
pub async fn write_file<S: Sandbox>(
    instance: Vec<u8>,
    path: String,
    data: ByteStream,
    options: WriteOptions,
) -> Result<u64> {
    let target = Target::parse(&path)?;
    let script = upload_script(&target, options)?;
    let sink = OneLine::new(parse_upload);
    let upload = run::<S, _>(instance.clone(), target.clone(), script, Some(data), sink).await?;
    let script = commit_script(&target, options, &upload);
    run::<S, _>(instance, target, script, None, NoOutput).await?;
    Ok(upload.size)
}

/// The state of a file, directory or link itself. `read-only` is always false: a shell does not know mounts.
pub async fn stat<S: Sandbox>(instance: Vec<u8>, path: String) -> Result<FileStat> {
    let target = Target::parse(&path)?;
    let script = stat_script(&target);
    run::<S, _>(instance, target, script, None, OneLine::new(parse_stat)).await
}

/// A directory's entries, sorted. Of more than `limit`, those that `find` names first.
pub async fn list_dir<S: Sandbox>(instance: Vec<u8>, path: String, options: ListOptions) -> Result<Listing> {
    let target = Target::parse(&path)?;
    let script = list_script(&target, options)?;
    run::<S, _>(instance, target, script, None, ListSink::new(options)).await
}

/// Paths that match, sorted. Links are not followed below the root.
pub async fn glob<S: Sandbox>(
    instance: Vec<u8>,
    path: String,
    pattern: String,
    options: GlobOptions,
) -> Result<GlobResult> {
    let target = Target::parse(&path)?;
    let matcher = Matcher::new(&pattern).map_err(Error::InvalidArgument)?;
    let script = glob_script(&target, &matcher, options)?;
    run::<S, _>(instance, target.clone(), script, None, GlobSink::new(target, matcher, options)).await
}

/// Lines that match, sorted by path and number. The sandbox's `grep` matches, by a POSIX expression that means the same;
/// `unsupported` names what has none, such as look-around.
pub async fn grep<S: Sandbox>(
    instance: Vec<u8>,
    path: String,
    pattern: String,
    options: GrepOptions,
) -> Result<GrepResult> {
    let target = Target::parse(&path)?;
    let pattern = Pattern::new(&pattern, options.literal, options.case_sensitive)?;
    let glob = options.glob.as_deref().map(Matcher::new).transpose().map_err(Error::InvalidArgument)?;
    let script = grep_script(&target, &pattern, glob.as_ref(), &options)?;
    run::<S, _>(instance, target.clone(), script, None, GrepSink::new(target, glob, &options)).await
}

/// Removes a file, a link (never its target) or a directory, which must be empty unless `recursive`.
pub async fn remove<S: Sandbox>(instance: Vec<u8>, path: String, recursive: bool) -> Result<()> {
    let target = Target::parse(&path)?;
    let script = remove_script(&target, recursive)?;
    run::<S, _>(instance, target, script, None, NoOutput).await
}

/// Makes a directory and its parents; one that is there already is fine.
pub async fn make_dir<S: Sandbox>(instance: Vec<u8>, path: String) -> Result<()> {
    let target = Target::parse(&path)?;
    let script = make_dir_script(&target);
    run::<S, _>(instance, target, script, None, NoOutput).await
}
