//! The two traits that a provider implements.

use std::future::Future;

use crate::error::Result;
use crate::shell;
use crate::values::*;

/// The life of a sandbox at its backend. See the WIT interface `sandgate:provider/lifecycle` for what each promises.
pub trait Lifecycle {
    /// Name, version and features. Must not depend on settings or on a backend.
    fn describe() -> Description;

    /// Make a sandbox, wait until it can run commands, and return what finds it again (at most 64 KiB).
    fn create(request: CreateRequest) -> impl Future<Output = Result<Vec<u8>>>;

    /// The existing sandbox with this id. Say [`Features::FINDABLE`] if you implement it.
    fn find(_: CreateRequest) -> impl Future<Output = Result<Option<Vec<u8>>>> {
        async { Err(Error::not_supported("find")) }
    }

    /// All sandboxes of this deployment. Say [`Features::LISTABLE`] if you implement it.
    fn inventory(_deployment: String, _cursor: Option<String>) -> impl Future<Output = Result<Page>> {
        async { Err(Error::not_supported("inventory")) }
    }

    /// Alive, or dead for certain; an error means unknown.
    fn probe(instance: Vec<u8>) -> impl Future<Output = Result<Liveness>>;

    /// End it; one that is gone already is a success.
    fn destroy(instance: Vec<u8>) -> impl Future<Output = Result<()>>;

    /// Push the backend's own end out. Say [`Features::EXTENDABLE`] if you implement it.
    fn extend(_instance: Vec<u8>, _timeout_ms: u64) -> impl Future<Output = Result<()>> {
        async { Err(Error::not_supported("extend")) }
    }
}

/// Commands and files in one sandbox. Only [`exec`](Self::exec) is needed: the rest has portable defaults on top of it, in
/// [`shell`], which want `sh` and a few of the usual tools in the sandbox (BusyBox has them all).
pub trait Sandbox: Sized {
    /// Start a command. It runs in a shell of the sandbox; stdout, stderr and the end come in one stream.
    fn exec(
        instance: Vec<u8>,
        request: ExecRequest,
        stdin: Option<ByteStream>,
        signals: Option<SignalStream>,
    ) -> impl Future<Output = Result<EventStream>>;

    /// Read a file or a part of it.
    fn read_file(instance: Vec<u8>, path: String, range: ReadRange) -> impl Future<Output = Result<Content>> {
        shell::read_file::<Self>(instance, path, range)
    }

    /// Write all of `data`, making parents; returns the number of bytes.
    fn write_file(
        instance: Vec<u8>,
        path: String,
        data: ByteStream,
        options: WriteOptions,
    ) -> impl Future<Output = Result<u64>> {
        shell::write_file::<Self>(instance, path, data, options)
    }

    /// Does not follow a link in the last segment.
    fn stat(instance: Vec<u8>, path: String) -> impl Future<Output = Result<FileStat>> {
        shell::stat::<Self>(instance, path)
    }

    /// A directory's entries, sorted.
    fn list_dir(instance: Vec<u8>, path: String, options: ListOptions) -> impl Future<Output = Result<Listing>> {
        shell::list_dir::<Self>(instance, path, options)
    }

    /// Paths that match.
    fn glob(
        instance: Vec<u8>,
        path: String,
        pattern: String,
        options: GlobOptions,
    ) -> impl Future<Output = Result<GlobResult>> {
        shell::glob::<Self>(instance, path, pattern, options)
    }

    /// Lines that match.
    fn grep(
        instance: Vec<u8>,
        path: String,
        pattern: String,
        options: GrepOptions,
    ) -> impl Future<Output = Result<GrepResult>> {
        shell::grep::<Self>(instance, path, pattern, options)
    }

    /// Remove a file, a link, or a directory.
    fn remove(instance: Vec<u8>, path: String, recursive: bool) -> impl Future<Output = Result<()>> {
        shell::remove::<Self>(instance, path, recursive)
    }

    /// Make a directory and its parents.
    fn make_dir(instance: Vec<u8>, path: String) -> impl Future<Output = Result<()>> {
        shell::make_dir::<Self>(instance, path)
    }
}
