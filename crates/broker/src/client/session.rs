//! A tenant's session at a worker: the call ring, and the worker's semaphores that show the progress. It ends with the
//! worker, together with all submitted calls.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use freehold::ForkGuard;

use super::call_error::{CallError, Code, Executed};
use super::kernel::Kernel;
use crate::client::link::{LIVENESS_INTERVAL, Link, LinkError, SpinPolicy};
use crate::os::eventfd;
use crate::os::shared_memory::SharedMemory;
use crate::protocol::call_codec::{Argument, CallHeader, encode};
use crate::protocol::call_failure::{CallFailure, FailureReport, SuspectCount};
use crate::protocol::call_ring::{CALL_SLOTS, CALL_WORDS, CallRing, semaphore_of};
use crate::protocol::message::{Reply, Request};
use crate::protocol::request_error::RequestError;
use crate::protocol::spin::SpinWait;
use crate::protocol::types::SEMAPHORES;
use crate::protocol::types::{Fence, Id};
use crate::protocol::types::{PROCESS_ENDED, STREAMS};

/// How many failures are kept for calls whose outcome was not requested.
const FAILURES_MAX: usize = 1 << 16;

/// How long to sleep while the ring is full.
const FULL_WAIT: Duration = Duration::from_millis(1);

/// Identifies a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallId {
    pub(super) stream: u32,
    /// Number in its stream.
    pub(super) number: u64,
    /// Number in the ring.
    ring_index: u32,
}

#[derive(Debug)]
pub(super) struct CallSession {
    worker: Id,
    session_index: u32,
    calls: CallRing,
    semaphores: SharedMemory,
    doorbell: OwnedFd,
    spin: SpinWait,
    fork_guard: ForkGuard,
    queue: Mutex<CallQueue>,
}

/// The submitted calls, and the reported failures.
#[derive(Debug, Default)]
struct CallQueue {
    requested: u32,
    /// Calls taken when this side last checked.
    taken: u32,
    numbers: [u64; STREAMS as usize],
    failures: VecDeque<ReceivedFailure>,
    /// The last call of each stream whose failure was discarded: the outcome of it and of all before it is unknown.
    forgotten: [u64; STREAMS as usize],
}

/// A report and its text.
#[derive(Debug)]
struct ReceivedFailure {
    report: FailureReport,
    text: Box<str>,
}

impl CallQueue {
    fn push_failure(&mut self, failure: ReceivedFailure) {
        if self.failures.len() == FAILURES_MAX
            && let Some(ReceivedFailure { report, .. }) = self.failures.pop_front()
        {
            let forgotten = &mut self.forgotten[report.stream as usize % STREAMS as usize];
            *forgotten = report.last.max(*forgotten);
        }
        self.failures.push_back(failure);
    }

    /// The failure that was reported for a call.
    fn failure_of(&self, id: CallId) -> Option<&ReceivedFailure> {
        let is_of =
            |report: &FailureReport| report.stream == id.stream && (report.number..=report.last).contains(&id.number);
        self.failures.iter().find(|failure| is_of(&failure.report))
    }
}

impl CallSession {
    pub(super) fn open(link: &mut Link, label: u64, fork_guard: ForkGuard) -> Result<Self, CallError> {
        let answer = link.call(Request::OpenSession { label })?;
        let descriptors = <[OwnedFd; 3]>::try_from(answer.descriptors);
        let (Reply::SessionOpened { worker, session_index }, Ok([calls, semaphores, doorbell])) =
            (answer.reply, descriptors)
        else {
            return Err(LinkError::Malformed.into());
        };
        let calls = CallRing::open(calls).map_err(LinkError::from)?;
        let semaphores = SharedMemory::open(semaphores, SEMAPHORES as usize * 8).map_err(LinkError::from)?;
        let (spin, queue) = (SpinWait::new(), Mutex::default());
        Ok(Self { worker, session_index, calls, semaphores, doorbell, spin, fork_guard, queue })
    }

    pub(super) fn fence(&self, id: CallId) -> Fence {
        Fence { tenant: self.worker, semaphore: semaphore_of(self.session_index, id.stream), value: id.number }
    }

    #[inline]
    fn semaphore(&self, stream: u32) -> u64 {
        self.semaphores.u64_at(8 * semaphore_of(self.session_index, stream) as usize).load(Ordering::Acquire)
    }

    /// Whether the worker's process has ended.
    #[inline]
    pub(super) fn has_ended(&self) -> bool {
        self.semaphore(0) >= PROCESS_ENDED
    }

    /// Whether a call is complete, successful or not.
    #[inline]
    pub(super) fn is_complete(&self, id: CallId) -> bool {
        self.semaphore(id.stream) >= id.number
    }

