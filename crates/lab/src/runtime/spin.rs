//! A kernel that runs until the host sets a word, and the calls that are made meanwhile.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use super::fixture::{BYTES, Fixture, MAPPED, MIB, ON_DEVICE, TO_DEVICE, TO_HOST};
use super::functions::RuntimeError;
use crate::cpu_time::CpuTime;
use crate::host_buffer::HostBuffer;
use crate::kernels::KERNELS;
use crate::latch::{Pace, open_after_deadline, unless_opened};

/// How much of the threads' own time work that does not wait may take.
const PROMPT: Duration = Duration::from_millis(250);

/// The interval between checks.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The offsets of words in the host memory: the kernel reports its start, and another one its end.
const STARTED_OFFSET: usize = 64;
const ENDED_OFFSET: usize = 128;

/// Host memory that is registered for every context.
const PORTABLE: u32 = 1;

/// A kernel that is loaded, and runs until its word is set, at the latest when this is dropped.
pub(super) struct Spin {
    host: HostBuffer,
    address: u64,
    spin: u64,
    store: u64,
}

impl Spin {
    /// Loads the kernels and runs some work of each kind, because the first of a kind may wait for the device.
    pub(super) fn new(r: &Fixture) -> Result<Self, RuntimeError> {
        let host = HostBuffer::pageable(BYTES);
        r.cudaHostRegister(host.address().0, BYTES, PORTABLE | MAPPED)?;
        let mut address = 0;
        r.cudaHostGetDevicePointer(Some(&mut address), host.address().0, 0)?;
        let library = r.library(KERNELS)?;
        let made = Self { host, address, spin: r.kernel_of(library, c"spin")?, store: r.kernel_of(library, c"store")? };
        made.warm(r)?;
        open_after_deadline(move || host.word().store(1, Ordering::SeqCst));
        Ok(made)
    }

    fn warm(&self, r: &Fixture) -> Result<(), RuntimeError> {
        let block = r.malloc(2 * MIB)?;
        r.cudaMemset(block, 1, 4)?;
        r.launch(self.spin, 0, &[block, block + 8, 0, 0])?;
        r.launch(self.store, 0, &[block, 1])?;
        let host = r.pageable(MIB);
        r.cudaMemcpy(block, host, MIB, TO_DEVICE)?;
        r.cudaMemcpy(host, block, MIB, TO_HOST)?;
        r.cudaMemcpy(block, block + MIB as u64, MIB, ON_DEVICE)?;
        let pooled = r.malloc_async(MIB, 0)?;
        r.cudaFreeAsync(pooled, 0)?;
        r.cudaDeviceSynchronize()?;
        r.cudaFree(block)
    }

    /// Launches the kernel in a stream, and waits until it runs.
    pub(super) fn run(&self, r: &Fixture, stream: u64) -> Result<(), RuntimeError> {
        r.launch(self.spin, stream, &[self.address, self.address + STARTED_OFFSET as u64, 0, 0])?;
        while self.byte(STARTED_OFFSET) == 0 && self.byte(0) == 0 {
            query(r, stream)?;
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Creates a kernel that runs in a stream.
    pub(super) fn running(r: &Fixture, stream: u64) -> Result<Self, RuntimeError> {
        let made = Self::new(r)?;
        made.run(r, stream)?;
        Ok(made)
    }

    /// Lets the kernel end.
    pub(super) fn open(&self) {
        self.host.word().store(1, Ordering::SeqCst);
    }

    /// Returns whether `call` waits for the kernel, which ends afterwards.
    pub(super) fn during<T>(&self, call: impl FnOnce() -> T) -> (Pace, T) {
        let outcome = unless_opened(|| self.open(), call);
        self.open();
        outcome
    }

    /// Says whether `call` waits for the kernel, and its code if it failed.
    pub(super) fn pace<T>(&self, call: impl FnOnce() -> Result<T, RuntimeError>) -> String {
        match self.during(call) {
            (pace, Ok(_)) => pace.text().to_owned(),
            (pace, Err(error)) => format!("{}: {}", pace.text(), error.name),
        }
    }

    /// Stores a word in another stream, and says whether that happens while the kernel runs. It ends afterwards.
    pub(super) fn overtaken_by(&self, r: &Fixture, stream: u64) -> Result<String, RuntimeError> {
        r.launch(self.store, stream, &[self.address + ENDED_OFFSET as u64, 1])?;
        let mut clock = CpuTime::new();
        while self.byte(ENDED_OFFSET) == 0 && !clock.has_reached(PROMPT, POLL_INTERVAL) {
            query(r, stream)?;
            thread::sleep(POLL_INTERVAL);
        }
        let overtaken = self.byte(ENDED_OFFSET) != 0;
        self.open();
        Ok(if overtaken { "ran meanwhile" } else { "waited for the kernel" }.to_owned())
    }

    fn byte(&self, at: usize) -> u8 {
        self.host.byte(at).load(Ordering::SeqCst)
    }
}

impl Drop for Spin {
    fn drop(&mut self) {
        self.open();
    }
}

/// Asks about a stream, because a driver that schedules during its calls makes no progress otherwise.
fn query(r: &Fixture, stream: u64) -> Result<(), RuntimeError> {
    match r.cudaStreamQuery(stream) {
        Err(error) if error.name != "cudaErrorNotReady" => Err(error),
        _ => Ok(()),
    }
}
