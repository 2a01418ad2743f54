//! A loaded provider: one method for each function that it exports.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use lru::LruCache;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use wasmtime::component::Accessor;
use wasmtime::{PoolConcurrencyLimitError, Store};

use super::bindings::{Exports, ExportsPre, lifecycle, types as wit};
use super::component::{self, Interfaces};
use super::convert::{Description, exec_request};
use super::deadline::Deadline;
use super::failure::Blame;
use super::limits::{CpuMeter, Limiter, Metered, interrupt};
use super::runtime::{Place, Runtime};
use super::state::{CallState, Granted, Target};
use super::streams::{
    FromGuest, LastWord, Tail, bytes_from_guest, bytes_to_guest, events_from_guest, next_wanted, relayed, to_guest,
};
use crate::error::{Code, Error, Result};
use crate::ids::{SandboxId, Scope};
use crate::mounts::{MountTable, VirtualPath};
use crate::rewrite::Redactor;
use crate::values::*;

/// The most bytes of an instance record.
pub const MAX_INSTANCE_RECORD: usize = 64 << 10;

/// What a backend calls a sandbox: bytes made by the provider, kept by the host, handed back on every call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InstanceRecord(pub Vec<u8>);

/// Whether a sandbox lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// It does.
    Alive,
    /// It is gone for certain.
    Dead,
}

/// A provider, ready to be called. Every call runs in an instance of its own; at most the next call of the same sandbox
/// gets an instance again, and never one that has seen injected variables.
pub struct Provider {
    runtime: Arc<Runtime>,
    pre: ExportsPre<CallState>,
    granted: Arc<Granted>,
    description: Description,
    interfaces: Interfaces,
    /// Bounded by the runtime's places for idle instances.
    idle: Mutex<LruCache<SandboxId, Idle>>,
}

impl std::fmt::Debug for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Provider")
            .field("name", &self.granted.provider)
            .field("description", &self.description)
            .finish()
    }
}

/// An instance that waits for its sandbox's next call.
struct Idle {
    store: Store<CallState>,
    exports: Exports,
    /// Whose it was. A sandbox of the same name that is made later has a table of its own, and gets nothing of this one,
    /// even if a call of the old one ended after its end.
    mounts: Arc<MountTable>,
    place: OwnedSemaphorePermit,
}

/// How long a stream that a guest makes may take, once it has been handed out.
#[derive(Debug, Clone, Copy)]
enum Patience {
    /// Something must move within the call's limit, unless it is the reader who holds things up.
    Progress,
    /// The whole of it is due within this time: a command's own timeout, and some for the provider to say so.
    Until(Duration),
    /// As long as the reader wants it.
    Endless,
}

impl Patience {
    /// Resolves when it is over.
    async fn over(self, deadline: &Deadline, reader: &LastWord) {
        match self {
            Self::Progress => loop {
                deadline.expired().await;
                if !reader.holds_up() {
                    return;
                }
                deadline.touch();
            },
            Self::Until(limit) => tokio::time::sleep(limit).await,
            Self::Endless => std::future::pending().await,
        }
    }

    fn limit(self, deadline: &Deadline) -> Duration {
        match self {
            Self::Until(limit) => limit,
            Self::Progress | Self::Endless => deadline.limit(),
        }
    }
}

/// An instance at work. The order of the fields is the order of their end: the place is free when the store is gone.
struct Session {
    store: Store<CallState>,
    exports: Exports,
    place: Place,
}

type Answer<T> = Result<T, wit::Error>;
type Called<'a, T> = BoxFuture<'a, wasmtime::Result<Answer<T>>>;

impl Provider {
    /// Compiles, links and asks the component what it is.
    pub async fn load(runtime: &Arc<Runtime>, bytes: Vec<u8>, granted: Granted) -> Result<Self> {
        let granted = Arc::new(granted);
        let (pre, interfaces) = tokio::task::spawn_blocking({
            let (runtime, granted) = (Arc::clone(runtime), Arc::clone(&granted));
            move || {
                let compiled = component::compile(&runtime, granted.provider.as_str(), &bytes)?;
                let pre = component::link(runtime.engine(), &compiled, &granted)?;
                Ok::<_, Error>((pre, component::interfaces(runtime.engine(), &compiled)))
            }
        })
        .await
        .map_err(|error| Error::internal(format!("the compiler broke: {error}")))??;
        let unknown = Description {
            name: granted.provider.to_string(),
            version: "(unknown version)".to_owned(),
            id_scheme: super::convert::IdScheme::Hashed,
            features: super::convert::Features::default(),
        };
        let mut provider = Self {
            runtime: Arc::clone(runtime),
            pre,
            granted,
            description: unknown,
            interfaces,
            idle: Mutex::new(LruCache::unbounded()),
        };
        let described: lifecycle::Description = provider
            .simple("describe", None, |accessor, exports| {
                Box::pin(async move { Ok(Ok(exports.sandgate_provider_lifecycle().call_describe(accessor).await?)) })
            })
            .await?;
        provider.description = described.try_into()?;
        Ok(provider)
    }