    fn queue(&self) -> MutexGuard<'_, CallQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Submits a call after those of its stream. `None` if the worker has ended before there was room.
    #[inline]
    pub(super) fn push(&self, mut head: CallHeader, after: &[Fence], arguments: &[Argument<'_>]) -> Option<CallId> {
        let mut queue = self.queue();
        let count = queue.requested;
        if count.wrapping_sub(queue.taken) >= CALL_SLOTS {
            self.wait_for_room(&mut queue)?;
        }
        let number = &mut queue.numbers[head.stream as usize];
        *number += 1;
        head.number = *number;
        let mut words = [0; CALL_WORDS];
        let used = encode(&mut words, &head, after, arguments);
        let is_to_wake = self.calls.push(count, &words[..used]);
        queue.requested = count.wrapping_add(1);
        if is_to_wake {
            self.wake();
        }
        Some(CallId { stream: head.stream, number: head.number, ring_index: count })
    }

    #[cold]
    fn wait_for_room(&self, queue: &mut CallQueue) -> Option<()> {
        let mut turns = 0_u32;
        loop {
            let seen = self.calls.progress();
            queue.taken = self.calls.taken();
            if queue.requested.wrapping_sub(queue.taken) < CALL_SLOTS {
                return Some(());
            }
            if self.has_ended() {
                return None;
            }
            self.receive_failures(queue);
            turns += 1;
            if turns < self.spin.spins_max() {
                self.spin.spin_once();
            } else {
                let has_room = || self.calls.taken() != queue.taken;
                self.calls.sleep(seen, FULL_WAIT, || self.wake(), has_room);
            }
        }
    }

    #[cold]
    fn wake(&self) {
        // If the counter is full, the doorbell rings already; the end of a worker shows in its semaphores.
        let _ = eventfd::notify(&self.doorbell);
    }

    /// Waits until a call is complete. Returns whether it was in time. `look` checks from time to time whether the
    /// broker is alive.
    pub(super) fn wait(
        &self,
        id: CallId,
        spin_policy: SpinPolicy,
        timeout: Option<Duration>,
        look: impl Fn() -> Result<(), CallError>,
    ) -> Result<bool, CallError> {
        if self.fork_guard.is_child() {
            return Err(LinkError::ForkedChild.into());
        }
        let mut since = None;
        let mut turns = 0_u32;
        loop {
            let seen = self.calls.progress();
            if self.is_complete(id) {
                return Ok(true);
            }
            if spin_policy != SpinPolicy::For(Duration::ZERO) {
                self.spin.spin_once();
                turns = turns.wrapping_add(1);
                if !turns.is_multiple_of(self.spin.spins_max()) {
                    continue;
                }
            }
            self.receive_failures(&mut self.queue());
            let began = *since.get_or_insert_with(Instant::now);
            let elapsed = began.elapsed();
            if timeout.is_some_and(|timeout| elapsed >= timeout) {
                return Ok(false);
            }
            let may_spin = match spin_policy {
                SpinPolicy::Forever => true,
                SpinPolicy::For(longest) => elapsed < longest,
            };
            if !may_spin {
                let longest = timeout.map_or(LIVENESS_INTERVAL, |timeout| LIVENESS_INTERVAL.min(timeout - elapsed));
                self.calls.sleep(seen, longest, || self.wake(), || self.is_complete(id));
            }
            if elapsed > LIVENESS_INTERVAL && (!may_spin || turns.is_multiple_of(1 << 20)) && !self.is_complete(id) {
                look()?;
            }
        }
    }

    /// Takes the reported failures: while there is no room for them, the worker takes no calls.
    fn receive_failures(&self, queue: &mut CallQueue) {
        let mut has_heard = false;
        while let Some((message, text)) = self.calls.pop_failure() {
            has_heard = true;
            if let Some(report) = FailureReport::from_words(&message) {
                queue.push_failure(ReceivedFailure { report, text: text.into() });
            }
        }
        if has_heard && self.calls.is_worker_asleep() {
            self.wake();
        }
    }

    /// The outcome of a completed call.
    pub(super) fn outcome(&self, id: CallId, kernel: &Kernel) -> Result<(), CallError> {
        let mut queue = self.queue();
        self.receive_failures(&mut queue);
        let is_fatal =
            |report: &&FailureReport| matches!(report.failure, CallFailure::Faulted { .. } | CallFailure::Hung { .. });
        let word = self.semaphore(id.stream) & (PROCESS_ENDED - 1);
        // The worker may suspect calls that finished a moment before it ended: their semaphore says that they
        // succeeded.
        if let Some(failure) = queue.failure_of(id).filter(|failure| !is_fatal(&&failure.report) || word < id.number) {
            return Err(call_error(failure, kernel));
        }
        let (name, module) = (kernel.name().clone(), kernel.module().clone());
        if id.number <= queue.forgotten[id.stream as usize] {
            return Err(CallError::Forgotten { kernel: name, module, most: FAILURES_MAX });
        }
        if word >= id.number {
            return Ok(());
        }
        // The worker has ended before it reported the call.
        let is_elsewhere = |report: &FailureReport| report.failure == CallFailure::SharedWorkerFaulted;
        let report = || queue.failures.iter().map(|failure| &failure.report);
        let is_taken = self.calls.taken().wrapping_sub(id.ring_index).cast_signed() > 0;
        let is_behind = report().filter(is_fatal).any(|report| report.stream == id.stream && report.number < id.number);
        let executed = if is_taken && !is_behind { Executed::Maybe } else { Executed::No };
        let no_device = queue.failures.iter().find(|failure| failure.report.failure == CallFailure::NoDevice);
        Err(match (report().any(|report| is_fatal(&report)), no_device) {
            (true, _) => CallError::AfterFault { kernel: name, module, executed },
            (false, Some(failure)) => CallError::NoDevice { said: failure.text.to_string() },
            (false, None) if report().any(is_elsewhere) => {
                CallError::SharedWorkerFaulted { kernel: name, module, executed }
            }
            (false, None) => CallError::WorkerGone { kernel: name, module, executed },
        })
    }
}

/// Names the kernels of which one has failed.
fn suspects_text(failure: &ReceivedFailure, among: SuspectCount) -> String {
    match among.others {
        0 => failure.text.to_string(),
        others => format!("{}, and {others} of other processes", failure.text),
    }
}

/// The error of a caller for a reported failure.
fn call_error(failure: &ReceivedFailure, of: &Kernel) -> CallError {
    let (kernel, module) = (of.name().clone(), of.module().clone());
    let at = |argument: u32| of.parameters().get((argument as usize).wrapping_sub(1)).copied();
    match failure.report.failure {
        CallFailure::Malformed => LinkError::Malformed.into(),
        CallFailure::NoModule => CallError::NoModule { name: module, near: String::new() },
        CallFailure::NoKernel => CallError::NoKernel { module, kernel: kernel.to_string(), known: Vec::new() },
        CallFailure::ArgumentCount { wanted, given } => {
            CallError::ArgumentCount { kernel, wanted: wanted as usize, given: given as usize }
        }
        CallFailure::ArgumentKind { argument } => match at(argument) {
            Some(wanted) => CallError::ArgumentKind { kernel, argument: argument as usize, wanted, given: wanted },
            None => LinkError::Malformed.into(),
        },
        CallFailure::BorrowFailed { argument, error } => {
            let argument = argument as usize;
            match error {
                RequestError::NoLease => CallError::NoLease { kernel, argument },
                RequestError::LeaseEnded => CallError::LeaseEnded { kernel, argument },
                RequestError::ForeignLease => CallError::ForeignLease { kernel, argument },
                error => CallError::BorrowFailed { kernel, argument, error },
            }
        }
        CallFailure::OutOfBounds { argument, offset, bytes } => {
            CallError::OutOfBounds { kernel, argument: argument as usize, offset_bytes: offset, bytes }
        }
        CallFailure::UnsupportedShape => CallError::UnsupportedShape { kernel },
        CallFailure::ForeignFence => CallError::ForeignFence { kernel },
        CallFailure::CompileFailed => CallError::CompileFailed { log: failure.text.to_string() },
        CallFailure::HashMismatch => CallError::HashMismatch { module },
        CallFailure::LoadFailed { error } => LinkError::from(error).into(),
        CallFailure::Faulted { code, among } => {
            let (code, executed) = (Code(code), Executed::Maybe);
            match among.is_certain() {
                true => CallError::Faulted { kernel, module, code, cause: failure.text.to_string(), executed },
                false => {
                    CallError::SuspectFaulted { kernel, module, among: suspects_text(failure, among), code, executed }
                }
            }
        }
        CallFailure::Hung { limit_ms, among } => {
            let (limit, executed) = (Duration::from_millis(limit_ms), Executed::Maybe);
            match among.is_certain() {
                true => CallError::Hung { kernel, module, limit, executed },
                false => {
                    CallError::SuspectHung { kernel, module, among: suspects_text(failure, among), limit, executed }
                }
            }
        }
        CallFailure::SharedWorkerFaulted => {
            CallError::SharedWorkerFaulted { kernel, module, executed: Executed::Maybe }
        }
        CallFailure::Device { code } => CallError::Device { kernel, module, code: Code(code) },
        CallFailure::NoDevice => CallError::NoDevice { said: failure.text.to_string() },
    }
}

/// The session of a tenant, which all of its callers share.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedSession(Arc<Mutex<Option<Arc<CallSession>>>>);

impl SharedSession {
    pub(super) fn lock(&self) -> MutexGuard<'_, Option<Arc<CallSession>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
