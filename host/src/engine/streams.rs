//! The host's channels as component-model streams, and the other way round.
//!
//! A stream that the host made and a guest handed back untouched is taken out again as the channel that it was
//! (`try_into`); only what a guest made or changed is lifted from its memory.

use std::any::{Any, TypeId};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::PollSender;
use wasmtime::StoreContextMut;
use wasmtime::component::{
    Destination, Lift, Lower, Source, StreamConsumer, StreamProducer, StreamReader, StreamResult, VecBuffer,
};

use super::bindings::types as wit;
use super::deadline::Deadline;
use crate::error::{Code, Error, Result};
use crate::values::{ByteStream, CHUNK_SIZE, Event, STREAM_DEPTH};

/// A channel whose items a guest sees as those of a stream.
struct ChannelProducer<T, W> {
    receiver: mpsc::Receiver<T>,
    made: PhantomData<fn() -> W>,
}

impl<D, T, W> StreamProducer<D> for ChannelProducer<T, W>
where
    T: Send + 'static,
    W: From<T> + Lower + Send + Sync + 'static,
{
    type Item = W;
    type Buffer = VecBuffer<W>;

    fn poll_produce<'a>(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut store: StoreContextMut<'a, D>,
        mut destination: Destination<'a, W, VecBuffer<W>>,
        finish: bool,
    ) -> Poll<wasmtime::Result<StreamResult>> {
        if destination.remaining(&mut store) == Some(0) {
            return Poll::Ready(Ok(StreamResult::Completed));
        }
        match self.receiver.poll_recv(cx) {
            Poll::Ready(Some(item)) => {
                destination.set_buffer(vec![W::from(item)].into());
                Poll::Ready(Ok(StreamResult::Completed))
            }
            Poll::Ready(None) => Poll::Ready(Ok(StreamResult::Dropped)),
            Poll::Pending if finish => Poll::Ready(Ok(StreamResult::Cancelled)),
            Poll::Pending => Poll::Pending,
        }
    }

    fn try_into(me: Pin<Box<Self>>, ty: TypeId) -> Result<Box<dyn Any>, Pin<Box<Self>>> {
        if ty == TypeId::of::<mpsc::Receiver<T>>() { Ok(Box::new(Pin::into_inner(me).receiver)) } else { Err(me) }
    }
}

/// Makes a guest's stream of a channel.
pub(super) fn to_guest<T, W, S>(store: S, receiver: mpsc::Receiver<T>) -> wasmtime::Result<StreamReader<W>>
where
    T: Send + 'static,
    W: From<T> + Lower + Lift + Send + Sync + 'static,
    S: wasmtime::AsContextMut,
{
    StreamReader::new(store, ChannelProducer { receiver, made: PhantomData })
}

/// How a byte stream ended, for the future beside it.
type End = Arc<Mutex<Option<oneshot::Sender<Result<()>>>>>;

/// A byte stream as a guest reads it; every piece taken is a sign of progress.
pub(super) struct BytesProducer {
    receiver: ByteStream,
    end: End,
    deadline: Arc<Deadline>,
}

impl<D> StreamProducer<D> for BytesProducer {
    type Item = u8;
    type Buffer = Bytes;

    fn poll_produce<'a>(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut store: StoreContextMut<'a, D>,
        mut destination: Destination<'a, u8, Bytes>,
        finish: bool,
    ) -> Poll<wasmtime::Result<StreamResult>> {
        if destination.remaining(&mut store) == Some(0) {
            return Poll::Ready(Ok(StreamResult::Completed));
        }
        match self.receiver.poll_recv(cx) {
            Poll::Ready(Some(Ok(bytes))) => {
                self.deadline.touch();
                destination.set_buffer(bytes);
                Poll::Ready(Ok(StreamResult::Completed))
            }
            Poll::Ready(Some(Err(error))) => {
                if finish_with(&self.end, Err(error.clone())) {
                    return Poll::Ready(Ok(StreamResult::Dropped));
                }
                // Nobody would know it from a regular end, and half a file would pass for a whole one.
                Poll::Ready(Err(SourceBroke(error).into()))
            }
            Poll::Ready(None) => {
                finish_with(&self.end, Ok(()));
                Poll::Ready(Ok(StreamResult::Dropped))
            }
            Poll::Pending if finish => Poll::Ready(Ok(StreamResult::Cancelled)),
            Poll::Pending => Poll::Pending,
        }
    }

    fn try_into(me: Pin<Box<Self>>, ty: TypeId) -> Result<Box<dyn Any>, Pin<Box<Self>>> {
        if ty == TypeId::of::<ByteStream>() { Ok(Box::new(Pin::into_inner(me).receiver)) } else { Err(me) }
    }
}