    /// What it says of itself.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// What it imports and exports.
    pub fn interfaces(&self) -> &Interfaces {
        &self.interfaces
    }

    /// What it was granted.
    pub fn granted(&self) -> &Granted {
        &self.granted
    }

    fn blame(&self, operation: &'static str) -> Blame {
        let provider = format!("{} {}", self.granted.provider, self.description.version);
        Blame { provider, operation }
    }

    /// An instance for a call: the one that the sandbox left, or a fresh one.
    async fn session(&self, operation: &'static str, target: Option<&Target>) -> Result<Session> {
        let place = self.runtime.enter().await?;
        if let Some(Idle { mut store, exports, .. }) = target.and_then(|target| self.left_by(target)) {
            store.data_mut().begin(target);
            store.set_epoch_deadline(1);
            return Ok(Session { store, exports, place });
        }
        let options = self.runtime.options();
        let meter = CpuMeter::new(options.cpu_limit);
        let deadline = Deadline::new(options.call_timeout, Arc::clone(&meter));
        let limiter = Limiter::new(options.memory_limit, options.table_elements);
        let mut state = CallState::new(limiter, Arc::clone(&meter), Arc::clone(&deadline), Arc::clone(&self.granted));
        state.begin(target);
        let mut store = Store::new(self.runtime.engine(), state);
        store.limiter(|state| &mut state.limiter);
        interrupt(&mut store, Arc::clone(&meter));
        // A start function may call what it was granted, and wait there.
        let instantiated = tokio::select! {
            biased;
            instantiated = Metered::new(meter, self.pre.instantiate_async(&mut store)) => instantiated,
            () = deadline.expired() => return Err(self.blame(operation).timeout(deadline.limit())),
        };
        let exports = instantiated.map_err(|error| {
            if error.is::<PoolConcurrencyLimitError>() {
                self.runtime.busy("the instance pool is exhausted".to_owned())
            } else {
                self.blame(operation).failure(&error, store.data())
            }
        })?;
        Ok(Session { store, exports, place })
    }

    /// Keeps an instance for the same sandbox's next call.
    fn keep(&self, session: Session) {
        let Session { mut store, exports, place } = session;
        let Some(target) = store.data_mut().target.take() else { return };
        if !store.data().open_streams.is_empty() {
            return;
        }
        // What it takes the place of ends here, outside of the lock and of any call.
        let mut replaced = Vec::new();
        {
            let mut idle = self.idle.lock();
            let spare = self.runtime.idle_place().or_else(|| {
                let (_, Idle { store, place, .. }) = idle.pop_lru()?;
                replaced.push(store);
                Some(place)
            });
            if let Some(spare) = spare {
                let kept = Idle { store, exports, mounts: target.mounts, place: spare };
                replaced.extend(idle.push(target.sandbox, kept).map(|(_, idle)| idle.store));
            }
        }
        drop((replaced, place));
    }

    /// The instance that a sandbox's last call left.
    fn left_by(&self, target: &Target) -> Option<Idle> {
        let left = self.idle.lock().pop(&target.sandbox);
        left.filter(|left| Arc::ptr_eq(&left.mounts, &target.mounts))
    }

    /// Drops the instance that is kept for this very stay of a sandbox, if one is.
    pub(crate) fn let_go(&self, target: &Target) {
        let left = {
            let mut idle = self.idle.lock();
            let its = idle.peek(&target.sandbox).is_some_and(|left| Arc::ptr_eq(&left.mounts, &target.mounts));
            if its { idle.pop(&target.sandbox) } else { None }
        };
        drop(left);
    }

