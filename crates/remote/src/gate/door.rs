//! Who comes in: how many connections there are at once, and how long one may take to show the token. Knows nothing of calls.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::Sleep;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

use super::Limits;
use crate::alive::Alive;

/// How long nobody is let in when the system refused to: it may be out of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// What calls know of their connection.
#[derive(Clone, Debug)]
pub(super) struct Badge {
    is_known: Arc<AtomicBool>,
    /// A connection sends one module at a time.
    pub(super) module: Arc<Semaphore>,
}

impl Badge {
    /// The token was shown: from now on the connection stays for as long as it lives.
    pub(super) fn welcome(&self) {
        self.is_known.store(true, Ordering::Relaxed);
    }
}

/// A connection.
#[derive(Debug)]
pub(super) struct Visitor {
    stream: Alive<TcpStream>,
    badge: Badge,
    /// Until the token was shown.
    stranger: Option<Stranger>,
    _place: OwnedSemaphorePermit,
}

#[derive(Debug)]
struct Stranger {
    end: Pin<Box<Sleep>>,
    /// Answered when another needs the place.
    place: oneshot::Receiver<()>,
}

/// Connections that have not shown the token, the oldest first.
#[derive(Default)]
struct Strangers {
    waiting: VecDeque<(Badge, oneshot::Sender<()>)>,
}

impl Strangers {
    /// Lets one more in. Where there are too many, the oldest goes.
    fn admit(&mut self, badge: Badge, limits: &Limits) -> Stranger {
        self.waiting.retain(|(badge, place)| !badge.is_known.load(Ordering::Relaxed) && !place.is_closed());
        while self.waiting.len() >= limits.strangers_max.max(1) {
            self.waiting.pop_front();
        }
        let (sender, place) = oneshot::channel();
        self.waiting.push_back((badge, sender));
        Stranger { end: Box::pin(tokio::time::sleep(limits.greeting)), place }
    }
}

/// The connections that come to a listener.
pub(super) fn visitors(listener: TcpListener, limits: Limits) -> ReceiverStream<io::Result<Visitor>> {
    let (sender, visitors) = mpsc::channel(1);
    tokio::spawn(async move {
        let places = Arc::new(Semaphore::new(limits.connections_max));
        let mut strangers = Strangers::default();
        loop {
            // Who finds no place waits with the system.
            let place = places.clone().acquire_owned().await.expect("nobody closes it");
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(target: "freehold", %error, "a connection could not be taken");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            // Without it calls are slower, and right.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(target: "freehold", %error, "a connection sends late");
            }
            let badge = Badge { is_known: Arc::default(), module: Arc::new(Semaphore::new(1)) };
            let stranger = Some(strangers.admit(badge.clone(), &limits));
            let stream = Alive::new(stream, limits.silence);
            if sender.send(Ok(Visitor { stream, badge, stranger, _place: place })).await.is_err() {
                return;
            }
        }
    });
    ReceiverStream::new(visitors)
}

impl Visitor {
    /// Fails where the token was not shown in time.
    fn expect_welcome(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let Some(stranger) = &mut self.stranger else { return Ok(()) };
        if self.badge.is_known.load(Ordering::Relaxed) {
            self.stranger = None;
            return Ok(());
        }
        if stranger.end.as_mut().poll(context).is_ready() || Pin::new(&mut stranger.place).poll(context).is_ready() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no token was shown in time"));
        }
        Ok(())
    }
}

impl AsyncRead for Visitor {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.expect_welcome(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Visitor {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.expect_welcome(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.expect_welcome(context)?;
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl Connected for Visitor {
    type ConnectInfo = Badge;

    fn connect_info(&self) -> Badge {
        self.badge.clone()
    }
}
