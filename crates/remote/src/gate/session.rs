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

use super::launches::Launches;
use super::lock;
use super::once::Numbers;
use super::pinned::Pinned;
use crate::failure::Failure;

/// How long a session lives behind its last call, where the client says nothing, and at most.
const LIFE: Duration = Duration::from_secs(60);
const LIFE_MAX: Duration = Duration::from_secs(600);
const LIFE_MIN: Duration = Duration::from_secs(1);

const SESSIONS_MAX: usize = 256;

/// How many calls of a session are carried out side by side, how many of its transfers move, and how many of its waits wait: a part
/// of what the gate has, so that others go on.
const TURNS_MAX: usize = 16;
const SESSION_LANES_MAX: usize = 8;
const SESSION_WAITS_MAX: usize = 16;

/// The client's choice. Who knows it has the session.
pub(super) type Key = [u8; 16];

pub(super) struct Sessions {
    device: Device,
    socket: PathBuf,
    pub(super) pinned: Arc<Pinned>,
    known: Mutex<HashMap<Key, Arc<Session>>>,
    /// Sessions are opened one after the other, so that none is opened twice.
    opening: Mutex<()>,
}

pub(super) struct Session {
    pub(super) broker: Broker,
    pub(super) numbers: Numbers,
    pub(super) launches: Launches,
    /// What uploads and downloads are put into.
    up: Stream,
    down: Stream,
    pub(super) life: Duration,
    blocks: Mutex<HashMap<u64, Arc<Held>>>,
    blocks_ever: AtomicU64,
    /// When the last call ended.
    last: Mutex<Instant>,
    /// Calls under way.
    busy: AtomicU32,
    /// Its calls that have a thread.
    pub(super) turns: Arc<Semaphore>,
    /// Its transfers that move.
    pub(super) lanes: Arc<Semaphore>,
    /// Its calls that wait for launches.
    pub(super) waits: Arc<Semaphore>,
}

/// A call in a session, which lives meanwhile.
pub(super) struct Visit(Arc<Session>);

/// Memory that a session has.
pub(super) struct Held {
    pub(super) number: u64,
    pub(super) bytes: u64,
    pub(super) access: Access,
    /// Nothing where it was freed or published while somebody used it.
    lease: Mutex<Option<Lease<u8>>>,
}

impl Sessions {
    pub(super) fn new(device: Device, socket: PathBuf) -> Self {
        let pinned = Arc::new(Pinned::new(device.clone()));
        Self { device, socket, pinned, known: Mutex::default(), opening: Mutex::default() }
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.known).len()
    }

    /// A call in a session that was opened.
    pub(super) fn visit(&self, key: &[u8]) -> Result<Visit, Failure> {
        let key = parse(key)?;
        let known = lock(&self.known);
        let session = known.get(&key).ok_or_else(Failure::session_over)?;
        session.busy.fetch_add(1, Ordering::Relaxed);
        Ok(Visit(session.clone()))
    }

    /// A session of that key: the one that is there, or a new one.
    pub(super) fn open(&self, key: &[u8], life: Duration) -> Result<Visit, Failure> {
        let _turn = lock(&self.opening);
        match self.visit(key) {
            Err(failure) if failure.is_session_over => {}
            found => return found,
        }
        if self.len() >= SESSIONS_MAX {
            let sentence = format!("there are {SESSIONS_MAX} sessions: close one first");
            return Err(Failure::caller(Code::ResourceExhausted, sentence));
        }
        let [turns, lanes, waits] =
            [TURNS_MAX, SESSION_LANES_MAX, SESSION_WAITS_MAX].map(|most| Arc::new(Semaphore::new(most)));
        let life = if life.is_zero() { LIFE } else { life.clamp(LIFE_MIN, LIFE_MAX) };
        let broker = Broker::connect_at(&self.device, &self.socket)?;
        let session = Session {
            launches: Launches::new(&broker)?,
            broker,
            numbers: Numbers::default(),
            up: self.device.stream()?,
            down: self.device.stream()?,
            life,
            blocks: Mutex::default(),
            blocks_ever: AtomicU64::new(0),
            last: Mutex::new(Instant::now()),
            busy: AtomicU32::new(1),
            turns,
            lanes,
            waits,
        };
        let session = Arc::new(session);
        lock(&self.known).insert(parse(key)?, session.clone());
        Ok(Visit(session))
    }

    /// Ends a session. What is under way in it goes on to its end.
    pub(super) fn close(&self, key: &[u8]) -> Result<(), Failure> {
        let key = parse(key)?;
        let session = lock(&self.known).remove(&key);
        if let Some(session) = session {
            session.clear();
        }
        Ok(())
    }

    /// Ends the sessions whose time is over.
    pub(super) fn end_idle(&self) {
        let is_over = |session: &Session| {
            session.busy.load(Ordering::Acquire) == 0 && lock(&session.last).elapsed() > session.life
        };
        let over: Vec<_> = lock(&self.known).extract_if(|_, session| is_over(session)).collect();
        over.iter().for_each(|(_, session)| session.clear());
    }
}

