//! The capabilities as guests call them: from the generated traits to the rooms that do the work.

use std::sync::Arc;

use wasmtime::component::{Accessor, FutureReader, StreamReader};

use super::bindings::{log, process, settings, types as wit, workspace};
use super::convert::guest_path;
use super::state::{CallState, Capabilities, no_sandbox, not_linked};
use super::streams::{FromGuest, bytes_from_guest, bytes_to_guest, channel_from_guest, to_guest};
use crate::capability::process::SpawnRequest;
use crate::capability::workspace::Workspace;
use crate::error::{Error, Result};
use crate::mounts::VirtualPath;
use crate::values::{ByteStream, SignalStream};

/// The longest log line, message and fields together.
const LOG_LINE: usize = 8 << 10;

impl wit::Host for &mut CallState {}
impl process::Host for &mut CallState {}
impl workspace::Host for &mut CallState {}

/// A failure of the host itself while it hands a stream over; no guest can cause it.
fn broken(error: wasmtime::Error) -> Error {
    Error::internal(format!("a stream could not be handed over: {error:#}"))
}

/// A guest's byte stream, for a capability to read. The call goes on until a stream that the guest makes is at its end.
fn take_bytes<T: Send + 'static>(accessor: &Accessor<T, Capabilities>, stream: StreamReader<u8>) -> Result<ByteStream> {
    accessor.with(|mut access| {
        let deadline = Arc::clone(&access.get().deadline);
        match bytes_from_guest(&mut access, stream, &deadline).map_err(broken)? {
            FromGuest::Own(own) => Ok(own),
            FromGuest::Made(made, tail) => {
                access.get().open_streams.extend(tail.closed);
                Ok(made)
            }
        }
    })
}

fn take_signals<T: Send + 'static>(
    accessor: &Accessor<T, Capabilities>,
    stream: StreamReader<wit::Signal>,
) -> Result<SignalStream> {
    accessor.with(|mut access| match channel_from_guest(&mut access, stream).map_err(broken)? {
        (own, None) => Ok(own),
        (made, Some(closed)) => {
            access.get().open_streams.push(closed);
            Ok(made)
        }
    })
}

impl<T: Send + 'static> process::HostWithStore<T> for Capabilities {
    async fn spawn(
        accessor: &Accessor<T, Self>,
        request: process::SpawnRequest,
        stdin: Option<StreamReader<u8>>,
        signals: Option<StreamReader<wit::Signal>>,
    ) -> Result<StreamReader<wit::Event>, wit::Error> {
        let (granted, target) =
            accessor.with(|mut access| (Arc::clone(&access.get().granted), access.get().target.clone()));
        let processes = granted.process.as_ref().ok_or_else(|| not_linked("process"))?;
        let target = target.ok_or_else(|| no_sandbox("process"))?;
        let cwd = request.cwd.map(|cwd| guest_path(&target.mounts.workspace(), &cwd)).transpose()?;
        let request = SpawnRequest {
            program: request.program,
            args: request.args,
            env: request.env.into_iter().collect(),
            cwd,
            timeout: request.timeout_ms.map(std::time::Duration::from_millis),
            output_limit: request.output_limit,
        };
        let stdin = stdin.map(|stdin| take_bytes(accessor, stdin)).transpose()?;
        let signals = signals.map(|signals| take_signals(accessor, signals)).transpose()?;
        let events = processes.spawn(&target.sandbox, &target.mounts, request, stdin, signals).await?;
        Ok(accessor.with(|access| to_guest(access, events)).map_err(broken)?)
    }
}

/// The workspace of the call and the path that the guest gave.
fn place<T: Send + 'static>(accessor: &Accessor<T, Capabilities>, path: &str) -> Result<(Workspace, VirtualPath)> {
    accessor.with(|mut access| {
        let state = access.get();
        let workspace = state.workspace()?;
        let base = state.target.as_ref().map_or_else(VirtualPath::root, |target| target.mounts.workspace());
        Ok((workspace, guest_path(&base, path)?))
    })
}