    /// Forgets what is kept for a sandbox.
    pub fn forget(&self, sandbox: &SandboxId) {
        let left = self.idle.lock().pop(sandbox);
        drop(left);
        if let Some(processes) = &self.granted.process {
            processes.end_sandbox(sandbox);
        }
    }

    /// Runs one call until it answers, under all its limits.
    async fn run<T, F>(&self, blame: &Blame, target: Option<&Target>, call: F) -> Result<(Result<T>, Session)>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a Accessor<CallState>, &'a Exports) -> Called<'a, T> + Send,
    {
        let mut session = self.session(blame.operation, target).await?;
        let (meter, deadline) = (Arc::clone(&session.store.data().meter), Arc::clone(&session.store.data().deadline));
        let exports = &session.exports;
        let running =
            Metered::new(meter, session.store.run_concurrent(async move |accessor| call(accessor, exports).await));
        let answered = tokio::select! {
            biased;
            answered = running => answered,
            () = deadline.expired() => return Err(blame.timeout(deadline.limit())),
        };
        match answered.and_then(|answer| answer) {
            Ok(answer) => Ok((answer.map_err(Error::from), session)),
            Err(error) => Err(blame.failure(&error, session.store.data())),
        }
    }

    /// A call without streams.
    pub(super) async fn simple<T, F>(&self, operation: &'static str, target: Option<&Target>, call: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a Accessor<CallState>, &'a Exports) -> Called<'a, T> + Send,
    {
        let (answer, session) = self.run(&self.blame(operation), target, call).await?;
        self.keep(session);
        answer
    }

    /// Goes on running an instance whose guest still makes a stream, until it is done, overdue, or nobody wants it.
    fn go_on(&self, blame: Blame, session: Session, tail: Tail, patience: Patience) {
        tokio::spawn(async move {
            let mut session = session;
            let meter = Arc::clone(&session.store.data().meter);
            let deadline = Arc::clone(&session.store.data().deadline);
            let due_at_end = deadline.limit();
            let Tail { closed, last_word } = tail;
            let all_closed = async move {
                // An error is how the other side says that it is closed.
                let mut closed = closed.into_iter();
                if let Some(stream) = closed.next() {
                    let _ = stream.await;
                }
                // What belongs to the stream is due at its end; whoever waits for it hears that it never came.
                let rest = async {
                    for other in closed {
                        let _ = other.await;
                    }
                };
                let _ = tokio::time::timeout(due_at_end, rest).await;
            };
            let running = Metered::new(meter, session.store.run_concurrent(async move |_| all_closed.await));
            let ended = tokio::select! {
                biased;
                ended = running => ended.map_err(Some),
                () = last_word.abandoned() => return,
                () = patience.over(&deadline, &last_word) => Err(None),
            };
            let failure = match ended {
                Ok(()) => return,
                Err(Some(error)) => blame.failure(&error, session.store.data()),
                Err(None) => blame.timeout(patience.limit(&deadline)),
            };
            drop(session);
            last_word.fail(failure).await;
        });
    }

    /// Hands out a stream and sees to what must go on behind it.
    fn hand_out<T>(
        &self,
        blame: Blame,
        session: Session,
        stream: FromGuest<mpsc::Receiver<T>>,
        reusable: bool,
        patience: Patience,
    ) -> mpsc::Receiver<T>
    where
        T: Send + 'static,
        LastWord: From<mpsc::Sender<T>>,
    {
        let (made, tail) = match stream {
            FromGuest::Own(own) if session.store.data().open_streams.is_empty() => {
                if reusable {
                    self.keep(session);
                }
                return own;
            }
            FromGuest::Own(own) => relayed(own),
            FromGuest::Made(made, tail) => (made, tail),
        };
        self.go_on(blame, session, tail, patience);
        made
    }

    /// Makes a sandbox.
    pub async fn create(&self, target: &Target, scope: &Scope, deployment: &str) -> Result<InstanceRecord> {
        let request = create_request(target, scope, deployment);
        let record = self
            .simple("create", Some(target), |accessor, exports| {
                Box::pin(async move { exports.sandgate_provider_lifecycle().call_create(accessor, request).await })
            })
            .await?;
        self.record("create", record)
    }

