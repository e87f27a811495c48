//! [`Remote`], a session with a server, and its blocks.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use freehold_broker::{Access, Policy};
use tokio::runtime::Runtime;

use super::call_numbers::{CallNumber, CallNumbers};
use super::connection::{self, Connection};
use crate::convert::{access_to_proto, policy_to_proto};
use crate::error::{Executed, RemoteError};
use crate::proto::{self, Block, Name, Stats};
use crate::rpc::Method;
use crate::sync::lock;
use crate::transport::Token;

/// The idle timeout that a session asks for.
const SESSION_TIMEOUT: Duration = Duration::from_secs(60);

/// A handle to a session at a server. The session is closed when the last handle and the last block are dropped. It has
/// threads of its own, and must not be used from within a tokio runtime.
#[derive(Clone, Debug)]
pub struct Remote {
    pub(super) inner: Arc<RemoteInner>,
}

#[derive(Debug)]
pub(super) struct RemoteInner {
    /// `None` when it is being dropped.
    runtime: Option<Runtime>,
    pub(super) connection: Connection,
    session_timeout: Duration,
    pub(super) call_numbers: Arc<CallNumbers>,
    session: OnceLock<OpenSession>,
    opening: Mutex<()>,
}

#[derive(Clone, Debug)]
pub(super) struct OpenSession {
    pub(super) key: Vec<u8>,
    pub(super) chunk_bytes_max: u64,
}

/// Device memory at the server. Dropping it frees the memory.
#[derive(Debug)]
pub struct RemoteBlock {
    pub(super) remote: Remote,
    pub(super) number: u64,
    pub(super) bytes: u64,
    pub(super) access: Access,
    pub(super) is_freed: bool,
}

