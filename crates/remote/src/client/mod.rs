//! The client: a session at a gate, used from plain threads. What is asked again after a lost connection is asked under the same
//! number, so that it is carried out once.

mod launches;
mod line;
mod numbers;
mod transfer;

use std::fs::File;
use std::io::{self, Read};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use freehold_broker::{Access, Policy};
use tokio::runtime::Runtime;
use tonic::{Response, Status};

pub use self::launches::{RemoteArgument, RemoteCall, RemoteModule};
use self::line::{Client, Line};
use self::numbers::{Number, Numbers};
use crate::failure::{CarriedOut, Failure};
use crate::proto::{self, Block, Name, Sums};
use crate::token::Token;

/// How long a session is to live without its client.
const LIFE: Duration = Duration::from_secs(60);

/// A session at a gate. A handle: the session is closed with the last one and the last block. It has threads of its own, and is not used
/// from within a tokio runtime.
#[derive(Clone, Debug)]
pub struct Remote {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Nothing when it is over.
    runtime: Option<Runtime>,
    line: Line,
    life: Duration,
    numbers: Arc<Numbers>,
    opened: OnceLock<Opened>,
    opening: Mutex<()>,
}

#[derive(Clone, Debug)]
struct Opened {
    session: Vec<u8>,
    chunk_bytes_max: u64,
}

/// Memory of the device at the gate. Dropped, it is given back.
#[derive(Debug)]
pub struct RemoteBlock {
    remote: Remote,
    number: u64,
    bytes: u64,
    access: Access,
    is_over: bool,
}

impl Remote {
    /// Connects to a gate, and shows the token. `ca` are certificates, as PEM, of which one has to vouch for the gate; without it
    /// those that this machine trusts.
    ///
    /// # Errors
    /// Why it did not work, and what to do: nobody listens, the certificate is not trusted, the token is another.
    pub fn connect(url: &str, token: &Token, ca: Option<&[u8]>) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::connection(format!("the system refused: {error}")))?;
        let line = runtime.block_on(Line::connect(url, token, ca))?;
        let (opened, opening, numbers) = (OnceLock::new(), Mutex::new(()), Arc::default());
        Ok(Self { inner: Arc::new(Inner { runtime: Some(runtime), line, life: LIFE, numbers, opened, opening }) })
    }

    /// How long the session lives when this client is gone, or cut off; at least a second, and 10 minutes at the most.
    #[must_use]
    pub fn with_life(mut self, life: Duration) -> Self {
        Arc::get_mut(&mut self.inner).expect("a connection is set up before it is used").life = life;
        self
    }

    /// How long a call is tried again over a connection that was lost.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        let inner = Arc::get_mut(&mut self.inner).expect("a connection is set up before it is used");
        inner.line.patience = patience;
        self
    }

    /// How many connections large transfers are divided among.
    pub fn connections(&self) -> usize {
        self.inner.line.lanes()
    }

    /// Memory of the device.
    pub fn alloc(&self, bytes: u64) -> Result<RemoteBlock, Failure> {
        let request = |call| proto::AllocRequest { call: Some(call), bytes };
        let block = self.once(request, |mut client, request| async move { client.alloc(request).await })?;
        Ok(self.held(&block))
    }

    /// What has a name.
    pub fn lease(&self, name: &str, access: Access) -> Result<RemoteBlock, Failure> {
        let access = told_access(access).into();
        let request = |call| proto::LeaseRequest { call: Some(call), name: name.to_owned(), access };
        let block = self.once(request, |mut client, request| async move { client.lease(request).await })?;
        Ok(self.held(&block))
    }

    /// Gives a block a name, under which it stays.
    ///
    /// # Errors
    /// The block, and why.
    pub fn publish(&self, name: &str, mut block: RemoteBlock, policy: Policy) -> Result<(), (RemoteBlock, Failure)> {
        let policy = match policy {
            Policy::Restore => proto::Policy::Restore,
            Policy::Drop => proto::Policy::Drop,
            Policy::Open => proto::Policy::Open,
        };
        let (number, name) = (block.number, name.to_owned());
        let request = |call| proto::PublishRequest { call: Some(call), block: number, name, policy: policy.into() };
        match self.once(request, |mut client, request| async move { client.publish(request).await }) {
            Ok(proto::Done {}) => {
                block.is_over = true;
                Ok(())
            }
            Err(failure) => Err((block, failure)),
        }
    }

    /// Takes a name away.
    pub fn drop_name(&self, name: &str) -> Result<(), Failure> {
        let request = |call| proto::DropRequest { call: Some(call), name: name.to_owned() };
        let dropped = self.once(request, |mut client, request| async move { client.drop(request).await });
        dropped.map(|proto::Done {}| ())
    }

    /// All names, in their order.
    pub fn names(&self) -> Result<Vec<Name>, Failure> {
        let mut names: Vec<Name> = Vec::new();
        loop {
            let after = names.last().map_or_else(String::new, |last| last.name.clone());
            let request = proto::ListRequest { after };
            let more = self.ask(request, |mut client, request| async move { client.list(request).await })?;
            if more.names.is_empty() {
                return Ok(names);
            }
            names.extend(more.names);
        }
    }

    /// How many bytes a name has.
    ///
    /// # Errors
    /// [`Code::NotFound`](tonic::Code::NotFound) where it is not there.
    pub fn find(&self, name: &str) -> Result<u64, Failure> {
        let request = proto::FindRequest { name: name.to_owned() };
        let found = self.ask(request, |mut client, request| async move { client.find(request).await })?;
        Ok(found.bytes)
    }

    /// Sums over everything that the broker holds.
    pub fn totals(&self) -> Result<Sums, Failure> {
        self.ask(proto::TotalsRequest {}, |mut client, request| async move { client.totals(request).await })
    }

    /// Closes the session at once, with everything that it has.
    pub fn close(self) -> Result<(), Failure> {
        let Some(Opened { session, .. }) = self.inner.opened.get().cloned() else { return Ok(()) };
        let request = proto::CloseRequest { session };
        let closed = self.ask(request, |mut client, request| async move { client.close(request).await });
        closed.map(|proto::Done {}| ())
    }

    fn held(&self, block: &Block) -> RemoteBlock {
        let access = match block.access() {
            proto::Access::Write => Access::Write,
            proto::Access::Read | proto::Access::Unspecified => Access::Read,
        };
        let (number, bytes) = (block.block, block.bytes);
        RemoteBlock { remote: self.clone(), number, bytes, access, is_over: false }
    }

    /// Asks until there is an answer.
    fn ask<M: Clone, R, F: Future<Output = Result<Response<R>, Status>>>(
        &self,
        request: M,
        ask: impl Fn(Client, M) -> F,
    ) -> Result<R, Failure> {
        self.inner.runtime().block_on(self.inner.line.repeat(0, request, ask))
    }

    /// As [`ask`](Self::ask), what changes something: under a number.
    fn once<M: Clone, R, F: Future<Output = Result<Response<R>, Status>>>(
        &self,
        request: impl FnOnce(proto::Call) -> M,
        ask: impl Fn(Client, M) -> F,
    ) -> Result<R, Failure> {
        let session = self.opened()?.session.clone();
        let number = Numbers::take(&self.inner.numbers);
        self.ask(request(call(&session, &number)), ask)
    }

    /// The session, which is opened when it is first needed.
    fn opened(&self) -> Result<&Opened, Failure> {
        if let Some(opened) = self.inner.opened.get() {
            return Ok(opened);
        }
        let _turn = self.inner.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = self.inner.opened.get() {
            return Ok(opened);
        }
        let session = random().map_err(|error| Failure::connection(format!("/dev/urandom: {error}")))?;
        let life_ms = self.inner.life.as_millis() as u64;
        let request = proto::OpenRequest { session, life_ms, resume: false };
        let opened = self.ask(request.clone(), |mut client, request| async move { client.open(request).await })?;
        let request = proto::OpenRequest { resume: true, ..request };
        let (line, life) = (self.inner.line.clone(), Duration::from_millis(opened.life_ms));
        self.inner.runtime().spawn(async move {
            loop {
                tokio::time::sleep(life / 4).await;
                let renew = |mut client: Client, request| async move { client.open(request).await };
                let renewed = line.repeat(0, request.clone(), renew).await;
                // The next call hears of it too.
                if renewed.is_err_and(|failure| failure.is_session_over) {
                    return;
                }
            }
        });
        let proto::Session { session, chunk_bytes_max, .. } = opened;
        Ok(self.inner.opened.get_or_init(|| Opened { session, chunk_bytes_max }))
    }
}

