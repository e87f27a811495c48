//! Where an event is: at a point of a stream, at a point of a capture, or at a record that processes share.

use std::io;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustix::process::Pid;

use crate::base::sync::lock;
use crate::engine::queue::{Fence, VectorClock};
use crate::engine::work::Timestamp;
use crate::memory::arena::HostPages;
use crate::memory::backing::{Backing, ShareHeader, ShareKind};
use crate::memory::ipc_token::{Token, is_process_alive};

/// The part of an event that graphs keep: they outlive its handle and its context.
#[derive(Debug, Default)]
pub(crate) struct EventSlot {
    /// How far it is, where other processes can ask; it has no record then.
    pub(crate) shared: Option<Arc<IpcEventState>>,
    state: Mutex<EventState>,
}

/// Where an event is.
#[derive(Debug, Clone, Default)]
pub(crate) enum EventState {
    /// It was never recorded.
    #[default]
    Unrecorded,
    Recorded(EventRecord),
    /// It was recorded in a stream that was captured.
    Captured(CapturePoint),
}

/// Where an event was last recorded.
#[derive(Debug, Clone)]
pub(crate) struct EventRecord {
    pub(crate) fence: Fence,
    pub(crate) timestamp: Arc<Timestamp>,
    /// What the stream came after, there.
    pub(crate) clock: Arc<VectorClock>,
}

/// A point in a capture. The capture may be over.
#[derive(Debug, Clone)]
pub(crate) struct CapturePoint {
    pub(crate) capture_id: u64,
    /// The indices in its graph of what lies before the point.
    pub(crate) dependencies: Vec<usize>,
}

impl EventSlot {
    pub(crate) fn with_shared(shared: IpcEventState) -> Self {
        Self { shared: Some(Arc::new(shared)), state: Mutex::default() }
    }

    pub(crate) fn record(&self, record: EventRecord) {
        *lock(&self.state) = EventState::Recorded(record);
    }

    pub(crate) fn set_captured(&self, captured: CapturePoint) {
        *lock(&self.state) = EventState::Captured(captured);
    }

    pub(crate) fn state(&self) -> EventState {
        lock(&self.state).clone()
    }

    /// The last record; nothing if there was none, or if it was in a capture.
    pub(crate) fn recorded(&self) -> Option<EventRecord> {
        match self.state() {
            EventState::Recorded(record) => Some(record),
            EventState::Unrecorded | EventState::Captured(_) => None,
        }
    }
}

/// The state of an event that processes share: a page with two counters.
#[derive(Debug)]
pub(crate) struct IpcEventState {
    memory: Backing,
    page: HostPages,
    /// Whether this process made it.
    is_own: bool,
}

const STATE_BYTES: u64 = 4096;

/// Which word of the page is what.
#[derive(Clone, Copy)]
enum StateWord {
    /// How often the event was recorded.
    Recorded = 0,
    /// The last record that a stream has come by.
    Completed = 1,
    /// The process that recorded last.
    Recorder = 2,
}

impl IpcEventState {
    pub(crate) fn create() -> io::Result<Self> {
        let memory = Backing::create_uncharged(None, STATE_BYTES)?;
        memory.share(ShareHeader::new(ShareKind::Event, 0, STATE_BYTES))?;
        Ok(Self { is_own: true, ..Self::map(memory)? })
    }

    pub(crate) fn is_own(&self) -> bool {
        self.is_own
    }

    /// The state in a page of another process.
    pub(crate) fn map(memory: Backing) -> io::Result<Self> {
        let page = HostPages::map_file(&memory, STATE_BYTES)?;
        Ok(Self { memory, page, is_own: false })
    }

    pub(crate) fn token(&self) -> Token {
        Token::new(ShareKind::Event, &self.memory, 0, 0, STATE_BYTES, 0)
    }

    fn word(&self, word: StateWord) -> &AtomicU64 {
        let at = self.page.start().cast::<u64>().wrapping_add(word as usize);
        // SAFETY: the word lies in the page that this value keeps mapped, and is aligned as the page is; all processes
        // reach it by atomic operations alone.
        unsafe { AtomicU64::from_ptr(at) }
    }

    /// Notes one more record and says which.
    pub(crate) fn record(&self) -> u64 {
        self.word(StateWord::Recorder).store(process::id().into(), Ordering::Release);
        self.word(StateWord::Recorded).fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The last record so far.
    pub(crate) fn recorded(&self) -> u64 {
        self.word(StateWord::Recorded).load(Ordering::Acquire)
    }

    /// Notes that a stream has come by a record.
    pub(crate) fn complete(&self, record: u64) {
        self.word(StateWord::Completed).fetch_max(record, Ordering::AcqRel);
    }

    /// Whether a stream has come by a record. A process that has died will not, and counts as having done so.
    pub(crate) fn is_complete(&self, record: u64) -> bool {
        self.word(StateWord::Completed).load(Ordering::Acquire) >= record || !self.is_recorder_alive()
    }

    fn is_recorder_alive(&self) -> bool {
        let recorder = self.word(StateWord::Recorder).load(Ordering::Acquire);
        i32::try_from(recorder).ok().and_then(Pid::from_raw).is_none_or(is_process_alive)
    }
}
