//! The implementation of each call. It checks the request, then calls the session or the broker. Nothing that waits for
//! either runs on the network threads.

use std::any::Any;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use freehold_broker::wire::{BrokerStats, Reply as Answered, Request as Ask};
use freehold_broker::{Access, Caller, Host, Lease, Link, LinkError, Name};
use prost::Message;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinError;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Status};

use super::block::SessionBlock;
use super::download::{ChunkResult, Download};
use super::idempotency::Claim;
use super::permits::ModulePermit;
use super::session::{Session, SessionGuard, Sessions};
use super::upload::Upload;
use crate::convert::{access_to_proto, policy_from_proto};
use crate::error::{Executed, RemoteError};
use crate::proto::upload_message::Part;
use crate::proto::{self, Block, Call, Done, UploadBegin, UploadMessage, Uploaded};
use crate::rpc::Messages;
use crate::sync::lock;
use crate::transport::CHUNK_BYTES_MAX;

/// Chunks of an upload that wait for pinned memory.
const QUEUE: usize = 2;

/// Default size of the chunks of a download.
const CHUNK_BYTES: usize = 1 << 20;

/// Calls that wait for launches, each of which takes a thread. Further ones wait. Fewer than the threads of the
/// runtime, so that transfers and other calls get theirs.
const WAITS_MAX: usize = 128;

/// Calls outside any session that have a thread.
const BROKER_CALLS_MAX: usize = 32;

pub(super) struct FreeholdService {
    sessions: Arc<Sessions>,
    /// For calls that belong to no session.
    link: Arc<Mutex<Link>>,
    broker_permits: Arc<Semaphore>,
    wait_permits: Arc<Semaphore>,
    /// How long an upload has to begin.
    handshake_timeout: Duration,
}

type Reply<T> = Result<T, Status>;

/// Work for a session, with its encoded reply.
type SessionWork = Box<dyn FnOnce(&Session) -> Result<Vec<u8>, RemoteError> + Send>;

/// Runs something that may wait for the device or the broker on a thread of its own, when there is a permit.
async fn run_blocking<T: Send + 'static>(
    turns: &Arc<Semaphore>,
    work: impl FnOnce() -> Result<T, RemoteError> + Send + 'static,
) -> Result<T, RemoteError> {
    let turn = acquire(turns).await;
    let work = move || {
        // The permit belongs to the thread, not to a client that stopped waiting.
        let _turn = turn;
        work()
    };
    match spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(aborted()),
    }
}

/// Like [`tokio::task::spawn_blocking`], whose code is compiled once for all kinds of work.
fn spawn_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = Result<T, JoinError>> {
    let work: Box<dyn FnOnce() -> Box<dyn Any + Send> + Send> = Box::new(move || Box::new(work()));
    let task = tokio::task::spawn_blocking(work);
    async move { task.await.map(|outcome| *outcome.downcast().expect("the work returns a T")) }
}

async fn acquire(turns: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    turns.clone().acquire_owned().await.expect("the semaphore is never closed")
}

fn aborted() -> RemoteError {
    RemoteError::server("the server aborted the call: report it to its operator").with_executed(Executed::Unknown)
}

impl FreeholdService {
    pub(super) fn new(sessions: Arc<Sessions>, link: Arc<Mutex<Link>>, handshake_timeout: Duration) -> Self {
        let [broker_permits, waits] = [BROKER_CALLS_MAX, WAITS_MAX].map(|most| Arc::new(Semaphore::new(most)));
        Self { sessions, link, broker_permits, wait_permits: waits, handshake_timeout }
    }

    fn enter(&self, call: Option<&Call>) -> Result<(SessionGuard, Call), RemoteError> {
        let call =
            call.ok_or_else(|| RemoteError::invalid_argument("the request has no call: set session and number"))?;
        Ok((self.sessions.enter(&call.session)?, call.clone()))
    }