/// Tells how a stream ended; false: nobody listens.
fn finish_with(end: &End, result: Result<()>) -> bool {
    end.lock().take().is_some_and(|sender| sender.send(result).is_ok())
}

/// What a guest that reads a stream is ended with when the stream breaks off and nothing else could tell it.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(super) struct SourceBroke(pub(super) Error);

/// Makes a guest's byte stream, and tells how it ended.
pub(super) fn bytes_to_guest<S: wasmtime::AsContextMut>(
    store: S,
    receiver: ByteStream,
    deadline: &Arc<Deadline>,
) -> wasmtime::Result<(StreamReader<u8>, oneshot::Receiver<Result<()>>)> {
    let (sender, ended) = oneshot::channel();
    let end = Arc::new(Mutex::new(Some(sender)));
    let producer = BytesProducer { receiver, end, deadline: Arc::clone(deadline) };
    Ok((StreamReader::new(store, producer)?, ended))
}

/// Takes a guest's bytes into a channel.
struct BytesConsumer {
    sender: PollSender<Result<Bytes>>,
    deadline: Arc<Deadline>,
}

impl<D> StreamConsumer<D> for BytesConsumer {
    type Item = u8;

    fn poll_consume(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut store: StoreContextMut<'_, D>,
        mut source: Source<'_, u8>,
        finish: bool,
    ) -> Poll<wasmtime::Result<StreamResult>> {
        match self.sender.poll_reserve(cx) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(_)) => return Poll::Ready(Ok(StreamResult::Dropped)),
            Poll::Pending if finish => return Poll::Ready(Ok(StreamResult::Cancelled)),
            Poll::Pending => return Poll::Pending,
        }
        let ready = source.remaining(&mut store);
        if ready == 0 {
            self.sender.abort_send();
            return Poll::Ready(Ok(StreamResult::Completed));
        }
        let mut piece = Vec::with_capacity(ready.min(CHUNK_SIZE));
        source.read(store, &mut piece)?;
        self.deadline.touch();
        Poll::Ready(Ok(match self.sender.send_item(Ok(piece.into())) {
            Ok(()) => StreamResult::Completed,
            Err(_) => StreamResult::Dropped,
        }))
    }
}

/// A byte stream that came from a guest: the host's own, or a new one with what the guest writes.
pub(super) enum FromGuest<T> {
    /// The host's own channel, handed through.
    Own(T),
    /// The guest makes it; its store must be run until then. The sender keeps a place for the last word.
    Made(T, Tail),
}

/// What is left to do for a stream that a guest makes.
pub(super) struct Tail {
    /// Resolve when the guest has closed its end, and what belongs to it.
    pub(super) closed: Vec<oneshot::Receiver<()>>,
    /// Resolves when the reader is gone, and can say a last word to it.
    pub(super) last_word: LastWord,
}

/// A sender for how it ended.
pub(super) enum LastWord {
    Bytes(mpsc::Sender<Result<Bytes>>),
    Events(mpsc::Sender<Event>),
}

impl From<mpsc::Sender<Result<Bytes>>> for LastWord {
    fn from(sender: mpsc::Sender<Result<Bytes>>) -> Self {
        Self::Bytes(sender)
    }
}

