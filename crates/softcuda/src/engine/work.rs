//! The kinds of work of a stream, and how each runs.

use std::cell::Cell;
use std::ffi::c_void;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use freehold_driver::cuda::{CUerror, CUresult, CUstream, CUstreamCallback, wait_value_flags};

use freehold_check::{Effect, Epoch, Launch, TaskView};

use super::kernel_run::KernelRun;
use super::progress::{Progress, Quantum};
use crate::base::host_watch;
use crate::base::sync::lock;
use crate::memory::mem_ref::{self, MemRef, WordWidth};

thread_local! {
    /// Set while this thread runs a host function for a stream.
    static WITHIN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the calling thread runs a host function for a stream. Driver calls are refused there.
pub(crate) fn is_within_host_function() -> bool {
    WITHIN_HOST_FUNCTION.get()
}

/// One piece of work of a stream.
#[derive(Debug)]
pub(crate) enum Work {
    /// Does nothing itself; its dependencies order the stream.
    Barrier,
    /// Records the time at which the stream reached it.
    Timestamp(Arc<Timestamp>),
    Copy(Box<MemCopy>),
    Fill(Box<MemFill>),
    HostCall(HostCall),
    /// Run by the engine, which owns the threads for it.
    Kernel(Arc<KernelRun>),
    WriteValue {
        at: MemRef,
        width: WordWidth,
        value: u64,
    },
    WaitValue(WaitValue),
    /// Blocks the stream until a condition outside this process holds.
    Poll(Condition),
    /// Does nothing itself: accesses of a call, for the checker.
    Note(Vec<Noted>),
    /// Work of the driver, such as returning a block that was freed in stream order.
    Internal(InternalWork),
}

/// An access of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Noted {
    pub(crate) kind: Effect,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
}

impl Noted {
    pub(crate) fn new(kind: Effect, address: u64, bytes: u64) -> Self {
        Self { kind, address, bytes }
    }
}

/// A condition that a stream polls.
pub(crate) struct Condition(Box<dyn Fn() -> bool + Send + Sync>);

impl Condition {
    pub(crate) fn new(holds: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Box::new(holds))
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condition").finish_non_exhaustive()
    }
}

/// Work of the driver: a function that is called once and does not block.
pub(crate) struct InternalWork(Option<Box<dyn FnOnce() + Send + Sync>>);

impl InternalWork {
    pub(crate) fn new(work: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(work)))
    }
}

impl fmt::Debug for InternalWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InternalWork").finish_non_exhaustive()
    }
}

/// The time at which a stream passed this work, in nanoseconds; zero until then.
#[derive(Debug, Default)]
pub(crate) struct Timestamp(AtomicU64);

impl Timestamp {
    pub(crate) fn set(&self, nanoseconds: u64) {
        self.0.store(nanoseconds.max(1), Ordering::Release);
    }

    pub(crate) fn nanoseconds(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Acquire)).filter(|&time| time != 0)
    }
}

/// A box of bytes: rows of `width` bytes, `height` rows per slice, `depth` slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) depth: u64,
}

impl Extent {
    pub(crate) fn linear(bytes: u64) -> Self {
        Self { width: bytes, height: 1, depth: 1 }
    }

    /// Returns the number of bytes, or `None` if it overflows.
    pub(crate) fn bytes(self) -> Option<u64> {
        self.width.checked_mul(self.height)?.checked_mul(self.depth)
    }
}

/// A box in memory, with the distances between its rows and slices in bytes.
#[derive(Debug, Clone)]
pub(crate) struct PitchedRef {
    pub(crate) mem: MemRef,
    pub(crate) pitch: u64,
    pub(crate) slice: u64,
}

impl PitchedRef {
    /// Returns the offset of a row from the first byte.
    pub(crate) fn row_offset(&self, row: u64, slice: u64) -> u64 {
        row * self.pitch + slice * self.slice
    }