    /// Executes a call that changes something once, however often it is repeated.
    async fn call_once<R: Message + Default>(
        &self,
        call: Option<&Call>,
        fingerprint: u64,
        work: impl FnOnce(&Session) -> Result<R, RemoteError> + Send + 'static,
    ) -> Reply<R> {
        let answer =
            self.answer_once(call, fingerprint, Box::new(|session| Ok(work(session)?.encode_to_vec()))).await?;
        Ok(R::decode(answer.as_slice()).expect("it was encoded here"))
    }

    /// Returns the encoded answer of a call that is executed once.
    async fn answer_once(
        &self,
        call: Option<&Call>,
        fingerprint: u64,
        work: SessionWork,
    ) -> Result<Vec<u8>, RemoteError> {
        let (guard, call) = self.enter(call)?;
        let mut outcome = match guard.call_log.claim(&call, fingerprint)? {
            Claim::Known(outcome) => outcome,
            Claim::New(sender) => {
                let outcome = sender.subscribe();
                // A task of its own, which continues if the client does not. The number of threads of a session is
                // limited.
                tokio::spawn(async move {
                    let turn = acquire(&guard.call_permits).await;
                    let work = move || {
                        sender.send_replace(Some(work(&guard)));
                        drop(turn);
                    };
                    // If it panics, waiting clients see the channel close.
                    let _ = spawn_blocking(work).await;
                });
                outcome
            }
        };
        match outcome.wait_for(Option::is_some).await {
            Ok(answer) => answer.clone().expect("the outcome was awaited"),
            Err(_) => Err(aborted()),
        }
    }

    async fn call_broker<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&mut Link) -> Result<T, LinkError> + Send + 'static,
    ) -> Result<T, RemoteError> {
        let link = self.link.clone();
        run_blocking(&self.broker_permits, move || Ok(ask(&mut lock(&link))?)).await
    }

    /// Receives the chunks of an upload and passes them on, no faster than the device takes them.
    async fn receive(&self, begin: UploadBegin, mut parts: Messages<UploadMessage>) -> Result<Uploaded, RemoteError> {
        let (guard, call) = self.enter(begin.call.as_ref())?;
        let upload = guard.call_log.upload(&call, || Ok(Arc::new(Upload::new(guard.block(begin.block)?, &begin)?)))?;
        // The previous sender may be waiting for the device.
        let begun = upload.clone();
        let sender = run_blocking(&guard.call_permits, move || begun.begin(&begin)).await?;
        let told = |turns: Arc<Semaphore>| async move { run_blocking(&turns, move || Ok(upload.progress())).await };
        let Some(sender) = sender else { return told(guard.call_permits.clone()).await };
        let permit = self.sessions.pinned.permit(&guard.transfer_permits).await;
        let (queue, waiting) = mpsc::channel(QUEUE);
        let (pinned, idle_timeout, turns) =
            (self.sessions.pinned.clone(), guard.idle_timeout, guard.call_permits.clone());
        let writer =
            spawn_blocking(move || sender.write_all(|| guard.upload_stream(), pinned.buffer(permit)?, waiting));
        let broken = loop {
            let part = match tokio::time::timeout(idle_timeout, parts.message()).await {
                Ok(Ok(Some(UploadMessage { part: Some(part) }))) => part,
                Ok(Ok(Some(UploadMessage { part: None }))) => {
                    break Some(RemoteError::invalid_argument(
                        "empty message of an upload: expected a chunk or the end",
                    ));
                }
                Ok(Ok(None)) => break None,
                Ok(Err(status)) => break Some(read_error(&status)),
                Err(_) => {
                    let message = format!(
                        "no part of the upload came for {} s: resume it when there is more",
                        idle_timeout.as_secs()
                    );
                    break Some(RemoteError::caller(Code::DeadlineExceeded, message));
                }
            };
            let is_last = matches!(part, Part::End(_));
            // If nobody takes it, the writer returns the reason.
            if queue.send(part).await.is_err() || is_last {
                break None;
            }
        };
        drop(queue);
        let written = writer
            .await
            .map_err(|_| RemoteError::server("the server aborted the upload: report it to its operator"))?;
        match broken {
            None => written,
            Some(failure) => Err(failure.with_received(told(turns).await?.bytes)),
        }
    }
}

