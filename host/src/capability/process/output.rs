//! The two pipes that a command writes to, read as one sequence of events.

use std::collections::VecDeque;
use std::future::pending;
use std::io;
use std::os::fd::OwnedFd;

use bytes::{Bytes, BytesMut};
use rustix::io::ioctl_fionread;
use tokio::net::unix::pipe;

use crate::rewrite::{Redactor, TranslatedStream, Translator};
use crate::values::{CHUNK_SIZE, Event};

/// A buffer with less room than this is replaced: a read into it would take a piece of what the pipe has.
const LEAST_ROOM: usize = CHUNK_SIZE / 4;

/// Both pipes.
pub(super) struct Output {
    stdout: Stream,
    stderr: Stream,
    /// Read and not yet taken.
    ready: VecDeque<Event>,
}

struct Stream {
    /// None: at its end.
    pipe: Option<pipe::Receiver>,
    buffer: BytesMut,
    translate: Option<TranslatedStream>,
    redact: Redactor,
    event: fn(Bytes) -> Event,
}

impl Output {
    /// Takes the reading ends. With a translator, host paths become virtual ones; then secrets are taken out.
    pub(super) fn new(
        stdout: OwnedFd,
        stderr: OwnedFd,
        translator: Option<&Translator>,
        redactor: &Redactor,
    ) -> io::Result<Self> {
        let stream = |fd, event| {
            io::Result::Ok(Stream {
                pipe: Some(pipe::Receiver::from_owned_fd(fd)?),
                buffer: BytesMut::new(),
                translate: translator.map(Translator::reverse_stream),
                redact: redactor.fork(),
                event,
            })
        };
        Ok(Self {
            stdout: stream(stdout, Event::Stdout)?,
            stderr: stream(stderr, Event::Stderr)?,
            ready: VecDeque::new(),
        })
    }

    /// The next output; none: both pipes are closed. Nothing is lost if it is dropped while it waits.
    pub(super) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.stdout.pipe.is_none() && self.stderr.pipe.is_none() {
                return None;
            }
            // Without an order: a command that floods one stream does not hide the other.
            let stream = tokio::select! {
                () = self.stdout.readable() => &mut self.stdout,
                () = self.stderr.readable() => &mut self.stderr,
            };
            stream.read(&mut self.ready);
        }
    }

    /// What is in the pipes at this moment, and the rest of what was held back. Later output is not part of it.
    pub(super) fn rest(&mut self) -> VecDeque<Event> {
        self.stdout.rest(&mut self.ready);
        self.stderr.rest(&mut self.ready);
        std::mem::take(&mut self.ready)
    }

    /// Reads to the end and keeps nothing: whoever writes still must not die of a closed pipe.
    pub(super) async fn discard(mut self) {
        for stream in [&mut self.stdout, &mut self.stderr] {
            stream.translate = None;
            stream.redact = Redactor::default();
        }
        while self.next().await.is_some() {}
    }
}

impl Stream {
    async fn readable(&self) {
        match &self.pipe {
            // An error shows again when it is read.
            Some(pipe) => drop(pipe.readable().await),
            None => pending().await,
        }
    }

    fn read(&mut self, ready: &mut VecDeque<Event>) {
        let Some(pipe) = &self.pipe else { return };
        if self.buffer.capacity() < LEAST_ROOM {
            self.buffer = BytesMut::with_capacity(CHUNK_SIZE);
        }
        match pipe.try_read_buf(&mut self.buffer) {
            Ok(0) => self.end(ready),
            Ok(_) => {
                let piece = self.buffer.split().freeze();
                self.take(piece, ready);
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            // A pipe that can't be read has ended.
            Err(_) => self.end(ready),
        }
    }

    fn end(&mut self, ready: &mut VecDeque<Event>) {
        self.pipe = None;
        self.buffer = BytesMut::new();
        self.flush(ready);
    }

    fn flush(&mut self, ready: &mut VecDeque<Event>) {
        if let Some(mut translate) = self.translate.take() {
            let piece = self.redact.push(translate.finish());
            self.push(piece, ready);
        }
        let piece = self.redact.finish();
        self.push(piece, ready);
    }

    fn take(&mut self, piece: Bytes, ready: &mut VecDeque<Event>) {
        let piece = match &mut self.translate {
            Some(translate) => translate.push(piece),
            None => piece,
        };
        let piece = self.redact.push(piece);
        self.push(piece, ready);
    }

    fn push(&self, mut piece: Bytes, ready: &mut VecDeque<Event>) {
        while !piece.is_empty() {
            ready.push_back((self.event)(piece.split_to(piece.len().min(CHUNK_SIZE))));
        }
    }

    /// Reads past the runtime, which may not know yet that there is something.
    fn rest(&mut self, ready: &mut VecDeque<Event>) {
        if let Some(pipe) = &self.pipe {
            let mut left = ioctl_fionread(pipe).map_or(0, |size| usize::try_from(size).unwrap_or(0));
            let mut found = Vec::new();
            while left > 0 {
                let mut piece = vec![0; left.min(CHUNK_SIZE)];
                match rustix::io::read(pipe, &mut piece) {
                    Ok(size) if size > 0 => {
                        piece.truncate(size);
                        left -= size;
                        found.push(Bytes::from(piece));
                    }
                    Err(rustix::io::Errno::INTR) => {}
                    _ => break,
                }
            }
            for piece in found {
                self.take(piece, ready);
            }
        }
        self.flush(ready);
    }
}
