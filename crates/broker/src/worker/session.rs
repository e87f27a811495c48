//! The calls of one tenant: taken from its ring, checked, and launched in its own streams. Nothing in a call is
//! trusted: modules, kernels and leases are looked up, and arguments are checked against parameters and bounds.

use std::sync::Arc;

use freehold::{Device, DynArg, Grid, Stream};
use freehold_driver::cuda::CUerror;

use super::resources::{FailureText, LoadedKernel, Resources, device_failure, faulted};
use super::watchdog::{EXIT_REPORTS_RESERVED, TenantProgress, Watchdog};
use crate::client::{Error, LinkError};
use crate::protocol::call_codec::{ArgRef, CallBody, CallHeader, CallKind, decode};
use crate::protocol::call_failure::{CallFailure, FailureReport};
use crate::protocol::call_ring::{CALL_SLOTS, CALL_WORDS, CallRing};
use crate::protocol::request_error::RequestError;
use crate::protocol::types::STREAMS;
use crate::protocol::types::{Fence, Id};
use freehold::signature::Kind;

/// Calls of one tenant that are taken in one turn, and the most between two signals of a stream.
const CALLS_PER_TURN: usize = 32;

/// The outcome of serving a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServeOutcome {
    Idle,
    Progress,
    /// The device has failed with this code.
    Fatal(u32),
}

#[derive(Debug)]
pub(super) struct CallSession {
    tenant: Id,
    calls: Arc<CallRing>,
    watchdog: Arc<Watchdog>,
    progress: Arc<TenantProgress>,
    streams: [Option<SessionStream>; STREAMS as usize],
    /// Set when its tenant is closing: how many calls are still taken, at most as many as the ring holds. Failures are
    /// not reported.
    calls_left: Option<u32>,
    /// Unfinished calls: at this limit no more are taken.
    launches_max: u64,
    /// No call was taken yet in this turn.
    is_turn_start: bool,
}

#[derive(Debug)]
struct SessionStream {
    stream: Stream,
    /// The last call after which the stream writes its semaphore.
    signaled: u64,
    /// The progress that was reported to the tenant.
    reported: u64,
}

impl CallSession {
    pub(super) fn new(tenant: Id, calls: Arc<CallRing>, watchdog: Arc<Watchdog>, launches_max: u64) -> Self {
        let progress = watchdog.progress_of(tenant);
        Self {
            tenant,
            calls,
            watchdog,
            progress,
            streams: Default::default(),
            calls_left: None,
            launches_max,
            is_turn_start: true,
        }
    }

    pub(super) fn tenant(&self) -> Id {
        self.tenant
    }

    /// The tenant is closing.
    pub(super) fn drain(&mut self) {
        self.calls_left.get_or_insert(CALL_SLOTS);
    }

    /// Whether the tenant is closing and all of its calls have finished.
    pub(super) fn is_drained(&self) -> bool {
        let has_call = || self.calls_left != Some(0) && self.calls.peek(&mut [0; CALL_WORDS]);
        self.calls_left.is_some() && !self.is_pending() && !has_call()
    }

    /// Sets whether this process sleeps. Returns whether there is a call that can be taken.
    pub(super) fn set_asleep(&self, is_asleep: bool) -> bool {
        self.calls.set_asleep(is_asleep) && self.has_room()
    }

    /// Records that this process does not sleep.
    pub(super) fn wake(&self) {
        self.calls.set_asleep(false);
    }

    fn streams(&self) -> impl Iterator<Item = (u32, &SessionStream)> {
        (0..).zip(&self.streams).filter_map(|(stream, stream_state)| Some((stream, stream_state.as_ref()?)))
    }

    /// Whether calls are unfinished.
    pub(super) fn is_pending(&self) -> bool {
        self.in_flight() > 0
    }

    fn in_flight(&self) -> u64 {
        let flight = self.streams().map(|(stream, _)| {
            let stream_state = self.progress.stream(stream);
            stream_state.last_call().saturating_sub(stream_state.done(&self.watchdog))
        });
        flight.sum()
    }

    /// Whether one more call can be taken: there is room to report its failure, or the tenant is closing and reads
    /// none.
    fn has_room(&self) -> bool {
        let has_room = match self.calls_left {
            None => self.calls.room() > EXIT_REPORTS_RESERVED,
            Some(left) => left > 0,
        };
        has_room && self.in_flight() < self.launches_max
    }