/// The error for a message that is too long or malformed.
fn read_error(status: &Status) -> RemoteError {
    match status.code() {
        Code::OutOfRange => {
            RemoteError::invalid_argument(format!("a message is too long: a chunk has at most {CHUNK_BYTES_MAX} bytes"))
        }
        _ => RemoteError::connection("the upload was interrupted: resume it"),
    }
}

/// A hash of a request and its kind, without the call number.
fn fingerprint<M: Hash>(request: &M) -> u64 {
    let mut hasher = DefaultHasher::new();
    (std::any::type_name::<M>(), request).hash(&mut hasher);
    hasher.finish()
}

pub(super) fn broker_stats(link: &mut Link) -> Result<BrokerStats, LinkError> {
    match link.call(Ask::Stats)?.reply {
        Answered::Stats(sums) => Ok(sums),
        _ => Err(LinkError::Malformed),
    }
}

fn parse_name(text: &str) -> Result<Name, RemoteError> {
    Name::parse(text).map_err(|wrong| RemoteError::from(freehold_broker::Error::from(wrong)))
}

fn parse_access(told: i32) -> Result<Access, RemoteError> {
    match proto::Access::try_from(told) {
        Ok(proto::Access::Read) => Ok(Access::Read),
        Ok(proto::Access::Write) => Ok(Access::Write),
        _ => Err(RemoteError::invalid_argument("unspecified access: expected ACCESS_READ or ACCESS_WRITE")),
    }
}

fn proto_block(block: &SessionBlock) -> Block {
    Block { block: block.number, bytes: block.bytes, access: access_to_proto(block.access).into() }
}

fn parse_listed(line: &str) -> Option<proto::Name> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [name, bytes, user, process, readers, writers, age_s, version, memory] = fields[..] else { return None };
    let host = memory == "1";
    // The header of host memory is not part of its size.
    let header_bytes = if host { Host::HEADER_BYTES } else { 0 };
    Some(proto::Name {
        name: name.to_owned(),
        bytes: bytes.parse::<u64>().ok()?.saturating_sub(header_bytes),
        host,
        user: user.parse().ok()?,
        process: process.parse().ok()?,
        readers: readers.parse().ok()?,
        writers: writers.parse().ok()?,
        age_s: age_s.parse().ok()?,
        version: version.parse().ok()?,
    })
}

/// The implementation of each call.
impl FreeholdService {
    pub(super) async fn open(&self, request: Request<proto::OpenRequest>) -> Reply<proto::Session> {
        let proto::OpenRequest { session, life_ms, resume } = request.into_inner();
        let (sessions, key) = (self.sessions.clone(), session.clone());
        let opened =
            move || if resume { sessions.enter(&key) } else { sessions.open(&key, Duration::from_millis(life_ms)) };
        let life_ms = run_blocking(&self.broker_permits, opened).await?.idle_timeout.as_millis() as u64;
        Ok(proto::Session { session, life_ms, chunk_bytes_max: CHUNK_BYTES_MAX as u64 })
    }

    pub(super) async fn close(&self, request: Request<proto::CloseRequest>) -> Reply<Done> {
        let (sessions, key) = (self.sessions.clone(), request.into_inner().session);
        run_blocking(&self.broker_permits, move || sessions.close(&key)).await?;
        Ok(Done {})
    }

    pub(super) async fn alloc(&self, request: Request<proto::AllocRequest>) -> Reply<Block> {
        let proto::AllocRequest { call, bytes } = request.into_inner();
        self.call_once(call.as_ref(), fingerprint(&proto::AllocRequest { call: None, bytes }), move |session| {
            let len = usize::try_from(bytes)
                .map_err(|_| RemoteError::invalid_argument("the number of bytes overflows usize"))?;
            let lease: Lease<u8> = session.broker.reserve(session.upload_stream()?, len)?;
            Ok(proto_block(&session.add_block(lease)))
        })
        .await
    }

    pub(super) async fn free(&self, request: Request<proto::FreeRequest>) -> Reply<Done> {
        let proto::FreeRequest { call, block } = request.into_inner();
        self.call_once(call.as_ref(), fingerprint(&proto::FreeRequest { call: None, block }), move |session| {
            session.free(block)?;
            Ok(Done {})
        })
        .await
    }

