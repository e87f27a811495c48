//! The state of an event: recorded in a stream, recorded in a capture, or a record that processes share.

use std::io;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use freehold_driver::cuda::CUgraphNode;
use rustix::process::Pid;

use crate::base::sync::lock;
use crate::engine::queue::{Fence, VectorClock};
use crate::engine::work::Timestamp;
use crate::memory::backing::{Backing, ShareHeader, ShareKind};
use crate::memory::host_pages::HostPages;
use crate::memory::ipc_token::{Token, is_process_alive};

/// The part of an event that graphs hold. It outlives the event's handle and context.
#[derive(Debug, Default)]
pub(crate) struct EventSlot {
    /// The state that other processes can query. An event with it has no local record.
    pub(crate) shared: Option<Arc<IpcEventState>>,
    state: Mutex<EventState>,
}

/// The state of an event within this process.
#[derive(Debug, Clone, Default)]
pub(crate) enum EventState {
    /// Never recorded.
    #[default]
    Unrecorded,
    Recorded(EventRecord),
    /// Recorded in a stream that was being captured.
    Captured(CapturePoint),
}

/// The last record of an event.
#[derive(Debug, Clone)]
pub(crate) struct EventRecord {
    pub(crate) fence: Fence,
    pub(crate) timestamp: Arc<Timestamp>,
    /// The stream's clock at the record.
    pub(crate) clock: Arc<VectorClock>,
}

/// A position in a capture. The capture may have ended.
#[derive(Debug, Clone)]
pub(crate) struct CapturePoint {
    pub(crate) capture_id: u64,
    /// The nodes before the position.
    pub(crate) dependencies: Vec<CUgraphNode>,
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

    /// Returns the last record, or `None` if there was none or if it was in a capture.
    pub(crate) fn recorded(&self) -> Option<EventRecord> {
        match self.state() {
            EventState::Recorded(record) => Some(record),
            EventState::Unrecorded | EventState::Captured(_) => None,
        }
    }
}

/// The state of an event that processes share: counters in a shared page.
#[derive(Debug)]
pub(crate) struct IpcEventState {
    memory: Backing,
    page: HostPages,
    /// Whether this process created it.
    is_own: bool,
}

const STATE_BYTES: u64 = 4096;

/// The layout of the page, in words.
#[derive(Clone, Copy)]
enum StateWord {
    /// Number of times the event was recorded.
    Recorded = 0,
    /// The last record that a stream has completed.
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

    /// Maps the state in a page of another process.
    pub(crate) fn map(memory: Backing) -> io::Result<Self> {
        let page = HostPages::map_file(&memory, STATE_BYTES)?;
        Ok(Self { memory, page, is_own: false })
    }

    pub(crate) fn token(&self) -> Token {
        Token::new(ShareKind::Event, &self.memory, 0, 0, STATE_BYTES, 0)
    }

    fn word(&self, word: StateWord) -> &AtomicU64 {
        let at = self.page.pointer().cast::<u64>().wrapping_add(word as usize);
        // SAFETY: the word lies in the page that this value keeps mapped, and is aligned as the page is; all processes
        // access it by atomic operations only.
        unsafe { AtomicU64::from_ptr(at) }
    }

    /// Counts one more record and returns its number.
    pub(crate) fn record(&self) -> u64 {
        self.word(StateWord::Recorder).store(process::id().into(), Ordering::Release);
        self.word(StateWord::Recorded).fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Returns the number of the last record.
    pub(crate) fn recorded(&self) -> u64 {
        self.word(StateWord::Recorded).load(Ordering::Acquire)
    }

    /// Marks a record as completed.
    pub(crate) fn complete(&self, record: u64) {
        self.word(StateWord::Completed).fetch_max(record, Ordering::AcqRel);
    }

    /// Returns whether a record is complete. If the process that recorded it has died, it counts as complete.
    pub(crate) fn is_complete(&self, record: u64) -> bool {
        self.word(StateWord::Completed).load(Ordering::Acquire) >= record || !self.is_recorder_alive()
    }

    fn is_recorder_alive(&self) -> bool {
        let recorder = self.word(StateWord::Recorder).load(Ordering::Acquire);
        i32::try_from(recorder).ok().and_then(Pid::from_raw).is_none_or(is_process_alive)
    }
}
