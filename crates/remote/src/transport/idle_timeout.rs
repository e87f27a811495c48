//! A connection with an idle timeout: it fails when no data moves in either direction. HTTP/2 pings keep data moving in
//! every live connection. A missing ping reply alone is not a failure: on a slow connection the reply is queued behind
//! megabytes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// After this long without received data a ping is sent.
pub(crate) const PING_INTERVAL: Duration = Duration::from_secs(10);

/// A connection without data for this long is dead.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(30);

/// Longer than any ping waits behind other data: [`IdleTimeout`] decides before.
pub(crate) const PONG_TIMEOUT: Duration = Duration::from_secs(3600);

#[derive(Debug)]
pub(crate) struct IdleTimeout<S> {
    stream: S,
    idle_max: Duration,
    last_activity: Instant,
    /// May fire early: activity moves it only when it fires.
    deadline: Pin<Box<Sleep>>,
}

impl<S> IdleTimeout<S> {
    pub(crate) fn new(stream: S, silence: Duration) -> Self {
        Self {
            stream,
            idle_max: silence,
            last_activity: Instant::now(),
            deadline: Box::pin(tokio::time::sleep(silence)),
        }
    }

    /// Records activity, and fails after too long without.
    fn record_activity<T>(&mut self, context: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.last_activity = Instant::now();
            return polled;
        }
        while self.deadline.as_mut().poll(context).is_ready() {
            let end = self.last_activity + self.idle_max;
            if end <= Instant::now() {
                let message = format!("no data in either direction for {:?}", self.idle_max);
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)));
            }
            self.deadline.as_mut().reset(end);
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for IdleTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.record_activity(context, polled)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for IdleTimeout<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.record_activity(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.record_activity(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// A socket has nothing to flush, so a successful flush is not activity.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::runtime::Builder;

    const SHORT: Duration = Duration::from_millis(100);

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
    }

    #[test]
    fn a_connection_in_which_nothing_moves_is_given_up() {
        block_on(async {
            let (ours, _theirs) = tokio::io::duplex(4);
            let mut ours = IdleTimeout::new(ours, SHORT);
            let begun = Instant::now();
            let error = ours.read_u8().await.unwrap_err();
            assert_eq!(
                (error.kind(), error.to_string().as_str()),
                (io::ErrorKind::TimedOut, "no data in either direction for 100ms")
            );
            assert!(begun.elapsed() >= SHORT);
            // Filling the buffer without a reader is not enough.
            let error = ours.write_all(&[0; 5]).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        });
    }

    #[test]
    fn a_slow_connection_lives_for_as_long_as_it_moves_in_one_direction() {
        block_on(async {
            let (ours, mut theirs) = tokio::io::duplex(1);
            let (mut reader, mut writer) = tokio::io::split(IdleTimeout::new(ours, SHORT));
            let begun = Instant::now();
            let slowly = async {
                let mut ticks = tokio::time::interval(SHORT / 10);
                while begun.elapsed() < 5 * SHORT {
                    ticks.tick().await;
                    theirs.read_u8().await.unwrap();
                }
            };
            let busily = async { while writer.write_u8(1).await.is_ok() {} };
            // Nothing is received during that time.
            tokio::select! {
                // In this order: data that was read is written again before the other direction is polled, however late
                // that is.
                biased;
                () = slowly => {}
                () = busily => panic!("the connection timed out"),
                read = reader.read_u8() => panic!("{read:?}"),
            }
        });
    }
}
