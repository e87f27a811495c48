//! A tenant's place at a worker: the ring of calls, and the words of the worker's semaphores that tell how far they are. It ends with
//! the worker, and all calls that were put in with it.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use freehold::ForkGuard;

use super::error::{CallError, Code, Executed};
use super::modules::Kernel;
use crate::call_codec::{Argument, CallHeader, encode};
use crate::call_failure::{CallFailure, FailureReport, SuspectCount};
use crate::call_ring::{CALL_SLOTS, CALL_WORDS, CallRing, PROCESS_ENDED, STREAMS, semaphore_of};
use crate::client::link::{LIVENESS_INTERVAL, Link, LinkError, SpinPolicy};
use crate::ring::SpinWait;
use crate::shared_memory::SharedMemory;
use crate::state::SEMAPHORES;
use crate::wire::{Fence, Id, Reply, Request, RequestError};

/// How many messages of calls that nobody waited for are kept.
const FAILURES_MAX: usize = 1 << 16;

/// How long who finds the ring full sleeps before it looks again.
const FULL_WAIT: Duration = Duration::from_millis(1);

/// Where a call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallId {
    pub(super) stream: u32,
    /// Among the calls of its stream.
    pub(super) number: u64,
    /// Among all calls of the ring.
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

/// What was put in, and what was told of it.
#[derive(Debug, Default)]
struct CallQueue {
    requested: u32,
    /// How many had been taken when this side looked last.
    taken: u32,
    numbers: [u64; STREAMS as usize],
    failures: VecDeque<ReceivedFailure>,
    /// In each stream, the last call of which a failure was forgotten: of it and those before it nobody knows how they went.
    forgotten: [u64; STREAMS as usize],
}

/// What was told, and the text with it.
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

    /// What was told of a call.
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

    /// Whether a call is over, one way or another.
    #[inline]
    pub(super) fn is_complete(&self, id: CallId) -> bool {
        self.semaphore(id.stream) >= id.number
    }

    fn queue(&self) -> MutexGuard<'_, CallQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a call in, behind those of its stream. Nothing where the worker has ended before there was room.
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
        // A doorbell that has counted as far as it can rings; of a worker that is gone its semaphores tells.
        let _ = rustix::io::write(&self.doorbell, &1_u64.to_ne_bytes());
    }

    /// Waits until a call is over: whether it was within the time. `look` is asked from time to time whether the broker is there.
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

    /// Takes messages out: where they have no room left, the worker takes no call.
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

    /// How a call that is over went.
    pub(super) fn outcome(&self, id: CallId, kernel: &Kernel) -> Result<(), CallError> {
        let mut queue = self.queue();
        self.receive_failures(&mut queue);
        let is_fatal =
            |report: &&FailureReport| matches!(report.failure, CallFailure::Faulted { .. } | CallFailure::Hung { .. });
        let word = self.semaphore(id.stream) & (PROCESS_ENDED - 1);
        // The worker suspects calls that came to their end a moment before it did: their word says that they went well.
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
        // Its worker has ended before it told of the call.
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

/// The kernels of which one went wrong.
fn suspects_text(failure: &ReceivedFailure, among: SuspectCount) -> String {
    match among.others {
        0 => failure.text.to_string(),
        others => format!("{}, and {others} of other processes", failure.text),
    }
}

/// What was told of a call of a kernel, as who called it hears it.
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
                true => CallError::Faulted { kernel, module, code, executed },
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

#[cfg(test)]
mod tests;
