//! Remote sessions: each is a tenant of the broker, with the blocks that it has. A session outlives its connections, and ends when
//! nobody called for as long as it lives.

use std::collections::HashMap;
use std::ops::{Deref, Range};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use freehold::{Device, ImportedSlice, Stream};
use freehold_broker::{Access, Argument, Broker, Caller, Lease, Policy};
use tokio::sync::Semaphore;
use tonic::Code;

use super::idempotency::CallLog;
use super::launches::Launches;
use super::lock;
use super::pinned_pool::PinnedPool;
use crate::error::RemoteError;

/// How long a session lives behind its last call, where the client says nothing, and at most.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
const IDLE_TIMEOUT_MAX: Duration = Duration::from_secs(600);
const IDLE_TIMEOUT_MIN: Duration = Duration::from_secs(1);

const SESSIONS_MAX: usize = 256;

/// How many calls of a session are carried out side by side, how many of its transfers move, and how many of its waits wait: a part
/// of what the server has, so that others go on.
const SESSION_CALLS_MAX: usize = 16;
const SESSION_TRANSFERS_MAX: usize = 8;
const SESSION_WAITS_MAX: usize = 16;

/// The client's choice. Who knows it has the session.
pub(super) type SessionKey = [u8; 16];

pub(super) struct Sessions {
    device: Device,
    socket: PathBuf,
    pub(super) pinned: Arc<PinnedPool>,
    sessions: Mutex<HashMap<SessionKey, Arc<Session>>>,
    /// Sessions are opened one after the other, so that none is opened twice.
    opening: Mutex<()>,
}

pub(super) struct Session {
    pub(super) broker: Broker,
    pub(super) call_log: CallLog,
    pub(super) launches: Launches,
    /// What uploads and downloads are put into.
    upload_stream: Stream,
    download_stream: Stream,
    pub(super) idle_timeout: Duration,
    blocks: Mutex<HashMap<u64, Arc<SessionBlock>>>,
    last_block: AtomicU64,
    /// When the last call ended.
    last_call: Mutex<Instant>,
    /// Calls under way.
    active_calls: AtomicU32,
    /// Its calls that have a thread.
    pub(super) call_permits: Arc<Semaphore>,
    /// Its transfers that move.
    pub(super) transfer_permits: Arc<Semaphore>,
    /// Its calls that wait for launches.
    pub(super) wait_permits: Arc<Semaphore>,
}

/// A call in a session, which lives meanwhile.
pub(super) struct SessionGuard(Arc<Session>);

/// Memory that a session has.
pub(super) struct SessionBlock {
    pub(super) number: u64,
    pub(super) bytes: u64,
    pub(super) access: Access,
    /// Nothing where it was freed or published while somebody used it.
    lease: Mutex<Option<Lease<u8>>>,
}

impl Sessions {
    pub(super) fn new(device: Device, socket: PathBuf) -> Self {
        let pinned = Arc::new(PinnedPool::new(device.clone()));
        Self { device, socket, pinned, sessions: Mutex::default(), opening: Mutex::default() }
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.sessions).len()
    }

    /// A call in a session that was opened.
    pub(super) fn enter(&self, key: &[u8]) -> Result<SessionGuard, RemoteError> {
        let key = parse_key(key)?;
        let known = lock(&self.sessions);
        let session = known.get(&key).ok_or_else(RemoteError::session_expired)?;
        session.active_calls.fetch_add(1, Ordering::Relaxed);
        Ok(SessionGuard(session.clone()))
    }

    /// A session of that key: the one that is there, or a new one.
    pub(super) fn open(&self, key: &[u8], idle_timeout: Duration) -> Result<SessionGuard, RemoteError> {
        let _turn = lock(&self.opening);
        match self.enter(key) {
            Err(failure) if failure.is_session_expired => {}
            found => return found,
        }
        if self.len() >= SESSIONS_MAX {
            let message = format!("there are {SESSIONS_MAX} sessions: close one first");
            return Err(RemoteError::caller(Code::ResourceExhausted, message));
        }
        let [call_permits, transfer_permits, wait_permits] =
            [SESSION_CALLS_MAX, SESSION_TRANSFERS_MAX, SESSION_WAITS_MAX].map(|most| Arc::new(Semaphore::new(most)));
        let idle_timeout =
            if idle_timeout.is_zero() { IDLE_TIMEOUT } else { idle_timeout.clamp(IDLE_TIMEOUT_MIN, IDLE_TIMEOUT_MAX) };
        let broker = Broker::connect_at(&self.device, &self.socket)?;
        let session = Session {
            launches: Launches::new(&broker)?,
            broker,
            call_log: CallLog::default(),
            upload_stream: self.device.stream()?,
            download_stream: self.device.stream()?,
            idle_timeout,
            blocks: Mutex::default(),
            last_block: AtomicU64::new(0),
            last_call: Mutex::new(Instant::now()),
            active_calls: AtomicU32::new(1),
            call_permits,
            transfer_permits,
            wait_permits,
        };
        let session = Arc::new(session);
        lock(&self.sessions).insert(parse_key(key)?, session.clone());
        Ok(SessionGuard(session))
    }

    /// Ends a session. What is under way in it goes on to its end.
    pub(super) fn close(&self, key: &[u8]) -> Result<(), RemoteError> {
        let key = parse_key(key)?;
        let session = lock(&self.sessions).remove(&key);
        if let Some(session) = session {
            session.free_blocks();
        }
        Ok(())
    }

    /// Ends the sessions whose time is over.
    pub(super) fn close_idle(&self) {
        let is_over = |session: &Session| {
            session.active_calls.load(Ordering::Acquire) == 0
                && lock(&session.last_call).elapsed() > session.idle_timeout
        };
        let over: Vec<_> = lock(&self.sessions).extract_if(|_, session| is_over(session)).collect();
        over.iter().for_each(|(_, session)| session.free_blocks());
    }
}