impl<T: Send + 'static> workspace::HostWithStore<T> for Capabilities {
    async fn read(
        accessor: &Accessor<T, Self>,
        path: String,
        range: wit::ReadRange,
    ) -> Result<wit::Content, wit::Error> {
        let (workspace, path) = place(accessor, &path)?;
        let content = workspace.read(&path, range.into()).await?;
        let made = accessor.with(|mut access| -> wasmtime::Result<_> {
            let deadline = Arc::clone(&access.get().deadline);
            let (data, ended) = bytes_to_guest(&mut access, content.data, &deadline)?;
            let done = async move {
                // A stream that was handed through is read outside, where its end is seen.
                let ended = ended.await.unwrap_or(Ok(()));
                Ok::<_, wasmtime::Error>(ended.map_err(wit::Error::from))
            };
            let done = FutureReader::new(&mut access, done)?;
            Ok(wit::Content { stat: content.stat.into(), data, done })
        });
        Ok(made.map_err(broken)?)
    }

    async fn write(
        accessor: &Accessor<T, Self>,
        path: String,
        data: StreamReader<u8>,
        options: wit::WriteOptions,
    ) -> Result<u64, wit::Error> {
        let (workspace, path) = place(accessor, &path)?;
        let data = take_bytes(accessor, data)?;
        Ok(workspace.write(&path, data, options.into()).await?)
    }

    async fn stat(accessor: &Accessor<T, Self>, path: String) -> Result<wit::FileStat, wit::Error> {
        let (workspace, path) = place(accessor, &path)?;
        Ok(workspace.stat(&path).await?.into())
    }

    async fn list_dir(
        accessor: &Accessor<T, Self>,
        path: String,
        options: wit::ListOptions,
    ) -> Result<wit::Listing, wit::Error> {
        let (workspace, path) = place(accessor, &path)?;
        Ok(workspace.list_dir(&path, options.into()).await?.into())
    }

    async fn glob(
        accessor: &Accessor<T, Self>,
        path: String,
        pattern: String,
        options: wit::GlobOptions,
    ) -> Result<wit::GlobResult, wit::Error> {
        let (workspace, path) = place(accessor, &path)?;
        Ok(workspace.glob(&path, &pattern, &options.into()).await?.into())
    }

    async fn grep(
        accessor: &Accessor<T, Self>,
        path: String,
        pattern: String,
        options: wit::GrepOptions,
    ) -> Result<wit::GrepResult, wit::Error> {
        let (workspace, path) = place(accessor, &path)?;
        Ok(workspace.grep(&path, &pattern, &options.into()).await?.into())
    }

    async fn remove(accessor: &Accessor<T, Self>, path: String, recursive: bool) -> Result<(), wit::Error> {
        let (workspace, path) = place(accessor, &path)?;
        Ok(workspace.remove(&path, recursive).await?)
    }

    async fn make_dir(accessor: &Accessor<T, Self>, path: String) -> Result<(), wit::Error> {
        let (workspace, path) = place(accessor, &path)?;
        Ok(workspace.make_dir(&path).await?)
    }
}

impl settings::Host for &mut CallState {
    fn get(&mut self) -> String {
        self.granted.settings.clone()
    }
}

impl log::Host for &mut CallState {
    fn log(&mut self, level: log::Level, mut message: String, fields: Vec<(String, String)>) {
        self.log_lines = match self.log_lines {
            0 => return,
            left => left - 1,
        };
        for (name, value) in fields {
            message.push_str(&format!(" {name}={value:?}"));
            if message.len() > LOG_LINE {
                break;
            }
        }
        if message.len() > LOG_LINE {
            let cut = (0..=LOG_LINE).rev().find(|&at| message.is_char_boundary(at)).unwrap_or(0);
            message.truncate(cut);
            message.push_str("… (cut)");
        }
        if self.log_lines == 0 {
            message.push_str(" (the provider's last line for this call: it has written too many)");
        }
        let provider = &self.granted.provider;
        let sandbox = self.target.as_ref().map(|target| target.sandbox.as_str());
        match level {
            log::Level::Trace => tracing::trace!(target: "sandgate::guest", %provider, sandbox, "{message}"),
            log::Level::Debug => tracing::debug!(target: "sandgate::guest", %provider, sandbox, "{message}"),
            log::Level::Info => tracing::info!(target: "sandgate::guest", %provider, sandbox, "{message}"),
            log::Level::Warn => tracing::warn!(target: "sandgate::guest", %provider, sandbox, "{message}"),
            log::Level::Error => tracing::error!(target: "sandgate::guest", %provider, sandbox, "{message}"),
        }
    }
}
