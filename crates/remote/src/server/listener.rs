//! Accepts connections, and limits their number and the time until each presents the token. Does not know calls.

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

use super::limits::ServerLimits;
use crate::transport::IdleTimeout;

/// How long no connection is accepted after an error of the system, which may be out of descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// The data about a connection that its calls use.
#[derive(Clone, Debug)]
pub(super) struct ConnectionInfo {
    is_authenticated: Arc<AtomicBool>,
    /// A connection sends one module at a time.
    pub(super) module_permit: Arc<Semaphore>,
}

impl ConnectionInfo {
    /// Records that the token was presented: the deadline no longer applies.
    pub(super) fn mark_authenticated(&self) {
        self.is_authenticated.store(true, Ordering::Relaxed);
    }
}

/// A connection.
#[derive(Debug)]
pub(super) struct ServerConnection {
    stream: IdleTimeout<TcpStream>,
    info: ConnectionInfo,
    /// Until the token is presented.
    unauthenticated: Option<Unauthenticated>,
    _permit: OwnedSemaphorePermit,
}

#[derive(Debug)]
struct Unauthenticated {
    deadline: Pin<Box<Sleep>>,
    /// Completes when another connection needs its slot.
    evicted: oneshot::Receiver<()>,
}

/// Connections that have not presented the token, oldest first.
#[derive(Default)]
struct UnauthenticatedQueue {
    waiting: VecDeque<(ConnectionInfo, oneshot::Sender<()>)>,
}

impl UnauthenticatedQueue {
    /// Adds a connection. If there are too many, the oldest is closed.
    fn admit(&mut self, info: ConnectionInfo, limits: &ServerLimits) -> Unauthenticated {
        self.waiting.retain(|(info, permit)| !info.is_authenticated.load(Ordering::Relaxed) && !permit.is_closed());
        while self.waiting.len() >= limits.unauthenticated_max.max(1) {
            self.waiting.pop_front();
        }
        let (sender, permit) = oneshot::channel();
        self.waiting.push_back((info, sender));
        Unauthenticated { deadline: Box::pin(tokio::time::sleep(limits.handshake_timeout)), evicted: permit }
    }
}

/// The connections to a listener.
pub(super) fn incoming(listener: TcpListener, limits: ServerLimits) -> ReceiverStream<io::Result<ServerConnection>> {
    let (sender, connections) = mpsc::channel(1);
    tokio::spawn(async move {
        let permits = Arc::new(Semaphore::new(limits.connections_max));
        let mut unauthenticated_queue = UnauthenticatedQueue::default();
        loop {
            // A connection without a permit waits in the backlog of the socket.
            let permit = permits.clone().acquire_owned().await.expect("the semaphore is never closed");
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(target: "freehold", %error, "could not accept a connection");
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                    continue;
                }
            };
            // Without it calls are slower, but correct.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(target: "freehold", %error, "could not set TCP_NODELAY");
            }
            let info = ConnectionInfo { is_authenticated: Arc::default(), module_permit: Arc::new(Semaphore::new(1)) };
            let unauthenticated = Some(unauthenticated_queue.admit(info.clone(), &limits));
            let stream = IdleTimeout::new(stream, limits.idle_timeout);
            if sender.send(Ok(ServerConnection { stream, info, unauthenticated, _permit: permit })).await.is_err() {
                return;
            }
        }
    });
    ReceiverStream::new(connections)
}

impl ServerConnection {
    /// Fails if the token was not presented in time.
    fn check_authenticated(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let Some(unauthenticated) = &mut self.unauthenticated else { return Ok(()) };
        if self.info.is_authenticated.load(Ordering::Relaxed) {
            self.unauthenticated = None;
            return Ok(());
        }
        if unauthenticated.deadline.as_mut().poll(context).is_ready()
            || Pin::new(&mut unauthenticated.evicted).poll(context).is_ready()
        {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no token was presented in time"));
        }
        Ok(())
    }
}

impl AsyncRead for ServerConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check_authenticated(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for ServerConnection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check_authenticated(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check_authenticated(context)?;
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

impl Connected for ServerConnection {
    type ConnectInfo = ConnectionInfo;

    fn connect_info(&self) -> ConnectionInfo {
        self.info.clone()
    }
}