    /// Calls `each` with the address and size of every row, unless the program does not know the memory.
    pub(crate) fn for_each_row(&self, extent: Extent, mut each: impl FnMut(u64, u64)) {
        let Some(address) = self.mem.address() else { return };
        for slice in 0..extent.depth {
            for row in 0..extent.height {
                each(address + self.row_offset(row, slice), extent.width);
            }
        }
    }
}

/// A copy from one box to another.
#[derive(Debug)]
pub(crate) struct MemCopy {
    pub(crate) from: PitchedRef,
    pub(crate) to: PitchedRef,
    pub(crate) extent: Extent,
    /// Bytes done, counted row by row.
    done: u64,
}

impl MemCopy {
    pub(crate) fn new(from: PitchedRef, to: PitchedRef, extent: Extent) -> Self {
        Self { from, to, extent, done: 0 }
    }

    /// Returns its accesses.
    pub(crate) fn notes(&self) -> Vec<Noted> {
        let mut notes = Vec::new();
        let Self { from, to, extent, .. } = self;
        from.for_each_row(*extent, |address, bytes| notes.push(Noted::new(Effect::Read, address, bytes)));
        to.for_each_row(*extent, |address, bytes| notes.push(Noted::new(Effect::Write, address, bytes)));
        notes
    }

    /// Copies everything at once.
    pub(crate) fn run_to_end(mut self) -> Result<(), CUerror> {
        self.run(u64::MAX).map(|_| ())
    }

    /// Copies the next bytes, at most `limit`.
    fn run(&mut self, limit: u64) -> Result<Progress, CUerror> {
        let total = self.extent.bytes().expect("the size of a copy was checked when it was submitted");
        let end = total.min(self.done.saturating_add(limit));
        while self.done < end {
            let (line, column) = (self.done / self.extent.width, self.done % self.extent.width);
            let (row, slice) = (line % self.extent.height, line / self.extent.height);
            let bytes = (self.extent.width - column).min(end - self.done);
            let from = self.from.row_offset(row, slice) + column;
            let to = self.to.row_offset(row, slice) + column;
            mem_ref::copy(&self.from.mem, from, &self.to.mem, to, bytes)?;
            self.done += bytes;
        }
        Ok(if end == total { Progress::Done } else { Progress::Partial })
    }
}

/// A fill of a box with a repeated value.
#[derive(Debug)]
pub(crate) struct MemFill {
    pub(crate) to: PitchedRef,
    pub(crate) extent: Extent,
    /// One element of 1, 2 or 4 bytes. A row holds a whole number of elements.
    pub(crate) pattern: Vec<u8>,
    /// Bytes done, counted row by row.
    done: u64,
}

impl MemFill {
    pub(crate) fn new(to: PitchedRef, extent: Extent, pattern: Vec<u8>) -> Self {
        Self { to, extent, pattern, done: 0 }
    }

    /// Fills the next bytes, at most `limit`, in whole elements.
    fn run(&mut self, limit: u64) -> Result<Progress, CUerror> {
        let total = self.extent.bytes().expect("the size of a fill was checked when it was submitted");
        let limit = limit.checked_next_multiple_of(4).unwrap_or(u64::MAX);
        let end = total.min(self.done.saturating_add(limit));
        while self.done < end {
            let (row, column) = (self.done / self.extent.width, self.done % self.extent.width);
            let bytes = (self.extent.width - column).min(end - self.done);
            self.to.mem.fill(self.to.row_offset(row, 0) + column, &self.pattern, bytes)?;
            self.done += bytes;
        }
        Ok(if end == total { Progress::Done } else { Progress::Partial })
    }
}

/// Blocks a stream until a memory word satisfies a comparison.
#[derive(Debug, Clone)]
pub(crate) struct WaitValue {
    pub(crate) at: MemRef,
    pub(crate) width: WordWidth,
    pub(crate) value: u64,
    /// One of `wait_value_flags`, without the flush.
    pub(crate) comparison: u32,
}

impl WaitValue {
    fn is_satisfied(&self) -> Result<bool, CUerror> {
        let word = self.at.load(self.width)?;
        Ok(compare(word, self.value, self.width, self.comparison))
    }
}