fn told_access(access: Access) -> proto::Access {
    match access {
        Access::Read => proto::Access::Read,
        Access::Write => proto::Access::Write,
    }
}

fn call(session: &[u8], number: &Number) -> proto::Call {
    proto::Call { session: session.to_owned(), number: number.value(), answered_below: number.answered_below() }
}

fn random() -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

impl Inner {
    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it is there until the end")
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        if let Some(Opened { session, .. }) = self.opened.take() {
            let mut client = self.line.client(0);
            let close = async move { client.close(proto::CloseRequest { session }).await };
            // Where it is not heard, the session ends when its time is over.
            let closed = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(1), close).await });
            if !matches!(closed, Ok(Ok(_))) {
                tracing::warn!(target: "freehold", "the session could not be closed: it ends when its time is over");
            }
        }
        runtime.shutdown_background();
    }
}

impl RemoteBlock {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn access(&self) -> Access {
        self.access
    }

    /// Gives the memory back.
    ///
    /// # Errors
    /// The block, and why.
    pub fn close(mut self) -> Result<(), (Self, Failure)> {
        let remote = self.remote.clone();
        let block = self.number;
        let request = |call| proto::FreeRequest { call: Some(call), block };
        let freed = remote.once(request, |mut client, request| async move { client.free(request).await });
        match freed {
            Ok(proto::Done {}) => {
                self.is_over = true;
                Ok(())
            }
            Err(failure) => Err((self, failure)),
        }
    }
}

impl Drop for RemoteBlock {
    /// Nobody waits: where it is not heard, the memory is given back with the session.
    fn drop(&mut self) {
        let (false, Some(opened)) = (self.is_over, self.remote.inner.opened.get()) else { return };
        let (line, number) = (self.remote.inner.line.clone(), Numbers::take(&self.remote.inner.numbers));
        let (session, block) = (opened.session.clone(), self.number);
        self.remote.inner.runtime().spawn(async move {
            let call = call(&session, &number);
            let request = proto::FreeRequest { call: Some(call), block };
            let freed = line.repeat(0, request, |mut client, request| async move { client.free(request).await }).await;
            if let Err(failure) = freed
                && failure.carried_out == CarriedOut::Unknown
            {
                tracing::warn!(target: "freehold", %failure, "a block could not be given back: it ends with the session");
            }
        });
    }
}