fn parse_key(key: &[u8]) -> Result<SessionKey, RemoteError> {
    let wrong = |_| {
        RemoteError::invalid_argument(format!(
            "a session's id is of 16 bytes, and this of {}: choose 16 random ones",
            key.len()
        ))
    };
    key.try_into().map_err(wrong)
}

impl Deref for SessionGuard {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.0
    }
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        *lock(&self.0.last_call) = Instant::now();
        self.0.active_calls.fetch_sub(1, Ordering::Release);
    }
}

impl Session {
    /// Makes a lease a block of the session.
    pub(super) fn add_block(&self, lease: Lease<u8>) -> Arc<SessionBlock> {
        let number = self.last_block.fetch_add(1, Ordering::Relaxed) + 1;
        let (bytes, access) = (lease.len() as u64, lease.access());
        let block = Arc::new(SessionBlock { number, bytes, access, lease: Mutex::new(Some(lease)) });
        lock(&self.blocks).insert(number, block.clone());
        block
    }

    pub(super) fn block(&self, number: u64) -> Result<Arc<SessionBlock>, RemoteError> {
        lock(&self.blocks).get(&number).cloned().ok_or_else(|| no_such_block(number))
    }

    pub(super) fn free(&self, number: u64) -> Result<(), RemoteError> {
        let block = self.block(number)?;
        let lease = block.take_lease()?;
        lease.close().map_err(|(lease, error)| {
            *lock(&block.lease) = Some(lease);
            RemoteError::from(error)
        })?;
        lock(&self.blocks).remove(&number);
        Ok(())
    }

    pub(super) fn publish(&self, number: u64, name: &str, policy: Policy) -> Result<(), RemoteError> {
        let block = self.block(number)?;
        let lease = block.take_lease()?;
        self.broker.publish(name, lease, policy).map_err(|(lease, error)| {
            *lock(&block.lease) = Some(lease);
            RemoteError::from(error)
        })?;
        lock(&self.blocks).remove(&number);
        Ok(())
    }

    /// The stream of uploads, whose next work waits for the launches so far.
    pub(super) fn upload_stream(&self) -> Result<&Stream, RemoteError> {
        self.launches.wait_for_launches(&self.broker, &self.upload_stream)?;
        Ok(&self.upload_stream)
    }

    /// The stream of downloads, likewise.
    pub(super) fn download_stream(&self) -> Result<&Stream, RemoteError> {
        self.launches.wait_for_launches(&self.broker, &self.download_stream)?;
        Ok(&self.download_stream)
    }

    /// Gives all blocks back. Who still uses one finds it gone.
    fn free_blocks(&self) {
        let blocks = std::mem::take(&mut *lock(&self.blocks));
        for block in blocks.into_values() {
            drop(lock(&block.lease).take());
        }
    }
}

fn no_such_block(number: u64) -> RemoteError {
    let message = format!("there is no block {number} in the session: it was freed, published, or never there");
    RemoteError::caller(Code::NotFound, message)
}

impl SessionBlock {
    /// The bytes of a transfer within the block.
    pub(super) fn range(&self, offset: u64, bytes: u64) -> Result<Range<u64>, RemoteError> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(offset..end),
            _ => {
                let (number, has) = (self.number, self.bytes);
                let message = format!("block {number} has {has} bytes: {bytes} from byte {offset} on are not in it");
                Err(RemoteError::caller(Code::OutOfRange, message))
            }
        }
    }

    pub(super) fn check_writable(&self) -> Result<(), RemoteError> {
        if self.access == Access::Write {
            return Ok(());
        }
        let message = format!("block {} is leased for reading: lease it for writing", self.number);
        Err(RemoteError::caller(Code::PermissionDenied, message))
    }

    /// Copies pinned bytes into the block, in the order of a stream.
    pub(super) fn write(&self, stream: &Stream, at: u64, from: &ImportedSlice<u8>) -> Result<(), RemoteError> {
        let mut lease = lock(&self.lease);
        let lease = lease.as_mut().ok_or_else(|| no_such_block(self.number))?;
        let at = at as usize;
        Ok(stream.copy(from, &mut lease.view_mut(at..at + from.len())?)?)
    }

    /// Copies bytes of the block to pinned ones, in the order of a stream.
    pub(super) fn read(&self, stream: &Stream, at: u64, to: &mut ImportedSlice<u8>) -> Result<(), RemoteError> {
        let lease = lock(&self.lease);
        let lease = lease.as_ref().ok_or_else(|| no_such_block(self.number))?;
        let at = at as usize;
        Ok(stream.copy(&lease.view(at..at + to.len())?, to)?)
    }

    /// The block as an argument of a launch, from a byte on.
    pub(super) fn argument(&self, caller: &Caller, offset: u64) -> Result<Argument<'static>, RemoteError> {
        let lease = lock(&self.lease);
        let lease = lease.as_ref().ok_or_else(|| no_such_block(self.number))?;
        // SAFETY: the block is the client's, whose copies and launches use it as the client orders them: it may change under each of them.
        Ok(unsafe { caller.argument(lease.id(), offset) })
    }

    fn take_lease(&self) -> Result<Lease<u8>, RemoteError> {
        lock(&self.lease).take().ok_or_else(|| no_such_block(self.number))
    }
}
