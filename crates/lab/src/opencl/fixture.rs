//! The fixture of OpenCL experiments: a device, a context and a queue, and work that stays pending as long as an
//! experiment wants.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use freehold_driver::CallError;
use freehold_driver::opencl::device::Svm;
use freehold_driver::opencl::discovery::InstalledDevice;
use freehold_driver::opencl::event::Status;
use freehold_driver::opencl::{
    ContextId, DeviceId, Event, Kernel, Memory, Program, Queue, context, event, kernel, memory, program, queue, svm,
};

use crate::latch::{self, Pace};

/// The kernels of the experiments.
pub(super) const KERNELS: &str = include_str!("kernels.cl");

/// The size of most blocks.
pub(super) const BYTES: usize = 4096;

/// The interval between polls of a kernel.
const POLL_INTERVAL: Duration = Duration::from_micros(500);

/// After this many polls of its word, a kernel ends by itself: about 10 seconds.
const GPU_SPINS_MAX: u64 = 20_000_000;
const CPU_SPINS_MAX: u64 = 20_000_000_000;

/// A device that was only queried for its properties so far.
#[derive(Debug)]
pub(crate) struct Fixture {
    pub(crate) device: InstalledDevice,
}

/// The start of most experiments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Session {
    pub(super) device: DeviceId,
    pub(super) context: ContextId,
    pub(super) queue: Queue,
}

impl Fixture {
    pub(super) fn open_session(&self) -> Result<Session, CallError> {
        // SAFETY: an experiment has its own process, and uses only objects that it created.
        let device = unsafe { self.device.device() };
        let context = context::create(device)?;
        Ok(Session { device, context, queue: queue::create(context, device)? })
    }

    /// Returns the alignment of sub-buffers.
    pub(super) fn align(&self) -> usize {
        self.device.info.align_bytes as usize
    }
}

impl Session {
    /// Creates another queue of the context.
    pub(super) fn queue(&self) -> Result<Queue, CallError> {
        queue::create(self.context, self.device)
    }

    /// Creates a buffer filled with a byte.
    pub(super) fn buffer(&self, byte: u8) -> Result<Memory, CallError> {
        let made = memory::create(self.context, BYTES)?;
        memory::fill(self.queue, made, 0, BYTES, &[byte], &[])?;
        queue::finish(self.queue)?;
        Ok(made)
    }

    /// Creates a block of shared virtual memory filled with a byte.
    pub(super) fn block(&self, byte: u8) -> Result<u64, CallError> {
        let made = svm::alloc(self.context, BYTES, 0)?;
        self.fill_block(made, BYTES, byte)?;
        Ok(made)
    }

    /// Fills a block and waits.
    pub(super) fn fill_block(&self, start: u64, bytes: usize, byte: u8) -> Result<(), CallError> {
        // SAFETY: experiments fill their own blocks; where one does not, a crash of this process is the answer.
        unsafe { svm::fill(self.queue, start, bytes, &[byte], &[]) }?;
        queue::finish(self.queue)
    }

    /// Returns the content of a buffer, read in this queue's order.
    pub(super) fn bytes(&self, from: Memory) -> Result<Vec<u8>, CallError> {
        let mut to = vec![0; memory::bytes(from)? as usize];
        // SAFETY: `to` has as many bytes as the buffer, and stays until the queue has finished.
        unsafe { memory::read(self.queue, from, 0, to.as_mut_ptr().cast(), to.len(), &[]) }?;
        queue::finish(self.queue)?;
        Ok(to)
    }

    /// Returns the first word of a buffer.
    pub(super) fn word(&self, from: Memory) -> Result<u32, CallError> {
        let bytes = self.bytes(from)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// Returns the content of a block, read in this queue's order.
    pub(super) fn block_bytes(&self, from: u64, bytes: usize) -> Result<Vec<u8>, CallError> {
        let mut to = vec![0_u8; bytes];
        let start = to.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: `to` has these bytes, and stays until the queue has finished; for the block, as in `fill_block`.
        unsafe { svm::copy(self.queue, from, start, bytes, &[]) }?;
        queue::finish(self.queue)?;
        Ok(to)
    }

    /// Builds the experiments' kernels, with information about their parameters.
    pub(super) fn program(&self) -> Result<Program, CallError> {
        let made = program::from_source(self.context, KERNELS)?;
        program::build(made, self.device, c"-cl-kernel-arg-info")?;
        Ok(made)
    }

    pub(super) fn kernel(&self, name: &std::ffi::CStr) -> Result<Kernel, CallError> {
        kernel::create(self.program()?, name)
    }

    /// Enqueues the kernel `copy` from buffer to buffer.
    pub(super) fn copy(&self, copy: Kernel, from: Memory, to: Memory) -> Result<Event, CallError> {
        kernel::set_memory(copy, 0, from)?;
        kernel::set_memory(copy, 1, to)?;
        launch(self.queue, copy, BYTES / 4)
    }
}

/// Launches groups of one work-item.
pub(super) fn launch(queue: Queue, kernel: Kernel, items: usize) -> Result<Event, CallError> {
    // SAFETY: experiments set the arguments and keep the memory; where one does not, what happens is the answer.
    unsafe { kernel::launch(queue, kernel, [items, 1, 1], [1, 1, 1], &[]) }
}

/// Formats the status of an event.
pub(super) fn status_text(status: Status) -> String {
    match status {
        Status::Queued => "QUEUED".to_owned(),
        Status::Submitted => "SUBMITTED".to_owned(),
        Status::Running => "RUNNING".to_owned(),
        Status::Complete => "COMPLETE".to_owned(),
        Status::Failed(code) => format!("failed with {code}"),
    }
}

/// A user event that a queue waits for: commands enqueued after it stay pending until the latch opens, at the latest on
/// drop.
pub(super) struct Latch {
    event: Event,
    is_open: AtomicBool,
}

impl Latch {
    pub(super) fn new(session: &Session, held: Queue) -> Result<Self, CallError> {
        let hold = Self { event: event::create_user(session.context)?, is_open: AtomicBool::new(false) };
        queue::barrier(held, &[hold.event])?;
        queue::flush(held)?;
        Ok(hold)
    }