    /// The error code of the driver if work has failed.
    pub(super) fn fault(&self) -> Option<u32> {
        self.streams().find_map(|(_, stream_state)| match stream_state.stream.is_idle() {
            Err(error) => match device_failure(&error) {
                CallFailure::Faulted { code, .. } | CallFailure::Device { code } => Some(code),
                _ => None,
            },
            Ok(_) => None,
        })
    }

    /// The code of a failed device: that of the fault, if there is one, otherwise that of this error.
    fn code_of(&self, error: &freehold::Error) -> u32 {
        let answered = match device_failure(error) {
            CallFailure::Faulted { code, .. } | CallFailure::Device { code } => code,
            _ => CUerror::UNKNOWN.number(),
        };
        self.fault().unwrap_or(answered)
    }

    /// Launches calls for one turn, and makes the streams write their semaphores after them.
    pub(super) fn serve(&mut self, device: &Device, resources: &mut Resources) -> ServeOutcome {
        let mut served = ServeOutcome::Idle;
        let mut words = [0; CALL_WORDS];
        self.is_turn_start = true;
        for _ in 0..CALLS_PER_TURN {
            if !self.calls.peek(&mut words) || !self.has_room() {
                break;
            }
            served = ServeOutcome::Progress;
            self.calls.pop();
            self.calls_left = self.calls_left.map(|left| left - 1);
            if let Err(code) = self.serve_call(&words, device, resources) {
                return ServeOutcome::Fatal(code);
            }
        }
        match self.signal_all() {
            Ok(()) => {
                self.report_progress();
                served
            }
            Err(code) => ServeOutcome::Fatal(code),
        }
    }

    /// Executes a call or reports why not. Fails with the code of a device that has failed.
    fn serve_call(&mut self, words: &[u64; CALL_WORDS], device: &Device, resources: &mut Resources) -> Result<(), u32> {
        let Some((head, rest)) = decode(words) else {
            // No client writes such a call, so nobody waits for it.
            return Ok(());
        };
        let CallHeader { stream, number, .. } = head;
        if self.streams[stream as usize].is_none() {
            let made = device.new_stream().map_err(|error| self.code_of(&error))?;
            self.streams[stream as usize] = Some(SessionStream { stream: made, signaled: 0, reported: 0 });
        }
        // Numbers must increase: others would move the semaphore back, or complete what is not.
        let stream_state = self.progress.stream(stream);
        if number != stream_state.last_call() + 1 {
            self.progress.report(&FailureReport { stream, number, last: number, failure: CallFailure::Malformed }, "");
            return Ok(());
        }
        // Checked once per turn: a device that is faster than this process is idle after every signal.
        let was_idle = std::mem::take(&mut self.is_turn_start)
            && stream_state.last_call() <= stream_state.reported(&self.watchdog);
        let outcome = match head.kind {
            CallKind::Load => {
                // Compiling takes time of the host that must not count as kernel time.
                self.signal(stream)?;
                resources.load(device, head.module, self.tenant).map(|()| None)
            }
            CallKind::Launch => self.launch(&head, rest, device, resources).map(Some),
        };
        // An earlier call may have failed by now, and then that is the reason, whatever this call returned.
        if let Err((failure, _)) = &outcome
            && let Some(code) = self.fault().or(failure.fault_code())
        {
            return Err(code);
        }
        self.progress.stream(stream).begin(number, outcome.as_ref().ok().and_then(Option::clone));
        // Before the semaphore is written: a tenant that sees the semaphore and no failure takes the call for
        // successful.
        if let Err((failure, text)) = outcome {
            self.progress.report(&FailureReport { stream, number, last: number, failure }, &text);
        }
        // The first of many has a signal of its own, so that its fault can be told from theirs.
        if head.kind == CallKind::Load || was_idle {
            self.signal(stream)?;
        }
        Ok(())
    }

