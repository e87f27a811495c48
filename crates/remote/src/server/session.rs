//! Sessions: each is a tenant of the broker, with its blocks. A session outlives its connections, and ends when it
//! receives no call for its idle timeout.

use std::collections::HashMap;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use freehold::{Device, Stream};
use freehold_broker::{Broker, Lease, LeaseError, Policy};
use tokio::sync::Semaphore;
use tonic::Code;

use super::block::{SessionBlock, no_such_block};
use super::idempotency::CallLog;
use super::launches::Launches;
use super::pinned_pool::PinnedPool;
use super::upload::Upload;
use crate::error::RemoteError;
use crate::sync::lock;

/// The idle timeout of a session: by default, and its limits.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
const IDLE_TIMEOUT_MAX: Duration = Duration::from_secs(600);
const IDLE_TIMEOUT_MIN: Duration = Duration::from_secs(1);

const SESSIONS_MAX: usize = 256;

/// Running calls, active transfers and waits of one session: only a part of the server's, so that other sessions
/// continue.
const SESSION_CALLS_MAX: usize = 16;
const SESSION_TRANSFERS_MAX: usize = 8;
const SESSION_WAITS_MAX: usize = 16;

/// Chosen by the client. A client that knows it has the session.
pub(super) type SessionKey = [u8; 16];

pub(super) struct Sessions {
    device: Device,
    socket: PathBuf,
    pub(super) pinned: Arc<PinnedPool>,
    sessions: Mutex<HashMap<SessionKey, Arc<Session>>>,
    /// Held while a session is opened, so that none is opened twice.
    opening: Mutex<()>,
}

pub(super) struct Session {
    pub(super) broker: Broker,
    pub(super) call_log: CallLog<Arc<Upload>>,
    pub(super) launches: Launches,
    /// The stream of uploads.
    upload_stream: Stream,
    download_stream: Stream,
    pub(super) idle_timeout: Duration,
    blocks: Mutex<HashMap<u64, Arc<SessionBlock>>>,
    last_block: AtomicU64,
    /// When the last call ended.
    last_call: Mutex<Instant>,
    /// Calls in progress.
    active_calls: AtomicU32,
    /// Its calls that have a thread.
    pub(super) call_permits: Arc<Semaphore>,
    /// Its active transfers.
    pub(super) transfer_permits: Arc<Semaphore>,
    /// Its calls that wait for launches.
    pub(super) wait_permits: Arc<Semaphore>,
}

/// A call in a session, which does not expire during the call.
pub(super) struct SessionGuard(Arc<Session>);

impl Sessions {
    pub(super) fn new(device: Device, socket: PathBuf) -> Self {
        let pinned = Arc::new(PinnedPool::new(device.clone()));
        Self { device, socket, pinned, sessions: Mutex::default(), opening: Mutex::default() }
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.sessions).len()
    }

    /// Begins a call in an open session.
    pub(super) fn enter(&self, key: &[u8]) -> Result<SessionGuard, RemoteError> {
        let key = parse_key(key)?;
        let known = lock(&self.sessions);
        let session = known.get(&key).ok_or_else(RemoteError::session_expired)?;
        session.active_calls.fetch_add(1, Ordering::Relaxed);
        Ok(SessionGuard(session.clone()))
    }

    /// Opens the session of a key, or returns the open one.
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
            upload_stream: self.device.new_stream()?,
            download_stream: self.device.new_stream()?,
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

    /// Closes a session. Calls in progress finish.
    pub(super) fn close(&self, key: &[u8]) -> Result<(), RemoteError> {
        let key = parse_key(key)?;
        let session = lock(&self.sessions).remove(&key);
        if let Some(session) = session {
            session.free_blocks();
        }
        Ok(())
    }

    /// Closes expired sessions.
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
    let wrong =
        |_| RemoteError::invalid_argument(format!("the session id has {} bytes: expected 16 random bytes", key.len()));
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
    /// Adds a lease as a block of the session.
    pub(super) fn add_block(&self, lease: Lease<u8>) -> Arc<SessionBlock> {
        let number = self.last_block.fetch_add(1, Ordering::Relaxed) + 1;
        let block = Arc::new(SessionBlock::new(number, lease));
        lock(&self.blocks).insert(number, block.clone());
        block
    }

    pub(super) fn block(&self, number: u64) -> Result<Arc<SessionBlock>, RemoteError> {
        lock(&self.blocks).get(&number).cloned().ok_or_else(|| no_such_block(number))
    }

    pub(super) fn free(&self, number: u64) -> Result<(), RemoteError> {
        let block = self.block(number)?;
        let lease = block.take_lease()?;
        lease.close().map_err(|LeaseError { lease, error }| {
            block.restore_lease(lease);
            RemoteError::from(error)
        })?;
        lock(&self.blocks).remove(&number);
        Ok(())
    }

    pub(super) fn publish(&self, number: u64, name: &str, policy: Policy) -> Result<(), RemoteError> {
        let block = self.block(number)?;
        let lease = block.take_lease()?;
        self.broker.publish(name, lease, policy).map_err(|LeaseError { lease, error }| {
            block.restore_lease(lease);
            RemoteError::from(error)
        })?;
        lock(&self.blocks).remove(&number);
        Ok(())
    }

    /// The stream of uploads, after all launches so far.
    pub(super) fn upload_stream(&self) -> Result<&Stream, RemoteError> {
        self.launches.wait_for_launches(&self.broker, &self.upload_stream)?;
        Ok(&self.upload_stream)
    }

    /// The stream of downloads, after all launches so far.
    pub(super) fn download_stream(&self) -> Result<&Stream, RemoteError> {
        self.launches.wait_for_launches(&self.broker, &self.download_stream)?;
        Ok(&self.download_stream)
    }

    /// Frees all blocks. Calls that still use one find it gone.
    fn free_blocks(&self) {
        let blocks = std::mem::take(&mut *lock(&self.blocks));
        for block in blocks.into_values() {
            drop(block.take_lease());
        }
    }
}