impl Remote {
    /// Connects to a server and presents the token. `ca` holds PEM certificates: the server's must be one of them, or
    /// be signed by one. Without `ca`, the certificates that this machine trusts are used.
    ///
    /// # Errors
    /// If no server listens, the certificate is not trusted, or the token is wrong. The message says what to do.
    pub fn connect(url: &str, token: &Token, ca: Option<&[u8]>) -> Result<Self, RemoteError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.map_err(|error| RemoteError::connection(format!("system error: {error}")))?;
        let connection = runtime.block_on(Connection::connect(url, token, ca))?;
        let (opened, opening, call_numbers) = (OnceLock::new(), Mutex::new(()), Arc::default());
        Ok(Self {
            inner: Arc::new(RemoteInner {
                runtime: Some(runtime),
                connection,
                session_timeout: SESSION_TIMEOUT,
                call_numbers,
                session: opened,
                opening,
            }),
        })
    }

    /// Checks the form of a server's address, before a token is needed. [`connect`](Self::connect) does so too.
    ///
    /// # Errors
    /// If it is not a URL with a host, or the token would be sent to another machine without TLS.
    pub fn check_url(url: &str) -> Result<(), RemoteError> {
        connection::parse_url(url).map(drop)
    }

    /// Sets how long the session survives without a call of this client; at least a second, at most 10 minutes.
    #[must_use]
    pub fn with_session_timeout(mut self, timeout: Duration) -> Self {
        Arc::get_mut(&mut self.inner).expect("options are set before the connection is used").session_timeout = timeout;
        self
    }

    /// Sets how long a call is retried after its connection is lost.
    #[must_use]
    pub fn with_retry_timeout(mut self, timeout: Duration) -> Self {
        let inner = Arc::get_mut(&mut self.inner).expect("options are set before the connection is used");
        inner.connection.retry_timeout = timeout;
        self
    }

    /// Returns the number of connections that large transfers are divided among.
    pub fn connections(&self) -> usize {
        self.inner.connection.channel_count()
    }

    /// Allocates device memory.
    pub fn alloc(&self, bytes: u64) -> Result<RemoteBlock, RemoteError> {
        let request = |call| proto::AllocRequest { call: Some(call), bytes };
        let block = self.call_once(request)?;
        Ok(self.block_handle(&block))
    }

    /// Leases a name.
    pub fn lease(&self, name: &str, access: Access) -> Result<RemoteBlock, RemoteError> {
        let access = access_to_proto(access).into();
        let request = |call| proto::LeaseRequest { call: Some(call), name: name.to_owned(), access };
        let block = self.call_once(request)?;
        Ok(self.block_handle(&block))
    }

    /// Publishes a block under a name. The memory stays when the session ends.
    ///
    /// # Errors
    /// If the name is taken or invalid. The error returns the block.
    #[allow(clippy::result_large_err, reason = "the error returns the block, by value")]
    pub fn publish(&self, name: &str, mut block: RemoteBlock, policy: Policy) -> Result<(), RemoteBlockError> {
        let policy = policy_to_proto(policy);
        let (number, name) = (block.number, name.to_owned());
        let request = |call| proto::PublishRequest { call: Some(call), block: number, name, policy: policy.into() };
        match self.call_once(request) {
            Ok(proto::Done {}) => {
                block.is_freed = true;
                Ok(())
            }
            Err(error) => Err(RemoteBlockError { block, error }),
        }
    }

    /// Drops a name.
    pub fn drop_name(&self, name: &str) -> Result<(), RemoteError> {
        let request = |call| proto::DropRequest { call: Some(call), name: name.to_owned() };
        let dropped = self.call_once(request);
        dropped.map(|proto::Done {}| ())
    }

    /// Lists all names, in order.
    pub fn names(&self) -> Result<Vec<Name>, RemoteError> {
        let mut names: Vec<Name> = Vec::new();
        loop {
            let after = names.last().map_or_else(String::new, |last| last.name.clone());
            let request = proto::ListRequest { after };
            let more = self.call(&request)?;
            if more.names.is_empty() {
                return Ok(names);
            }
            names.extend(more.names);
        }
    }

    /// Returns the size of a name in bytes.
    ///
    /// # Errors
    /// [`Code::NotFound`](tonic::Code::NotFound) if there is no such name.
    pub fn find(&self, name: &str) -> Result<u64, RemoteError> {
        let request = proto::FindRequest { name: name.to_owned() };
        let found = self.call(&request)?;
        Ok(found.bytes)
    }

    /// Returns the totals of the broker.
    pub fn stats(&self) -> Result<Stats, RemoteError> {
        self.call(&proto::TotalsRequest {})
    }

    /// Closes the session at once, with everything in it.
    pub fn close(self) -> Result<(), RemoteError> {
        let Some(OpenSession { key: session, .. }) = self.inner.session.get().cloned() else { return Ok(()) };
        let request = proto::CloseRequest { session };
        let closed = self.call(&request);
        closed.map(|proto::Done {}| ())
    }

    fn block_handle(&self, block: &Block) -> RemoteBlock {
        let access = match block.access() {
            proto::Access::Write => Access::Write,
            proto::Access::Read | proto::Access::Unspecified => Access::Read,
        };
        let (number, bytes) = (block.block, block.bytes);
        RemoteBlock { remote: self.clone(), number, bytes, access, is_freed: false }
    }

    /// Makes a call, with retries.
    pub(super) fn call<M: Method>(&self, request: &M) -> Result<M::Reply, RemoteError> {
        self.inner.block_on(self.inner.connection.call(0, request))
    }

    /// Like [`call`](Self::call), for a call that changes something: it gets a number.
    pub(super) fn call_once<M: Method>(&self, request: impl FnOnce(proto::Call) -> M) -> Result<M::Reply, RemoteError> {
        let session = self.session()?.key.clone();
        let number = CallNumbers::next(&self.inner.call_numbers);
        self.call(&request(proto_call(&session, &number)))
    }

    /// Returns the session, and opens it if there is none.
    pub(super) fn session(&self) -> Result<&OpenSession, RemoteError> {
        if let Some(opened) = self.inner.session.get() {
            return Ok(opened);
        }
        let _turn = lock(&self.inner.opening);
        if let Some(opened) = self.inner.session.get() {
            return Ok(opened);
        }
        let session = random_key().map_err(|error| RemoteError::connection(format!("/dev/urandom: {error}")))?;
        let life_ms = self.inner.session_timeout.as_millis() as u64;
        let request = proto::OpenRequest { session, life_ms, resume: false };
        let opened = self.call(&request)?;
        let request = proto::OpenRequest { resume: true, ..request };
        let (connection, timeout) = (self.inner.connection.clone(), Duration::from_millis(opened.life_ms));
        self.inner.runtime().spawn(async move {
            loop {
                tokio::time::sleep(timeout / 4).await;
                let renewed = connection.call(0, &request).await;
                // The next call of the client reports it too.
                if renewed.is_err_and(|failure| failure.is_session_expired) {
                    return;
                }
            }
        });
        let proto::Session { session, chunk_bytes_max, .. } = opened;
        Ok(self.inner.session.get_or_init(|| OpenSession { key: session, chunk_bytes_max }))
    }
}