    /// Looks for an existing sandbox.
    pub async fn find(&self, target: &Target, scope: &Scope, deployment: &str) -> Result<Option<InstanceRecord>> {
        let request = create_request(target, scope, deployment);
        let record = self
            .simple("find", Some(target), |accessor, exports| {
                Box::pin(async move { exports.sandgate_provider_lifecycle().call_find(accessor, request).await })
            })
            .await?;
        record.map(|record| self.record("find", record)).transpose()
    }

    pub(super) fn record(&self, operation: &'static str, record: Vec<u8>) -> Result<InstanceRecord> {
        if record.len() > MAX_INSTANCE_RECORD {
            let Blame { provider, operation } = self.blame(operation);
            return Err(Error::new(
                Code::GuestProtocol,
                format!("provider {provider} gave an instance record of {} bytes in {operation}", record.len()),
            )
            .hint(format!("a provider must keep it under {MAX_INSTANCE_RECORD} bytes")));
        }
        Ok(InstanceRecord(record))
    }

    /// Whether it lives; an error means unknown.
    pub async fn probe(&self, target: &Target, instance: &InstanceRecord) -> Result<Liveness> {
        let instance = instance.0.clone();
        let liveness = self
            .simple("probe", Some(target), |accessor, exports| {
                Box::pin(async move { exports.sandgate_provider_lifecycle().call_probe(accessor, instance).await })
            })
            .await?;
        Ok(match liveness {
            lifecycle::Liveness::Alive => Liveness::Alive,
            lifecycle::Liveness::Dead => Liveness::Dead,
        })
    }

    /// Ends it, and everything that the host keeps for it.
    pub async fn destroy(&self, target: &Target, instance: &InstanceRecord) -> Result<()> {
        let instance = instance.0.clone();
        let destroyed = self
            .simple("destroy", Some(target), |accessor, exports| {
                Box::pin(async move { exports.sandgate_provider_lifecycle().call_destroy(accessor, instance).await })
            })
            .await;
        self.forget(&target.sandbox);
        destroyed
    }

    /// Starts a command.
    pub async fn exec(
        &self,
        target: &Target,
        instance: &InstanceRecord,
        request: &ExecRequest,
        stdin: Option<ByteStream>,
        signals: Option<SignalStream>,
    ) -> Result<EventStream> {
        let (blame, instance) = (self.blame("exec"), instance.0.clone());
        // An instance that has seen a secret is not used again.
        let reusable = request.env.is_empty();
        let patience = match request.timeout {
            Some(timeout) if !timeout.is_zero() => {
                Patience::Until(timeout.saturating_add(self.runtime.options().call_timeout))
            }
            // A command may be silent for as long as it runs, and how long that is only the provider knows.
            _ => Patience::Endless,
        };
        let secrets = Redactor::new(request.env.values());
        let request = exec_request(request);
        let (answer, session) = self
            .run(&blame, Some(target), move |accessor, exports| {
                Box::pin(async move {
                    let (stdin, signals) = accessor.with(|mut access| -> wasmtime::Result<_> {
                        access.get().secrets = secrets;
                        let deadline = Arc::clone(&access.get().deadline);
                        let stdin = stdin
                            .map(|stdin| bytes_to_guest(&mut access, stdin, &deadline).map(|(stream, _)| stream))
                            .transpose()?;
                        let signals = signals.map(|signals| to_guest(&mut access, signals)).transpose()?;
                        Ok((stdin, signals))
                    })?;
                    let sandbox = exports.sandgate_provider_sandbox();
                    let events = match sandbox.call_exec(accessor, instance, request, stdin, signals).await? {
                        Ok(events) => events,
                        Err(error) => return Ok(Err(error)),
                    };
                    accessor.with(|mut access| {
                        let deadline = Arc::clone(&access.get().deadline);
                        events_from_guest(access, events, &deadline).map(Ok)
                    })
                })
            })
            .await?;
        Ok(self.hand_out(blame, session, answer?, reusable, patience))
    }