    /// Launches a kernel in its stream. Returns its name.
    fn launch(
        &mut self,
        head: &CallHeader,
        rest: CallBody<'_>,
        device: &Device,
        resources: &mut Resources,
    ) -> Result<Arc<str>, FailureText> {
        // Everything that the call needs is loaded and borrowed before any of it is used.
        resources.load(device, head.module, self.tenant)?;
        let is_ready = self.check(head, rest, resources)?;
        if !is_ready {
            self.wait_for_fences(head, rest, resources)?;
        }
        self.wait_for_streams(head, rest, resources)?;
        let LoadedKernel { kernel, signature } =
            resources.kernel(head.module, head.kernel).expect("it was found above");
        let name = signature.name.clone();
        let mut dyn_args = Vec::with_capacity(rest.arg_count as usize);
        let mut left = rest;
        while let (true, Some(one)) = (dyn_args.len() < rest.arg_count as usize, left.next_arg()) {
            let dyn_arg = match one {
                ArgRef::Number { parameter, word } => {
                    DynArg::bytes(std::slice::from_ref(word), parameter.bytes as usize)
                }
                ArgRef::Bytes { bytes, words } => DynArg::bytes(words, bytes as usize),
                ArgRef::Lease { lease, offset_bytes } => {
                    // SAFETY: only this thread submits work with borrowed leases, and `resources` belongs to it until
                    // the launch has returned. Ordering what kernels write is up to their tenant.
                    unsafe { DynArg::memory_shared(&*resources.borrowed(lease).lease, offset_bytes as usize) }
                }
            };
            dyn_args.push(dyn_arg.expect("sizes and bounds were checked"));
        }
        let grid = Grid { blocks: head.blocks, threads: head.threads, shared_bytes: head.shared_bytes };
        let stream_state = self.streams[head.stream as usize].as_ref().expect("the stream was created above");
        stream_state
            .stream
            .launch(kernel, grid, &mut dyn_args[..])
            .map_err(|error| (launch_failure(&error), String::new()))?;
        drop(dyn_args);
        let word = self.progress.stream(head.stream).word();
        leases(rest).for_each(|lease| resources.record_use(lease, word, head.number));
        Ok(name)
    }

    /// Records that a call waits for calls of other streams that use the same memory. The device orders them.
    fn wait_for_streams(
        &mut self,
        head: &CallHeader,
        rest: CallBody<'_>,
        resources: &Resources,
    ) -> Result<(), FailureText> {
        let own = self.progress.stream(head.stream).word();
        for lease in leases(rest) {
            for (word, value) in resources.borrowed(lease).uses_by_others(own) {
                if self.watchdog.done(word) >= value {
                    continue;
                }
                // A signal before the wait, so that the call counts as waiting and not as running.
                self.signal(head.stream).map_err(|code| (faulted(code), String::new()))?;
                self.progress.stream(head.stream).record_stream_wait(head.number, word, value);
            }
        }
        Ok(())
    }

    /// Checks the arguments of a call against the kernel's parameters, and borrows its leases. Returns whether nothing
    /// has to be waited for.
    fn check(&self, head: &CallHeader, rest: CallBody<'_>, resources: &mut Resources) -> Result<bool, FailureText> {
        let refused = |failure| Err((failure, String::new()));
        let Some(loaded) = resources.kernel(head.module, head.kernel) else { return refused(CallFailure::NoKernel) };
        let parameters = loaded.signature.parameters.clone();
        if parameters.len() != rest.arg_count as usize {
            return refused(CallFailure::ArgumentCount { wanted: parameters.len() as u32, given: rest.arg_count });
        }
        let stream_state = self.streams[head.stream as usize].as_ref().expect("the stream was created above");
        let mut is_ready = rest.fences().next().is_none();
        let mut left = rest;
        for (argument, parameter) in (1..).zip(parameters.iter()) {
            let Some(one) = left.next_arg() else { return refused(CallFailure::Malformed) };
            let fits = match one {
                ArgRef::Number { parameter: number, .. } => parameter.takes(&number),
                ArgRef::Bytes { bytes, .. } => parameter.kind == Kind::Bytes && parameter.bytes == bytes,
                ArgRef::Lease { .. } => parameter.takes_address(),
            };
            if !fits {
                return refused(CallFailure::ArgumentKind { argument });
            }
            let ArgRef::Lease { lease, offset_bytes } = one else { continue };
            resources.borrow(&stream_state.stream, lease, self.tenant).map_err(|(failure, text)| match failure {
                CallFailure::BorrowFailed { error, .. } => (CallFailure::BorrowFailed { argument, error }, text),
                failure => (failure, text),
            })?;
            let borrowed = resources.borrowed(lease);
            let bytes = borrowed.lease.len() as u64;
            if offset_bytes >= bytes {
                return refused(CallFailure::OutOfBounds { argument, offset: offset_bytes, bytes });
            }
            is_ready &= borrowed.ready.value == 0;
        }
        Ok(is_ready)
    }