    pub(super) async fn upload(&self, mut parts: Messages<UploadMessage>) -> Reply<Uploaded> {
        let Ok(first) = tokio::time::timeout(self.handshake_timeout, parts.message()).await else {
            let message =
                format!("no part of the upload came for {:?}: send its begin at once", self.handshake_timeout);
            return Err(RemoteError::caller(Code::DeadlineExceeded, message).into());
        };
        match first {
            Ok(Some(UploadMessage { part: Some(Part::Begin(begin)) })) => Ok(self.receive(begin, parts).await?),
            Ok(_) => Err(RemoteError::invalid_argument("the upload has no begin: send it first").into()),
            Err(status) => Err(read_error(&status).into()),
        }
    }

    pub(super) async fn resume_upload(&self, request: Request<proto::ResumeRequest>) -> Reply<Uploaded> {
        let proto::ResumeRequest { session, number } = request.into_inner();
        let guard = self.sessions.enter(&session)?;
        let upload = guard.call_log.find_upload(number);
        // An upload of which nothing has arrived is at byte 0.
        let told = run_blocking(&guard.call_permits, move || {
            Ok(upload.map_or_else(Uploaded::default, |upload| upload.resume()))
        })
        .await?;
        Ok(told)
    }

    pub(super) async fn download(&self, request: proto::DownloadRequest) -> Reply<ReceiverStream<ChunkResult>> {
        let proto::DownloadRequest { session, block, offset, bytes, chunk_bytes } = request;
        let guard = self.sessions.enter(&session)?;
        let block = guard.block(block)?;
        let bytes = if bytes == 0 { block.bytes.saturating_sub(offset) } else { bytes };
        let range = block.range(offset, bytes)?;
        let chunk_bytes = match chunk_bytes as usize {
            0 => CHUNK_BYTES,
            requested => requested.min(CHUNK_BYTES_MAX),
        };
        let permit = self.sessions.pinned.permit(&guard.transfer_permits).await;
        let (pinned, runtime) = (self.sessions.pinned.clone(), tokio::runtime::Handle::current());
        let buffer = run_blocking(&guard.call_permits, move || pinned.buffer(permit)).await?;
        let (download, chunks) = Download::new(guard, block, range, chunk_bytes);
        drop(spawn_blocking(move || download.run(buffer, &runtime)));
        Ok(ReceiverStream::new(chunks))
    }

    pub(super) async fn publish(&self, request: Request<proto::PublishRequest>) -> Reply<Done> {
        let mut request = request.into_inner();
        let call = request.call.take();
        self.call_once(call.as_ref(), fingerprint(&request), move |session| {
            session.publish(request.block, &request.name, policy_from_proto(request.policy()))?;
            Ok(Done {})
        })
        .await
    }

    pub(super) async fn lease(&self, request: Request<proto::LeaseRequest>) -> Reply<Block> {
        let mut request = request.into_inner();
        let call = request.call.take();
        self.call_once(call.as_ref(), fingerprint(&request), move |session| {
            let lease =
                session.broker.lease::<u8>(session.upload_stream()?, &request.name, parse_access(request.access)?)?;
            Ok(proto_block(&session.add_block(lease)))
        })
        .await
    }

    pub(super) async fn drop_name(&self, request: Request<proto::DropRequest>) -> Reply<Done> {
        let mut request = request.into_inner();
        let call = request.call.take();
        self.call_once(call.as_ref(), fingerprint(&request), move |session| {
            session.broker.drop_name(parse_name(&request.name)?.as_str())?;
            Ok(Done {})
        })
        .await
    }

    pub(super) async fn find(&self, request: Request<proto::FindRequest>) -> Reply<proto::Found> {
        let name = parse_name(&request.into_inner().name)?;
        let found = self.call_broker(move |link| link.call(Ask::Find { name })).await?;
        match found.reply {
            Answered::Number { bytes, .. } => Ok(proto::Found { bytes }),
            _ => Err(RemoteError::from(LinkError::Malformed).into()),
        }
    }