    /// Reads a file or a part of it.
    pub async fn read_file(
        &self,
        target: &Target,
        instance: &InstanceRecord,
        path: &VirtualPath,
        range: ReadRange,
    ) -> Result<Content> {
        let (blame, instance, path) = (self.blame("read-file"), instance.0.clone(), path.to_string());
        let (answer, session) = self
            .run(&blame, Some(target), move |accessor, exports| {
                Box::pin(async move {
                    let sandbox = exports.sandgate_provider_sandbox();
                    let content = match sandbox.call_read_file(accessor, instance, path, range.into()).await? {
                        Ok(content) => content,
                        Err(error) => return Ok(Err(error)),
                    };
                    accessor.with(|mut access| {
                        let deadline = Arc::clone(&access.get().deadline);
                        let mut data = bytes_from_guest(&mut access, content.data, &deadline)?;
                        let done = match &mut data {
                            // The host sees the end of its own stream itself.
                            FromGuest::Own(_) => {
                                let mut done = content.done;
                                done.close(&mut access)?;
                                None
                            }
                            FromGuest::Made(_, tail) => {
                                let (sender, receiver) = oneshot::channel();
                                let (closed_sender, closed) = oneshot::channel();
                                tail.closed.push(closed);
                                let consumer = DoneConsumer { word: Some(sender), _closed: closed_sender };
                                content.done.pipe(&mut access, consumer)?;
                                Some(receiver)
                            }
                        };
                        Ok(Ok((FileStat::from(content.stat), data, done)))
                    })
                })
            })
            .await?;
        let (stat, data, done) = answer?;
        let data = self.hand_out(blame, session, data, true, Patience::Progress);
        let data = match done {
            Some(done) => checked_end(data, done),
            None => data,
        };
        Ok(Content { stat, data })
    }

    /// Writes a file; returns the number of bytes.
    pub async fn write_file(
        &self,
        target: &Target,
        instance: &InstanceRecord,
        path: &VirtualPath,
        data: ByteStream,
        options: WriteOptions,
    ) -> Result<u64> {
        let (instance, path) = (instance.0.clone(), path.to_string());
        // A stream that breaks off is an error to the host, and the guest must not take it for the end of the file.
        let (broken_sender, broken) = oneshot::channel();
        let (blame, target) = (self.blame("write-file"), Some(target));
        let written = self.run(&blame, target, move |accessor, exports| {
            Box::pin(async move {
                let data = accessor.with(|mut access| {
                    let deadline = Arc::clone(&access.get().deadline);
                    let data = watch_for_errors(data, broken_sender, Arc::clone(&deadline));
                    bytes_to_guest(&mut access, data, &deadline)
                })?;
                let sandbox = exports.sandgate_provider_sandbox();
                sandbox.call_write_file(accessor, instance, path, data.0, options.into()).await
            })
        });
        let broken = async {
            match broken.await {
                Ok(error) => error,
                Err(_) => std::future::pending().await,
            }
        };
        let (answer, session) = tokio::select! {
            biased;
            error = broken => return Err(error),
            written = written => written?,
        };
        self.keep(session);
        answer
    }

    /// What a path is.
    pub async fn stat(&self, target: &Target, instance: &InstanceRecord, path: &VirtualPath) -> Result<FileStat> {
        let (instance, path) = (instance.0.clone(), path.to_string());
        self.simple("stat", Some(target), |accessor, exports| {
            Box::pin(async move { exports.sandgate_provider_sandbox().call_stat(accessor, instance, path).await })
        })
        .await
        .map(Into::into)
    }

    /// A directory's entries.
    pub async fn list_dir(
        &self,
        target: &Target,
        instance: &InstanceRecord,
        path: &VirtualPath,
        options: ListOptions,
    ) -> Result<Listing> {
        let (instance, path) = (instance.0.clone(), path.to_string());
        self.simple("list-dir", Some(target), |accessor, exports| {
            Box::pin(async move {
                let sandbox = exports.sandgate_provider_sandbox();
                sandbox.call_list_dir(accessor, instance, path, options.into()).await
            })
        })
        .await
        .map(Into::into)
    }

    /// Paths that match.
    pub async fn glob(
        &self,
        target: &Target,
        instance: &InstanceRecord,
        path: &VirtualPath,
        pattern: &str,
        options: GlobOptions,
    ) -> Result<GlobResult> {
        let (instance, path, pattern) = (instance.0.clone(), path.to_string(), pattern.to_owned());
        self.simple("glob", Some(target), |accessor, exports| {
            Box::pin(async move {
                let sandbox = exports.sandgate_provider_sandbox();
                sandbox.call_glob(accessor, instance, path, pattern, options.into()).await
            })
        })
        .await
        .map(Into::into)
    }