fn parse(key: &[u8]) -> Result<Key, Failure> {
    let wrong =
        |_| Failure::wrong(format!("a session's id is of 16 bytes, and this of {}: choose 16 random ones", key.len()));
    key.try_into().map_err(wrong)
}

impl Deref for Visit {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.0
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        *lock(&self.0.last) = Instant::now();
        self.0.busy.fetch_sub(1, Ordering::Release);
    }
}

impl Session {
    /// Makes a lease a block of the session.
    pub(super) fn hold(&self, lease: Lease<u8>) -> Arc<Held> {
        let number = self.blocks_ever.fetch_add(1, Ordering::Relaxed) + 1;
        let (bytes, access) = (lease.len() as u64, lease.access());
        let held = Arc::new(Held { number, bytes, access, lease: Mutex::new(Some(lease)) });
        lock(&self.blocks).insert(number, held.clone());
        held
    }

    pub(super) fn block(&self, number: u64) -> Result<Arc<Held>, Failure> {
        lock(&self.blocks).get(&number).cloned().ok_or_else(|| gone(number))
    }

    pub(super) fn free(&self, number: u64) -> Result<(), Failure> {
        let held = self.block(number)?;
        let lease = held.take()?;
        lease.close().map_err(|(lease, error)| {
            *lock(&held.lease) = Some(lease);
            Failure::from(error)
        })?;
        lock(&self.blocks).remove(&number);
        Ok(())
    }

    pub(super) fn publish(&self, number: u64, name: &str, policy: Policy) -> Result<(), Failure> {
        let held = self.block(number)?;
        let lease = held.take()?;
        self.broker.publish(name, lease, policy).map_err(|(lease, error)| {
            *lock(&held.lease) = Some(lease);
            Failure::from(error)
        })?;
        lock(&self.blocks).remove(&number);
        Ok(())
    }

    /// The stream of uploads, whose next work waits for the launches so far.
    pub(super) fn up(&self) -> Result<&Stream, Failure> {
        self.launches.precede(&self.broker, &self.up)?;
        Ok(&self.up)
    }

    /// The stream of downloads, likewise.
    pub(super) fn down(&self) -> Result<&Stream, Failure> {
        self.launches.precede(&self.broker, &self.down)?;
        Ok(&self.down)
    }

    /// Gives all blocks back. Who still uses one finds it gone.
    fn clear(&self) {
        let blocks = std::mem::take(&mut *lock(&self.blocks));
        for held in blocks.into_values() {
            drop(lock(&held.lease).take());
        }
    }
}

fn gone(number: u64) -> Failure {
    let sentence = format!("there is no block {number} in the session: it was freed, published, or never there");
    Failure::caller(Code::NotFound, sentence)
}

impl Held {
    /// The bytes of a transfer within the block.
    pub(super) fn range(&self, offset: u64, bytes: u64) -> Result<Range<u64>, Failure> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(offset..end),
            _ => {
                let (number, has) = (self.number, self.bytes);
                let sentence = format!("block {number} has {has} bytes: {bytes} from byte {offset} on are not in it");
                Err(Failure::caller(Code::OutOfRange, sentence))
            }
        }
    }

    pub(super) fn expect_writable(&self) -> Result<(), Failure> {
        if self.access == Access::Write {
            return Ok(());
        }
        let sentence = format!("block {} is leased for reading: lease it for writing", self.number);
        Err(Failure::caller(Code::PermissionDenied, sentence))
    }

    /// Copies pinned bytes into the block, in the order of a stream.
    pub(super) fn write(&self, stream: &Stream, at: u64, from: &ImportedSlice<u8>) -> Result<(), Failure> {
        let mut lease = lock(&self.lease);
        let lease = lease.as_mut().ok_or_else(|| gone(self.number))?;
        let at = at as usize;
        Ok(stream.copy(from, &mut lease.view_mut(at..at + from.len())?)?)
    }

    /// Copies bytes of the block to pinned ones, in the order of a stream.
    pub(super) fn read(&self, stream: &Stream, at: u64, to: &mut ImportedSlice<u8>) -> Result<(), Failure> {
        let lease = lock(&self.lease);
        let lease = lease.as_ref().ok_or_else(|| gone(self.number))?;
        let at = at as usize;
        Ok(stream.copy(&lease.view(at..at + to.len())?, to)?)
    }

    /// The block as an argument of a launch, from a byte on.
    pub(super) fn argument(&self, caller: &Caller, offset: u64) -> Result<Argument<'static>, Failure> {
        let lease = lock(&self.lease);
        let lease = lease.as_ref().ok_or_else(|| gone(self.number))?;
        // SAFETY: the block is the client's, whose copies and launches use it as the client orders them: it may change under each of them.
        Ok(unsafe { caller.argument(lease.id(), offset) })
    }

    fn take(&self) -> Result<Lease<u8>, Failure> {
        lock(&self.lease).take().ok_or_else(|| gone(self.number))
    }
}