pub(super) fn proto_call(session: &[u8], number: &CallNumber) -> proto::Call {
    proto::Call { session: session.to_owned(), number: number.value(), answered_below: number.answered_below() }
}

fn random_key() -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

impl RemoteInner {
    pub(super) fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("the runtime exists until drop")
    }

    /// Runs a future to its end. The runtime's part is not generic, so that it is compiled once.
    pub(super) fn block_on<R>(&self, future: impl Future<Output = R>) -> R {
        let mut result = None;
        {
            let future = pin!(async { result = Some(future.await) });
            let future: Pin<&mut dyn Future<Output = ()>> = future;
            self.runtime().block_on(future);
        }
        result.expect("the future was run to its end")
    }
}

impl Drop for RemoteInner {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        if let Some(OpenSession { key: session, .. }) = self.session.take() {
            let mut client = self.connection.client(0);
            let close = async move { client.call(proto::CloseRequest { session }).await };
            // If this fails, the session ends with its idle timeout.
            let closed = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(1), close).await });
            if !matches!(closed, Ok(Ok(_))) {
                tracing::warn!(target: "freehold", "could not close the session: it ends with its idle timeout");
            }
        }
        runtime.shutdown_background();
    }
}

/// Why a block was not published or freed, with the unchanged block. `?` drops the block, which frees it like any drop.
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct RemoteBlockError {
    /// The block.
    pub block: RemoteBlock,
    /// Why.
    pub error: RemoteError,
}

/// Same as `Display`, so that `unwrap` and a `main` that returns the error print the message.
impl fmt::Debug for RemoteBlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl From<RemoteBlockError> for RemoteError {
    fn from(failed: RemoteBlockError) -> Self {
        failed.error
    }
}

impl RemoteBlock {
    /// Returns its length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the permitted access.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Frees the memory.
    ///
    /// # Errors
    /// Those of the connection and of the server. The error returns the block.
    #[allow(clippy::result_large_err, reason = "the error returns the block, by value")]
    pub fn close(mut self) -> Result<(), RemoteBlockError> {
        let remote = self.remote.clone();
        let block = self.number;
        let request = |call| proto::FreeRequest { call: Some(call), block };
        let freed = remote.call_once(request);
        match freed {
            Ok(proto::Done {}) => {
                self.is_freed = true;
                Ok(())
            }
            Err(error) => Err(RemoteBlockError { block: self, error }),
        }
    }
}

impl Drop for RemoteBlock {
    /// Does not wait: if it fails, the memory is freed with the session.
    fn drop(&mut self) {
        let (false, Some(opened)) = (self.is_freed, self.remote.inner.session.get()) else { return };
        let (connection, number) =
            (self.remote.inner.connection.clone(), CallNumbers::next(&self.remote.inner.call_numbers));
        let (session, block) = (opened.key.clone(), self.number);
        self.remote.inner.runtime().spawn(async move {
            let call = proto_call(&session, &number);
            let request = proto::FreeRequest { call: Some(call), block };
            let freed = connection.call(0, &request).await;
            if let Err(failure) = freed
                && failure.executed == Executed::Unknown
            {
                tracing::warn!(target: "freehold", %failure, "could not free a block: it ends with the session");
            }
        });
    }
}