/// Evaluates a comparison of `cuStreamWaitValue`. `GEQ` is cyclic: the sign of the difference decides.
pub(crate) fn compare(word: u64, value: u64, width: WordWidth, comparison: u32) -> bool {
    let mask = match width {
        WordWidth::Four => u64::from(u32::MAX),
        WordWidth::Eight => u64::MAX,
    };
    match comparison {
        wait_value_flags::EQ => word == value & mask,
        wait_value_flags::AND => word & value & mask != 0,
        wait_value_flags::NOR => !(word | value) & mask != 0,
        _ => match width {
            WordWidth::Four => (word as u32).wrapping_sub(value as u32).cast_signed() >= 0,
            WordWidth::Eight => word.wrapping_sub(value).cast_signed() >= 0,
        },
    }
}

/// A function of the program that a stream calls.
#[derive(Debug, Clone, Copy)]
pub(crate) enum HostFunction {
    Function(unsafe extern "C" fn(*mut c_void)),
    /// Gets the state of its stream, and is called after a fault too.
    Callback(unsafe extern "C" fn(CUstream, CUresult, *mut c_void), CUstream),
}

impl HostFunction {
    pub(crate) fn callback(function: CUstreamCallback, stream: CUstream) -> Option<Self> {
        function.map(|function| Self::Callback(function, stream))
    }
}

/// A range of device memory that a host task accesses.
#[derive(Debug)]
pub(crate) struct TaskAccess {
    pub(crate) mem: MemRef,
    pub(crate) bytes: u64,
    pub(crate) effect: Effect,
}

#[derive(Debug)]
pub(crate) struct HostCall {
    pub(crate) function: HostFunction,
    /// The program's pointer, which only its function dereferences.
    pub(crate) data: usize,
    /// The device memory that a host task accesses; other functions access none.
    accesses: Arc<[TaskAccess]>,
    /// Set while the function runs on its own thread.
    running: Option<Arc<HostCallState>>,
    /// The task as which the call is checked.
    checked: Option<TaskView>,
}

/// Whether a function that runs on its own thread has returned.
#[derive(Debug, Default)]
struct HostCallState {
    done: Mutex<bool>,
    ended: Condvar,
}

impl HostCallState {
    fn finish(&self) {
        *lock(&self.done) = true;
        self.ended.notify_all();
    }

    fn is_done(&self) -> bool {
        *lock(&self.done)
    }