    /// Makes the stream wait for the fences of a call.
    fn wait_for_fences(
        &mut self,
        head: &CallHeader,
        rest: CallBody<'_>,
        resources: &mut Resources,
    ) -> Result<(), FailureText> {
        for fence in rest.fences() {
            self.wait_for_fence(head, fence, resources)?;
        }
        let mut left = rest;
        for _ in 0..rest.arg_count {
            if let Some(ArgRef::Lease { lease, .. }) = left.next_arg()
                && self.wait_for_fence(head, resources.borrowed(lease).ready, resources)?
            {
                resources.set_ready(lease);
            }
        }
        Ok(())
    }

    /// Makes the stream wait for a fence. Returns whether it is complete already.
    fn wait_for_fence(&mut self, head: &CallHeader, fence: Fence, resources: &Resources) -> Result<bool, FailureText> {
        if fence.value == 0 {
            return Ok(true);
        }
        let semaphores = match resources.broker().semaphores(fence.tenant) {
            Ok(semaphores) => semaphores,
            // The tenant is gone, so its fences are complete.
            Err(Error::Link(LinkError::Request { error: RequestError::NoTenant, .. })) => return Ok(true),
            Err(_) => return Err((CallFailure::ForeignFence, String::new())),
        };
        let (word, value) = (fence.semaphore as usize, fence.value);
        if word >= semaphores.len() {
            return Err((CallFailure::ForeignFence, String::new()));
        }
        if semaphores.read(word).wrapping_sub(value).cast_signed() >= 0 {
            return Ok(true);
        }
        // A signal before the wait, so that the call counts as waiting and not as running.
        self.signal(head.stream).map_err(|code| (faulted(code), String::new()))?;
        let stream_state = self.streams[head.stream as usize].as_ref().expect("the stream was created above");
        let waiting = stream_state.stream.wait_value(&semaphores, word, value);
        let record_wait =
            || self.progress.stream(head.stream).record_fence_wait(&self.watchdog, &stream_state.stream, head.number);
        waiting.and_then(|()| record_wait()).map_err(|error| (launch_failure(&error), String::new()))?;
        Ok(false)
    }

    /// Makes a stream write its semaphore after the last call.
    fn signal(&mut self, stream: u32) -> Result<(), u32> {
        let (stream_state, known) = (self.progress.stream(stream), &mut self.streams[stream as usize]);
        let Some(known) = known.as_mut().filter(|known| known.signaled < stream_state.last_call()) else {
            return Ok(());
        };
        stream_state.record_signal(stream_state.last_call());
        let written = self.watchdog.signal(&known.stream, stream_state.word(), stream_state.last_call());
        known.signaled = stream_state.last_call();
        written.map_err(|error| self.code_of(&error))
    }

    fn signal_all(&mut self) -> Result<(), u32> {
        (0..STREAMS).try_for_each(|stream| self.signal(stream))
    }

    /// Wakes the tenant if it sleeps and its calls made progress.
    fn report_progress(&mut self) {
        let mut has_moved = false;
        for (stream, stream_state) in (0..).zip(&mut self.streams) {
            let Some(stream_state) = stream_state else { continue };
            let told = self.progress.stream(stream).reported(&self.watchdog);
            has_moved |= std::mem::replace(&mut stream_state.reported, told) != told;
        }
        if has_moved && self.calls.is_tenant_asleep() {
            self.calls.notify_progress();
        }
    }
}

/// The leases among the arguments of a call.
fn leases(rest: CallBody<'_>) -> impl Iterator<Item = Id> {
    let mut left = rest;
    (0..rest.arg_count).filter_map(move |_| match left.next_arg() {
        Some(ArgRef::Lease { lease, .. }) => Some(lease),
        _ => None,
    })
}

/// Why a launch was refused: its shape, or the device.
fn launch_failure(error: &freehold::Error) -> CallFailure {
    match error {
        freehold::Error::NoThreads | freehold::Error::ShapeTooLarge { .. } => CallFailure::UnsupportedShape,
        freehold::Error::Call(call)
            if [CUerror::INVALID_VALUE, CUerror::LAUNCH_OUT_OF_RESOURCES]
                .iter()
                .any(|&code| call.code == code.into()) =>
        {
            CallFailure::UnsupportedShape
        }
        error => device_failure(error),
    }
}
