//! A stream whose writes end with an error when the client does not read for a while.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// A stream with a limit on the time of a write.
pub struct WriteLimit<S> {
    stream: S,
    time: Duration,
    end: Pin<Box<Sleep>>,
    /// Whether a write waits, until `end` at most.
    waits: bool,
}

impl<S> WriteLimit<S> {
    /// A stream whose writes may wait so long.
    pub fn new(stream: S, time: Duration) -> WriteLimit<S> {
        WriteLimit { stream, time, end: Box::pin(sleep(time)), waits: false }
    }

    /// What a write gives, or an error when it has waited too long.
    fn limited<T>(&mut self, written: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waits = false;
            return written;
        }
        if !std::mem::replace(&mut self.waits, true) {
            self.end.as_mut().reset(Instant::now() + self.time);
        }
        ready!(self.end.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read its answer")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteLimit<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteLimit<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let own = self.get_mut();
        let written = Pin::new(&mut own.stream).poll_write(context, bytes);
        own.limited(written, context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let own = self.get_mut();
        let written = Pin::new(&mut own.stream).poll_write_vectored(context, parts);
        own.limited(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let own = self.get_mut();
        let flushed = Pin::new(&mut own.stream).poll_flush(context);
        own.limited(flushed, context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let own = self.get_mut();
        let closed = Pin::new(&mut own.stream).poll_shutdown(context);
        own.limited(closed, context)
    }
}