    pub(super) async fn list(&self, request: Request<proto::ListRequest>) -> Reply<proto::Names> {
        let after = request.into_inner().after;
        let after = match after.as_str() {
            "" => None,
            after => Some(parse_name(after)?),
        };
        let text = self.call_broker(move |link| Ok(link.call(Ask::List { after })?.text)).await?;
        let names: Option<Vec<_>> = text.lines().map(parse_listed).collect();
        Ok(proto::Names { names: names.ok_or_else(|| RemoteError::from(LinkError::Malformed))? })
    }

    pub(super) async fn put_module(&self, mut request: Request<proto::PutModuleRequest>) -> Reply<proto::Module> {
        let place: Option<ModulePermit> = request.extensions_mut().remove();
        let mut request = request.into_inner();
        let call = request.call.take();
        let fingerprint = fingerprint(&request);
        let put = move |session: &Session| {
            let put = session.launches.put_module(&request.name, &request.text);
            drop((request, place));
            put
        };
        // Only its number is remembered, because there may be many kernels.
        let known: proto::Module = self.call_once(call.as_ref(), fingerprint, put).await?;
        let (guard, _) = self.enter(call.as_ref())?;
        Ok(guard.launches.describe_module(known.module)?)
    }

    pub(super) async fn find_module(&self, request: Request<proto::FindModuleRequest>) -> Reply<proto::Module> {
        let proto::FindModuleRequest { session, name } = request.into_inner();
        let guard = self.sessions.enter(&session)?;
        Ok(run_blocking(&guard.call_permits.clone(), move || guard.launches.find_module(&name)).await?)
    }

    pub(super) async fn list_modules(&self, request: Request<proto::ListModulesRequest>) -> Reply<proto::Modules> {
        let guard = self.sessions.enter(&request.into_inner().session)?;
        Ok(run_blocking(&guard.call_permits.clone(), move || guard.launches.list_modules()).await?)
    }

    pub(super) async fn drop_module(&self, request: Request<proto::DropModuleRequest>) -> Reply<Done> {
        let mut request = request.into_inner();
        let call = request.call.take();
        self.call_once(call.as_ref(), fingerprint(&request), move |session| {
            session.launches.drop_module(&request.name)?;
            Ok(Done {})
        })
        .await
    }

    pub(super) async fn launch(&self, request: Request<proto::LaunchRequest>) -> Reply<proto::Launched> {
        let mut request = request.into_inner();
        let call = request.call.take();
        let launch = call.as_ref().map_or(0, |call| call.number);
        self.call_once(call.as_ref(), fingerprint(&("launch", request.encode_to_vec())), move |session| {
            let block = |caller: &Caller, block: &proto::BlockArgument| {
                session.block(block.block)?.argument(caller, block.offset)
            };
            session.launches.launch(launch, &request, block)?;
            Ok(proto::Launched { launch })
        })
        .await
    }

    pub(super) async fn wait(&self, request: Request<proto::WaitRequest>) -> Reply<Done> {
        let proto::WaitRequest { session, launch, timeout_ms } = request.into_inner();
        let guard = self.sessions.enter(&session)?;
        let own = acquire(&guard.wait_permits).await;
        let waited = run_blocking(&self.wait_permits, move || {
            let _own = own;
            guard.launches.wait(launch, Duration::from_millis(timeout_ms))
        });
        waited.await?;
        Ok(Done {})
    }

    pub(super) async fn totals(&self, _: Request<proto::TotalsRequest>) -> Reply<proto::Stats> {
        let sums = self.call_broker(broker_stats).await?;
        Ok(proto::Stats {
            budget_bytes: sums.budget_bytes,
            segment_bytes: sums.segment_bytes,
            leased_bytes: sums.leased_bytes,
            named_bytes: sums.named_bytes,
            reclaiming_bytes: sums.reclaiming_bytes,
            tenants: sums.tenants.into(),
            names: sums.names.into(),
            leases: sums.leases.into(),
            sessions: self.sessions.len() as u64,
        })
    }
}