    /// Waits up to `host_fn_timeout` for the function to return. Returns whether it did.
    fn wait(&self, host_fn_timeout: Duration) -> bool {
        let done = lock(&self.done);
        let waited = self.ended.wait_timeout_while(done, host_fn_timeout, |done| !*done);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Calls a function of the program that no stream waits for.
pub(crate) fn call_host_function(function: HostFunction, data: usize) {
    HostCall::call(function, data, Ok(()), None);
}

impl HostCall {
    pub(crate) fn new(function: HostFunction, data: usize) -> Self {
        Self::task(function, data, Arc::default())
    }

    /// A function that accesses device memory, as a kernel does.
    pub(crate) fn task(function: HostFunction, data: usize, accesses: Arc<[TaskAccess]>) -> Self {
        Self { function, data, accesses, running: None, checked: None }
    }

    /// Returns whether it accesses device memory, as a kernel does. All that it does is known: the program learns from
    /// it what it learns from a kernel.
    pub(crate) fn is_task(&self) -> bool {
        !self.accesses.is_empty()
    }

    /// Returns the same call, to run from its start.
    pub(crate) fn again(&self) -> Self {
        Self::task(self.function, self.data, Arc::clone(&self.accesses))
    }

    /// Returns an error if memory that a host task accesses was unmapped.
    fn check_mapped(&self) -> CUresult {
        self.accesses.iter().try_for_each(|access| access.mem.check_mapped())
    }

    /// Notes the task as which the call is checked.
    pub(super) fn begin_checked(&mut self, view: TaskView) {
        self.checked = Some(view);
    }

    fn call(function: HostFunction, data: usize, status: CUresult, checked: Option<TaskView>) {
        WITHIN_HOST_FUNCTION.set(true);
        host_watch::within(checked, || match function {
            HostFunction::Function(function) if status.is_ok() => {
                // SAFETY: the program guaranteed that the function and its data are valid when it submitted the call.
                unsafe { function(data as *mut c_void) }
            }
            HostFunction::Function(_) => {}
            HostFunction::Callback(function, stream) => {
                // SAFETY: the program guaranteed that the function and its data are valid when it submitted the call.
                unsafe { function(stream, status, data as *mut c_void) }
            }
        });
        WITHIN_HOST_FUNCTION.set(false);
    }

    /// Starts the function on its own thread and waits until it has returned or `host_fn_timeout` is over. In the
    /// second case the stream stays blocked and others run.
    fn advance(&mut self, status: CUresult, host_fn_timeout: Duration) -> Progress {
        if let Some(running) = &self.running {
            return if running.is_done() { Progress::Done } else { Progress::Blocked };
        }
        let running = Arc::new(HostCallState::default());
        let (function, data, inside) = (self.function, self.data, Arc::clone(&running));
        let checked = self.checked.clone();
        let run = move || {
            Self::call(function, data, status, checked);
            inside.finish();
        };
        if std::thread::Builder::new().name("freehold-host-function".to_owned()).spawn(run).is_err() {
            // If no thread can be started, the function runs here, and other streams wait for it.
            Self::call(function, data, status, self.checked.clone());
            return Progress::Done;
        }
        let done = running.wait(host_fn_timeout);
        self.running = Some(running);
        if done { Progress::Done } else { Progress::Blocked }
    }
}

impl Work {
    /// Returns whether it accesses memory for the program.
    pub(super) fn is_of_program(&self) -> bool {
        !matches!(self, Self::Barrier | Self::Timestamp(_) | Self::Poll(_) | Self::Internal(_))
    }

    /// Describes the launch of a kernel to the checker.
    pub(super) fn checked_launch(&self) -> Option<Launch> {
        match self {
            Self::Kernel(run) => run.checked_launch(),
            _ => None,
        }
    }

    /// Calls `access` for each row that the work reads or writes, unless it is a kernel.
    pub(super) fn for_each_access(&self, mut access: impl FnMut(Effect, u64, u64)) {
        match self {
            Self::Copy(copy) => {
                copy.from.for_each_row(copy.extent, |address, bytes| access(Effect::Read, address, bytes));
                copy.to.for_each_row(copy.extent, |address, bytes| access(Effect::Write, address, bytes));
            }
            Self::Fill(fill) => {
                fill.to.for_each_row(fill.extent, |address, bytes| access(Effect::Write, address, bytes));
            }
            Self::WriteValue { at, width, .. } => {
                if let Some(address) = at.address() {
                    access(Effect::Atomic, address, width.bytes() as u64);
                }
            }
            Self::HostCall(call) => {
                for TaskAccess { mem, bytes, effect } in call.accesses.iter() {
                    if let Some(address) = mem.address() {
                        access(*effect, address, *bytes);
                    }
                }
            }
            _ => {}
        }
    }

    /// Notes which memory of the host the work may use.
    pub(super) fn expect_uses(&self, epoch: Epoch) {
        if !host_watch::has_blocks() {
            return;
        }
        match self {
            Self::Kernel(run) => run.for_each_pointer(|address| host_watch::expect_any(epoch, address)),
            Self::HostCall(call) if !call.is_task() => host_watch::expect_any(epoch, call.data as u64),
            Self::Note(notes) => {
                for &Noted { kind, address, bytes } in notes {
                    host_watch::expect(epoch, address, bytes, kind != Effect::Read);
                }
            }
            _ => self.for_each_access(|effect, address, bytes| {
                host_watch::expect(epoch, address, bytes, effect != Effect::Read);
            }),
        }
    }

    /// Returns a copy of the work, to run from its start. Only for work that the program submitted.
    ///
    /// # Errors
    /// There is no memory for what a kernel needs beside its own.
    pub(crate) fn try_clone(&self) -> Result<Self, CUerror> {
        Ok(match self {
            Self::Barrier => Self::Barrier,
            Self::Copy(copy) => Self::Copy(Box::new(MemCopy::new(copy.from.clone(), copy.to.clone(), copy.extent))),
            Self::Fill(fill) => Self::Fill(Box::new(MemFill::new(fill.to.clone(), fill.extent, fill.pattern.clone()))),
            Self::HostCall(call) => Self::HostCall(call.again()),
            Self::Kernel(run) => Self::Kernel(Arc::new(run.try_clone()?)),
            Self::WriteValue { at, width, value } => Self::WriteValue { at: at.clone(), width: *width, value: *value },
            Self::WaitValue(wait) => Self::WaitValue(wait.clone()),
            Self::Timestamp(_) | Self::Poll(_) | Self::Note(_) | Self::Internal(_) => {
                unreachable!("internal work is never repeated")
            }
        })
    }

    /// Runs a part of the work.
    ///
    /// # Errors
    /// The work faults: memory that it needs is gone.
    pub(crate) fn run(
        &mut self,
        quantum: Quantum,
        now: impl Fn() -> u64,
        status: CUresult,
    ) -> Result<Progress, CUerror> {
        if status.is_err() && !matches!(self, Self::HostCall(_) | Self::Internal(_)) {
            return Ok(Progress::Done);
        }
        let limit = match quantum {
            Quantum::Unlimited => u64::MAX,
            Quantum::Limited { limit, .. } => limit,
        };
        match self {
            Self::Barrier | Self::Note(_) => {}
            Self::Kernel(_) => unreachable!("the engine runs kernels itself"),
            Self::Timestamp(timestamp) => timestamp.set(now()),
            Self::Copy(copy) => return copy.run(limit),
            Self::Fill(fill) => return fill.run(limit),
            Self::HostCall(call) => {
                if status.is_ok() {
                    call.check_mapped()?;
                }
                match quantum {
                    Quantum::Unlimited => HostCall::call(call.function, call.data, status, call.checked.clone()),
                    Quantum::Limited { host_fn_timeout, .. } => return Ok(call.advance(status, host_fn_timeout)),
                }
            }
            Self::WriteValue { at, width, value } => at.store(*width, *value)?,
            Self::WaitValue(wait) => return Ok(if wait.is_satisfied()? { Progress::Done } else { Progress::Blocked }),
            Self::Poll(Condition(holds)) => return Ok(if holds() { Progress::Done } else { Progress::Blocked }),
            Self::Internal(InternalWork(work)) => {
                if let Some(work) = work.take() {
                    work();
                }
            }
        }
        Ok(Progress::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn geq_is_cyclic() {
        let geq = wait_value_flags::GEQ;
        assert!(compare(5, 5, WordWidth::Four, geq));
        assert!(compare(0x8000_0004, 5, WordWidth::Four, geq));
        assert!(!compare(0x8000_0005, 5, WordWidth::Four, geq));
        assert!(compare(2, 0xffff_ffff, WordWidth::Four, geq));
        assert!(!compare(2, 0xffff_ffff, WordWidth::Eight, geq));
    }

    #[test]
    fn and_wants_a_common_bit_and_nor_a_bit_that_neither_has() {
        assert!(compare(0b110, 0b010, WordWidth::Four, wait_value_flags::AND));
        assert!(!compare(0b101, 0b010, WordWidth::Four, wait_value_flags::AND));
        assert!(compare(0, 0xffff_fffe, WordWidth::Four, wait_value_flags::NOR));
        assert!(!compare(1, 0xffff_fffe, WordWidth::Four, wait_value_flags::NOR));
    }

    #[test]
    fn eq_of_32_bits_looks_at_32_bits() {
        assert!(compare(7, 0x1_0000_0007, WordWidth::Four, wait_value_flags::EQ));
        assert!(!compare(7, 0x1_0000_0007, WordWidth::Eight, wait_value_flags::EQ));
    }
}