    pub(super) fn open(&self) {
        if !self.is_open.swap(true, Ordering::SeqCst) {
            event::set_status(self.event, 0).expect("a user event is set once");
        }
    }

    /// Returns whether `call` waits for the held work. The latch is open afterwards.
    pub(super) fn during<T>(&self, call: impl FnOnce() -> T) -> (Pace, T) {
        let outcome = latch::unless_opened(|| self.open(), call);
        self.open();
        outcome
    }
}

impl Drop for Latch {
    fn drop(&mut self) {
        self.open();
    }
}

/// A kernel that runs until the host lets it end, and then stores a value.
pub(super) struct Spin {
    word: SpinFlag,
    /// Where it stores the value.
    pub(super) to: Memory,
    pub(super) program: Program,
    pub(super) kernel: Kernel,
}

/// A word that a kernel polls while the host sets it.
enum SpinFlag {
    /// Memory that both access at the same time.
    Svm(u64),
    /// A buffer that another queue writes.
    Buffer { memory: Memory, queue: Queue },
}

/// The offset from the word at which the kernel reports that it has started.
const STARTED_OFFSET: usize = 64;

impl Spin {
    /// Runs the kernel in the session's queue. It has started when this returns.
    pub(super) fn run(bench: &Fixture, session: &Session) -> Result<Self, CallError> {
        let program = session.program()?;
        let kernel = kernel::create(program, c"spin")?;
        let spin = Self { word: SpinFlag::new(bench, session)?, to: session.buffer(0)?, program, kernel };
        match spin.word {
            SpinFlag::Svm(address) => kernel::set_address(kernel, 0, address)?,
            SpinFlag::Buffer { memory, .. } => kernel::set_memory(kernel, 0, memory)?,
        }
        let turns = if bench.device.info.is_gpu { GPU_SPINS_MAX } else { CPU_SPINS_MAX };
        kernel::set_memory(kernel, 1, spin.to)?;
        kernel::set_value(kernel, 2, &7_u32.to_le_bytes())?;
        kernel::set_value(kernel, 3, &turns.to_le_bytes())?;
        let running = launch(session.queue, kernel, 1)?;
        queue::flush(session.queue)?;
        while spin.word.at(STARTED_OFFSET)? == 0 && event::status(running)? != Status::Complete {
            thread::sleep(POLL_INTERVAL);
        }
        Ok(spin)
    }

    pub(super) fn end(&self) -> Result<(), CallError> {
        self.word.set()
    }

    /// Returns whether `call` waits for the kernel, which ends afterwards.
    pub(super) fn during<T>(&self, call: impl FnOnce() -> T) -> (Pace, T) {
        let end = || self.end().expect("the word of a kernel can be set");
        let outcome = latch::unless_opened(end, call);
        end();
        outcome
    }
}

impl SpinFlag {
    fn new(bench: &Fixture, session: &Session) -> Result<Self, CallError> {
        if bench.device.info.svm == Svm::Fine {
            let start = svm::alloc_fine(session.context, BYTES, 0)?;
            session.fill_block(start, BYTES, 0)?;
            return Ok(Self::Svm(start));
        }
        Ok(Self::Buffer { memory: session.buffer(0)?, queue: session.queue()? })
    }

    fn set(&self) -> Result<(), CallError> {
        match *self {
            Self::Svm(start) => {
                atomic(start).store(1, Ordering::SeqCst);
                Ok(())
            }
            Self::Buffer { memory, queue } => {
                memory::fill(queue, memory, 0, 4, &1_u32.to_le_bytes(), &[])?;
                queue::flush(queue)
            }
        }
    }

    fn at(&self, offset: usize) -> Result<u32, CallError> {
        match *self {
            Self::Svm(start) => Ok(atomic(start + offset as u64).load(Ordering::SeqCst)),
            Self::Buffer { memory, queue } => {
                let mut word = [0_u8; 4];
                // SAFETY: `word` has four bytes, and stays until the queue has finished.
                unsafe { memory::read(queue, memory, offset, word.as_mut_ptr().cast(), 4, &[]) }?;
                queue::finish(queue)?;
                Ok(u32::from_le_bytes(word))
            }
        }
    }
}

fn atomic(address: u64) -> &'static AtomicU32 {
    let start = ptr::with_exposed_provenance::<AtomicU32>(address as usize);
    // SAFETY: the address is that of a word's block, which is aligned and never freed, and which host and device may
    // access at the same time.
    unsafe { &*start }
}