    /// Lines that match.
    pub async fn grep(
        &self,
        target: &Target,
        instance: &InstanceRecord,
        path: &VirtualPath,
        pattern: &str,
        options: GrepOptions,
    ) -> Result<GrepResult> {
        let (instance, path, pattern) = (instance.0.clone(), path.to_string(), pattern.to_owned());
        self.simple("grep", Some(target), |accessor, exports| {
            Box::pin(async move {
                let sandbox = exports.sandgate_provider_sandbox();
                sandbox.call_grep(accessor, instance, path, pattern, options.into()).await
            })
        })
        .await
        .map(Into::into)
    }

    /// Removes a file, a link or a directory.
    pub async fn remove(
        &self,
        target: &Target,
        instance: &InstanceRecord,
        path: &VirtualPath,
        recursive: bool,
    ) -> Result<()> {
        let (instance, path) = (instance.0.clone(), path.to_string());
        self.simple("remove", Some(target), |accessor, exports| {
            Box::pin(async move {
                exports.sandgate_provider_sandbox().call_remove(accessor, instance, path, recursive).await
            })
        })
        .await
    }

    /// Makes a directory and its parents.
    pub async fn make_dir(&self, target: &Target, instance: &InstanceRecord, path: &VirtualPath) -> Result<()> {
        let (instance, path) = (instance.0.clone(), path.to_string());
        self.simple("make-dir", Some(target), |accessor, exports| {
            Box::pin(async move { exports.sandgate_provider_sandbox().call_make_dir(accessor, instance, path).await })
        })
        .await
    }
}

fn create_request(target: &Target, scope: &Scope, deployment: &str) -> lifecycle::CreateRequest {
    lifecycle::CreateRequest {
        sandbox_id: target.sandbox.to_string(),
        scope: lifecycle::Scope {
            user: scope.user.to_string(),
            thread: scope.thread.as_ref().map(ToString::to_string),
        },
        deployment: deployment.to_owned(),
    }
}

/// Takes a guest's word on how its stream ended.
struct DoneConsumer {
    word: Option<oneshot::Sender<Answer<()>>>,
    /// Dropped when the guest has written it, or never will.
    _closed: oneshot::Sender<()>,
}

impl<D> wasmtime::component::FutureConsumer<D> for DoneConsumer {
    type Item = Answer<()>;

    fn poll_consume(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        store: wasmtime::StoreContextMut<'_, D>,
        mut source: wasmtime::component::Source<'_, Self::Item>,
        _finish: bool,
    ) -> std::task::Poll<wasmtime::Result<()>> {
        let mut value = None;
        source.read(store, &mut value)?;
        if let (Some(sender), Some(value)) = (self.word.take(), value) {
            let _ = sender.send(value);
        }
        std::task::Poll::Ready(Ok(()))
    }
}

/// A guest's stream with the guest's own word on its end put behind it.
fn checked_end(mut data: ByteStream, done: oneshot::Receiver<Answer<()>>) -> ByteStream {
    let (sender, receiver) = mpsc::channel(STREAM_DEPTH);
    tokio::spawn(async move {
        while let Some(piece) = next_wanted(&mut data, &sender).await {
            let failed = piece.is_err();
            if sender.send(piece).await.is_err() || failed {
                return;
            }
        }
        if sender.is_closed() {
            return;
        }
        let end = match done.await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => Error::from(error),
            Err(_) => Error::new(Code::GuestProtocol, "the provider did not say whether the file was whole"),
        };
        let _ = sender.send(Err(end)).await;
    });
    receiver
}

/// Passes a stream on and reports the error that ends it, if one does, before anyone else can see the end.
/// Every piece is a sign of progress, also where the guest hands the stream through and sees nothing of it.
fn watch_for_errors(mut data: ByteStream, broken: oneshot::Sender<Error>, deadline: Arc<Deadline>) -> ByteStream {
    let (sender, receiver) = mpsc::channel(STREAM_DEPTH);
    tokio::spawn(async move {
        while let Some(piece) = next_wanted(&mut data, &sender).await {
            deadline.moved();
            match piece {
                Ok(piece) => {
                    if sender.send(Ok(piece)).await.is_err() {
                        return;
                    }
                }
                Err(error) => {
                    let _ = broken.send(error);
                    // Held open until the call is gone, so that nobody in it ever sees a regular end.
                    sender.closed().await;
                    return;
                }
            }
        }
    });
    receiver
}