impl From<mpsc::Sender<Event>> for LastWord {
    fn from(sender: mpsc::Sender<Event>) -> Self {
        Self::Events(sender)
    }
}

/// The next piece; none: it has ended, or nobody wants it any more. The latter must be seen while nothing comes, too:
/// what stands behind `from` is held until then.
pub(super) async fn next_wanted<T, U>(from: &mut mpsc::Receiver<T>, to: &mpsc::Sender<U>) -> Option<T> {
    tokio::select! {
        biased;
        () = to.closed() => None,
        piece = from.recv() => piece,
    }
}

/// The host's own stream, handed through by a guest that goes on working behind it (it makes the command's input):
/// passed on so that its end, and its reader's, are the end of that work as well.
pub(super) fn relayed<T>(mut own: mpsc::Receiver<T>) -> (mpsc::Receiver<T>, Tail)
where
    T: Send + 'static,
    LastWord: From<mpsc::Sender<T>>,
{
    let (sender, receiver) = mpsc::channel(STREAM_DEPTH);
    let (closed_sender, closed) = oneshot::channel::<()>();
    let last_word = LastWord::from(sender.clone());
    tokio::spawn(async move {
        while let Some(piece) = next_wanted(&mut own, &sender).await {
            if sender.send(piece).await.is_err() {
                break;
            }
        }
        drop(closed_sender);
    });
    (receiver, Tail { closed: vec![closed], last_word })
}

impl LastWord {
    /// The reader has gone away.
    pub(super) async fn abandoned(&self) {
        match self {
            Self::Bytes(sender) => sender.closed().await,
            Self::Events(sender) => sender.closed().await,
        }
    }

    /// Whether the reader has not taken what is there.
    pub(super) fn holds_up(&self) -> bool {
        match self {
            Self::Bytes(sender) => sender.capacity() == 0,
            Self::Events(sender) => sender.capacity() == 0,
        }
    }

    /// Ends the stream with an error; a reader that has gone away doesn't hear it.
    pub(super) async fn fail(self, error: Error) {
        match self {
            Self::Bytes(sender) => drop(sender.send(Err(error)).await),
            Self::Events(sender) => drop(sender.send(Event::Failed(error)).await),
        }
    }
}

/// Tells that a consumer was dropped, which is when the guest has closed its end.
struct Closing<C> {
    consumer: C,
    _closed: oneshot::Sender<()>,
}

impl<D, C: StreamConsumer<D> + Unpin> StreamConsumer<D> for Closing<C> {
    type Item = C::Item;

    fn poll_consume(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        store: StoreContextMut<'_, D>,
        source: Source<'_, C::Item>,
        finish: bool,
    ) -> Poll<wasmtime::Result<StreamResult>> {
        Pin::new(&mut self.consumer).poll_consume(cx, store, source, finish)
    }
}

/// Takes a guest's byte stream.
pub(super) fn bytes_from_guest<S: wasmtime::AsContextMut>(
    mut store: S,
    stream: StreamReader<u8>,
    deadline: &Arc<Deadline>,
) -> wasmtime::Result<FromGuest<ByteStream>> {
    let stream = match stream.try_into::<ByteStream>(&mut store) {
        Ok(own) => return Ok(FromGuest::Own(own)),
        Err(stream) => stream,
    };
    let (sender, receiver) = mpsc::channel(STREAM_DEPTH);
    let (closed_sender, closed) = oneshot::channel();
    let last_word = LastWord::Bytes(sender.clone());
    let consumer = BytesConsumer { sender: PollSender::new(sender), deadline: Arc::clone(deadline) };
    stream.pipe(&mut store, Closing { consumer, _closed: closed_sender })?;
    Ok(FromGuest::Made(receiver, Tail { closed: vec![closed], last_word }))
}

