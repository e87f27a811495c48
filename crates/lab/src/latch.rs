//! Work that stays pending as long as an experiment wants: a stream that waits for a word, or a kernel that spins on
//! it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use freehold_driver::cuda::{
    CUdeviceptr, CUstream, DriverError, context, copy, fill, memory, stream, wait_value_flags,
};

use super::cpu_time::CpuTime;
use super::fixture::Fixture;
use super::host_buffer::HostBuffer;

/// How much of the threads' own time a call that does not wait for work may take.
const PROMPT: Duration = Duration::from_millis(250);

/// The interval between checks whether a stream has finished.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The interval between checks of the threads' time during a call.
const SLICE: Duration = Duration::from_millis(5);

/// After this much of the threads' time, a latch opens by itself. No experiment needs longer, and a process killed
/// while its latch is closed leaves a device that cannot end the context.
const OPEN_DEADLINE: Duration = Duration::from_secs(10);

/// The interval between checks of that deadline.
const FINAL_WAIT: Duration = Duration::from_millis(100);

/// A word of host memory. A stream that reaches it waits until the latch opens, at the latest when it is dropped.
///
/// The word belongs to the process, not to a context, so it outlives every context.
pub(crate) struct Latch {
    host: HostBuffer,
    address: CUdeviceptr,
}

/// The offset from the word at which a spinning kernel reports that it has started.
const STARTED_OFFSET: usize = 64;

/// Whether a call waited for pending work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    Waited,
    AtOnce,
}

impl Pace {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Waited => "waited for the work",
            Self::AtOnce => "returned at once",
        }
    }
}

impl Latch {
    /// Creates a closed latch for the streams of every context. First runs some work of each kind in the current
    /// context, because the first of a kind may wait for the device.
    pub(crate) fn new(bench: &Fixture) -> Result<Self, DriverError> {
        warm(bench)?;
        let host = bench.registered_buffer(4096)?;
        open_after_deadline(move || host.word().store(1, Ordering::SeqCst));
        Ok(Self { host, address: bench.device_address(host.address(), 0)? })
    }

    /// Makes `stream` wait until the latch opens.
    pub(crate) fn block_stream(&self, bench: &Fixture, stream: CUstream) -> Result<(), DriverError> {
        stream::wait_value_32(bench, stream, self.address, 1, wait_value_flags::GEQ)
    }

    /// Returns the address that a kernel polls; the word is not zero when the latch is open.
    pub(crate) fn address(&self) -> CUdeviceptr {
        self.address
    }

    /// Returns the address to which a kernel writes a word other than zero when it has started.
    pub(crate) fn started_address(&self) -> CUdeviceptr {
        CUdeviceptr(self.address.0 + STARTED_OFFSET as u64)
    }

    /// Waits until a kernel of `stream` spins on the latch, or the latch has opened by itself.
    pub(crate) fn wait_for_kernel(&self, bench: &Fixture, stream: CUstream) -> Result<(), DriverError> {
        while self.host.byte(STARTED_OFFSET).load(Ordering::SeqCst) == 0 && self.host.word().load(Ordering::SeqCst) == 0
        {
            stream::query(bench, stream)?;
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    pub(crate) fn open(&self) {
        self.host.word().store(1, Ordering::SeqCst);
    }

    /// Returns whether `call` waits for the work that the latch holds. The latch is open afterwards.
    pub(crate) fn during<T>(&self, call: impl FnOnce() -> T) -> (Pace, T) {
        let outcome = self.unless_held(call);
        self.open();
        outcome
    }

    /// The same, but the latch is open afterwards only if the call has waited.
    pub(crate) fn unless_held<T>(&self, call: impl FnOnce() -> T) -> (Pace, T) {
        unless_opened(|| self.open(), call)
    }

    /// Returns whether `stream` finishes its work while the latch is closed. The latch is open afterwards.
    ///
    /// Polls the driver, because one that schedules during its calls makes no progress otherwise. The end shows in the
    /// word that the stream writes last: a query of a default stream may include other streams.
    pub(crate) fn overtaken_by(&self, bench: &Fixture, stream: CUstream, end: &AtomicU32) -> Result<bool, DriverError> {
        let mut clock = CpuTime::new();
        while end.load(Ordering::SeqCst) == 0 && !clock.has_reached(PROMPT, POLL_INTERVAL) {
            stream::query(bench, stream)?;
            thread::sleep(POLL_INTERVAL);
        }
        let overtaken = end.load(Ordering::SeqCst) != 0;
        self.open();
        Ok(overtaken)
    }
}

impl Drop for Latch {
    fn drop(&mut self) {
        self.open();
    }
}

/// Returns whether `call` waits until `open` lets it continue; `open` is called only then.
pub(crate) fn unless_opened<T>(open: impl Fn() + Sync, call: impl FnOnce() -> T) -> (Pace, T) {
    let (mut call, mut answer) = (Some(call), None);
    let pace = pace(&open, &mut || answer = call.take().map(|call| call()));
    (pace, answer.expect("the call was made"))
}

/// Makes the call, and returns its pace. Not generic: more than a hundred experiments share the code of the thread.
fn pace(open: &(dyn Fn() + Sync), call: &mut dyn FnMut()) -> Pace {
    let (returned, news) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let opener = scope.spawn(move || {
            let mut clock = CpuTime::new();
            while clock.advance(SLICE) < PROMPT {
                if news.recv_timeout(SLICE) != Err(RecvTimeoutError::Timeout) {
                    return Pace::AtOnce;
                }
            }
            open();
            Pace::Waited
        });
        call();
        drop(returned);
        opener.join().expect("the opener does not panic")
    })
}

/// Calls `open` when an experiment has clearly failed to do so.
pub(crate) fn open_after_deadline(open: impl FnOnce() + Send + 'static) {
    thread::spawn(move || {
        let mut clock = CpuTime::new();
        while clock.advance(FINAL_WAIT) < OPEN_DEADLINE {
            thread::sleep(FINAL_WAIT);
        }
        open();
    });
}

/// Runs some work of each kind in the current context.
pub(crate) fn warm(bench: &Fixture) -> Result<(), DriverError> {
    const BYTES: usize = 1 << 20;
    let block = memory::alloc(bench, 2 * BYTES)?;
    fill::d8(bench, block, 0, BYTES)?;
    fill::d16(bench, block, 0, BYTES / 2)?;
    fill::d32(bench, block, 0, BYTES / 4)?;
    copy::device_to_device(bench, CUdeviceptr(block.0 + BYTES as u64), block, BYTES)?;
    let pooled = memory::alloc_async(bench, BYTES, CUstream::NULL)?;
    memory::free_async(bench, pooled, CUstream::NULL)?;
    let host = HostBuffer::pageable(4096);
    bench.copy_in(block, host)?;
    bench.copy_out(host, block)?;
    context::synchronize(bench)?;
    memory::free(bench, block)
}
