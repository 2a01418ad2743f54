//! Streams that were handed out while their guest still makes them.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::deadline::Deadline;
use super::failure::Blame;
use super::limits::Metered;
use super::provider::Provider;
use super::session::{Answer, Session};
use super::streams::{FromGuest, LastWord, Tail, next_wanted, relayed};
use crate::error::{Code, Error};
use crate::values::{ByteStream, STREAM_DEPTH};

/// How long a stream that a guest makes may take, once it has been handed out.
#[derive(Debug, Clone, Copy)]
pub(super) enum Patience {
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

impl Provider {
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
    pub(super) fn hand_out<T>(
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
}

/// Takes a guest's word on how its stream ended.
pub(super) struct DoneConsumer {
    pub(super) word: Option<oneshot::Sender<Answer<()>>>,
    /// Dropped when the guest has written it, or never will.
    pub(super) _closed: oneshot::Sender<()>,
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
pub(super) fn checked_end(mut data: ByteStream, done: oneshot::Receiver<Answer<()>>) -> ByteStream {
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
pub(super) fn watch_for_errors(
    mut data: ByteStream,
    broken: oneshot::Sender<Error>,
    deadline: Arc<Deadline>,
) -> ByteStream {
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