/// Takes a guest's event stream.
pub(super) fn events_from_guest<S: wasmtime::AsContextMut>(
    mut store: S,
    stream: StreamReader<wit::Event>,
    deadline: &Arc<Deadline>,
) -> wasmtime::Result<FromGuest<mpsc::Receiver<Event>>> {
    let stream = match stream.try_into::<mpsc::Receiver<Event>>(&mut store) {
        Ok(own) => return Ok(FromGuest::Own(own)),
        Err(stream) => stream,
    };
    let (sender, receiver) = mpsc::channel(STREAM_DEPTH);
    let (closed_sender, closed) = oneshot::channel();
    let last_word = LastWord::Events(sender.clone());
    let deadline = Arc::clone(deadline);
    let take = move |event| {
        deadline.touch();
        let event = bounded(event);
        // Nothing may come after the end, so nothing more is read.
        let last = matches!(event, Event::Exited(_) | Event::Failed(_));
        (event, last)
    };
    let consumer = ItemConsumer { sender: PollSender::new(sender), take, made: PhantomData };
    stream.pipe(&mut store, Closing { consumer, _closed: closed_sender })?;
    Ok(FromGuest::Made(receiver, Tail { closed: vec![closed], last_word }))
}

/// A guest's event. The channel's bound counts events, so each must be bounded itself.
fn bounded(event: wit::Event) -> Event {
    match event {
        wit::Event::Stdout(bytes) | wit::Event::Stderr(bytes) if bytes.len() > CHUNK_SIZE => Event::Failed(
            Error::new(Code::GuestProtocol, format!("the provider sent an output event of {} bytes", bytes.len()))
                .hint(format!("a provider must split output into pieces of at most {CHUNK_SIZE} bytes")),
        ),
        event => Event::from(event),
    }
}

/// Takes a guest's stream of small items, such as signals; with it, for one that the guest makes, when it is closed.
pub(super) fn channel_from_guest<T, W, S>(
    mut store: S,
    stream: StreamReader<W>,
) -> wasmtime::Result<(mpsc::Receiver<T>, Option<oneshot::Receiver<()>>)>
where
    T: From<W> + Send + 'static,
    W: Lift + Send + Sync + 'static,
    S: wasmtime::AsContextMut,
{
    let stream = match stream.try_into::<mpsc::Receiver<T>>(&mut store) {
        Ok(own) => return Ok((own, None)),
        Err(stream) => stream,
    };
    let (sender, receiver) = mpsc::channel(STREAM_DEPTH);
    let (closed_sender, closed) = oneshot::channel();
    let take = |item| (T::from(item), false);
    let consumer = ItemConsumer { sender: PollSender::new(sender), take, made: PhantomData };
    stream.pipe(&mut store, Closing { consumer, _closed: closed_sender })?;
    Ok((receiver, Some(closed)))
}

/// Takes a guest's items into a channel, one by one. `take` makes the channel's item of the guest's, and says whether it
/// is the last that is wanted.
struct ItemConsumer<T, W, F> {
    sender: PollSender<T>,
    take: F,
    made: PhantomData<fn() -> W>,
}

impl<D, T, W, F> StreamConsumer<D> for ItemConsumer<T, W, F>
where
    T: Send + 'static,
    W: Lift + Send + Sync + 'static,
    F: FnMut(W) -> (T, bool) + Send + Unpin + 'static,
{
    type Item = W;

    fn poll_consume(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        store: StoreContextMut<'_, D>,
        mut source: Source<'_, W>,
        finish: bool,
    ) -> Poll<wasmtime::Result<StreamResult>> {
        match self.sender.poll_reserve(cx) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(_)) => return Poll::Ready(Ok(StreamResult::Dropped)),
            Poll::Pending if finish => return Poll::Ready(Ok(StreamResult::Cancelled)),
            Poll::Pending => return Poll::Pending,
        }
        let mut item = None;
        source.read(store, &mut item)?;
        let Some(item) = item else {
            self.sender.abort_send();
            return Poll::Ready(Ok(StreamResult::Completed));
        };
        let (item, last) = (self.take)(item);
        Poll::Ready(Ok(match self.sender.send_item(item) {
            Ok(()) if !last => StreamResult::Completed,
            Ok(()) | Err(_) => StreamResult::Dropped,
        }))
    }
}
