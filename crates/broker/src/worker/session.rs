//! One tenant's calls: taken out of its ring, checked, launched in streams of its own. Nothing of a call is believed: modules,
//! kernels and leases are looked up, and arguments are held against parameters and bounds.

use std::sync::Arc;

use freehold::{Device, DynArg, Grid, Stream};
use freehold_driver::cuda::CUerror;

use super::resources::{FailureText, LoadedKernel, Resources, device_failure, faulted};
use super::watchdog::{EXIT_REPORTS_RESERVED, TenantProgress, Watchdog};
use crate::call_codec::{ArgRef, CallBody, CallHeader, CallKind, decode};
use crate::call_failure::{CallFailure, FailureReport};
use crate::call_ring::{CALL_SLOTS, CALL_WORDS, CallRing, STREAMS};
use crate::client::{Error, LinkError};
use crate::wire::{Fence, Id, RequestError};
use freehold::signature::Kind;

/// How many calls are taken before others have their turn, and behind how many the stream writes its word at the latest.
const CALLS_PER_TURN: usize = 32;

/// What came of looking into a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServeOutcome {
    Idle,
    Progress,
    /// The device has failed, with a code.
    Fatal(u32),
}

#[derive(Debug)]
pub(super) struct CallSession {
    tenant: Id,
    calls: Arc<CallRing>,
    watchdog: Arc<Watchdog>,
    progress: Arc<TenantProgress>,
    streams: [Option<SessionStream>; STREAMS as usize],
    /// Its tenant goes: so many calls are taken at the most, which is as many as a ring holds. Nobody hears what goes wrong.
    calls_left: Option<u32>,
    /// Calls that have not come to their end: beyond, no more are taken.
    launches_max: u64,
    /// No call was taken since the others had their turn.
    is_turn_start: bool,
}

#[derive(Debug)]
struct SessionStream {
    stream: Stream,
    /// The last call that the stream writes the word behind.
    signaled: u64,
    /// How far the tenant was told that it has come.
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

    /// Its tenant goes.
    pub(super) fn drain(&mut self) {
        self.calls_left.get_or_insert(CALL_SLOTS);
    }

    /// Whether its tenant goes, and all of its calls have come to their end.
    pub(super) fn is_drained(&self) -> bool {
        let has_call = || self.calls_left != Some(0) && self.calls.peek(&mut [0; CALL_WORDS]);
        self.calls_left.is_some() && !self.is_pending() && !has_call()
    }

    /// Says whether this process sleeps. Whether there is a call meanwhile that can be taken.
    pub(super) fn set_asleep(&self, is_asleep: bool) -> bool {
        self.calls.set_asleep(is_asleep) && self.has_room()
    }

    /// Says that this process does not sleep.
    pub(super) fn wake(&self) {
        self.calls.set_asleep(false);
    }

    fn streams(&self) -> impl Iterator<Item = (u32, &SessionStream)> {
        (0..).zip(&self.streams).filter_map(|(stream, stream_state)| Some((stream, stream_state.as_ref()?)))
    }

    /// Whether calls have not come to their end.
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

    /// Whether one more call can be taken: what goes wrong with it can be told, where somebody is there to hear it.
    fn has_room(&self) -> bool {
        let has_room = match self.calls_left {
            None => self.calls.room() > EXIT_REPORTS_RESERVED,
            Some(left) => left > 0,
        };
        has_room && self.in_flight() < self.launches_max
    }

    /// The driver's code where work has failed.
    pub(super) fn fault(&self) -> Option<u32> {
        self.streams().find_map(|(_, stream_state)| match stream_state.stream.is_idle() {
            Err(error) => match device_failure(&error) {
                CallFailure::Faulted { code, .. } | CallFailure::Device { code } => Some(code),
                _ => None,
            },
            Ok(_) => None,
        })
    }

    /// The code of a device that takes no more work: of the fault, where it is one, whatever the call was answered with.
    fn code_of(&self, error: &freehold::Error) -> u32 {
        let answered = match device_failure(error) {
            CallFailure::Faulted { code, .. } | CallFailure::Device { code } => code,
            _ => CUerror::UNKNOWN.number(),
        };
        self.fault().unwrap_or(answered)
    }

    /// Launches what is called, for a turn, and has streams write their words behind it.
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

    /// Carries a call out, or tells why not. The code of a device that has failed.
    fn serve_call(&mut self, words: &[u64; CALL_WORDS], device: &Device, resources: &mut Resources) -> Result<(), u32> {
        let Some((head, rest)) = decode(words) else {
            // No client writes such: nobody waits for it.
            return Ok(());
        };
        let CallHeader { stream, number, .. } = head;
        if self.streams[stream as usize].is_none() {
            let made = device.stream().map_err(|error| self.code_of(&error))?;
            self.streams[stream as usize] = Some(SessionStream { stream: made, signaled: 0, reported: 0 });
        }
        // Numbers count on: others would make the word go back, or pass what has not.
        let stream_state = self.progress.stream(stream);
        if number != stream_state.last_call() + 1 {
            self.progress.report(&FailureReport { stream, number, last: number, failure: CallFailure::Malformed }, "");
            return Ok(());
        }
        // Asked once a turn: a device that is faster than this process is idle behind each word.
        let was_idle = std::mem::take(&mut self.is_turn_start)
            && stream_state.last_call() <= stream_state.reported(&self.watchdog);
        let outcome = match head.kind {
            CallKind::Load => {
                // That takes the host's time, which is no kernel's.
                self.signal(stream)?;
                resources.load(device, head.module, self.tenant).map(|()| None)
            }
            CallKind::Launch => self.launch(&head, rest, device, resources).map(Some),
        };
        // What was called before may have failed meanwhile: then that is why, whatever this one was answered with.
        if let Err((failure, _)) = &outcome
            && let Some(code) = self.fault().or(failure.fault_code())
        {
            return Err(code);
        }
        self.progress.stream(stream).begin(number, outcome.as_ref().ok().and_then(Option::clone));
        // Before any word is written behind it: who sees that word, and was told nothing, takes the call for one that went well.
        if let Err((failure, text)) = outcome {
            self.progress.report(&FailureReport { stream, number, last: number, failure }, &text);
        }
        // The first of many has a word of its own: if it fails, it is known to be the one.
        if head.kind == CallKind::Load || was_idle {
            self.signal(stream)?;
        }
        Ok(())
    }

    /// Puts a kernel into its stream: its name.
    fn launch(
        &mut self,
        head: &CallHeader,
        rest: CallBody<'_>,
        device: &Device,
        resources: &mut Resources,
    ) -> Result<Arc<str>, FailureText> {
        // All that the call needs is there before any of it is used.
        resources.load(device, head.module, self.tenant)?;
        let is_ready = self.check(head, rest, resources)?;
        if !is_ready {
            self.wait_for_fences(head, rest, resources)?;
        }
        self.wait_for_streams(head, rest, resources)?;
        let LoadedKernel { kernel, signature } = resources.kernel(head.module, head.kernel).expect("it was found above");
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
                    // SAFETY: this thread alone puts work in with what is borrowed, and `resources` is its own until the launch has
                    // returned. What a kernel writes is its tenant's to order.
                    unsafe { DynArg::memory_shared(&*resources.borrowed(lease).lease, offset_bytes as usize) }
                }
            };
            dyn_args.push(dyn_arg.expect("sizes and bounds were looked at"));
        }
        let grid = Grid { blocks: head.blocks, threads: head.threads, shared_bytes: head.shared_bytes };
        let stream_state = self.streams[head.stream as usize].as_ref().expect("it was made");
        stream_state
            .stream
            .launch(kernel, grid, &mut dyn_args[..])
            .map_err(|error| (launch_failure(&error), String::new()))?;
        drop(dyn_args);
        let word = self.progress.stream(head.stream).word();
        leases(rest).for_each(|lease| resources.record_use(lease, word, head.number));
        Ok(name)
    }

    /// Notes that a call waits for calls of other streams that use the same memory: the device orders them.
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
                // What waits is the first behind a signal, so that it is known to wait, and not to run.
                self.signal(head.stream).map_err(|code| (faulted(code), String::new()))?;
                self.progress.stream(head.stream).record_stream_wait(head.number, word, value);
            }
        }
        Ok(())
    }

    /// Holds the arguments of a call against the kernel's parameters, and borrows what is leased. Whether nothing has to be waited
    /// for.
    fn check(&self, head: &CallHeader, rest: CallBody<'_>, resources: &mut Resources) -> Result<bool, FailureText> {
        let refused = |failure| Err((failure, String::new()));
        let Some(loaded) = resources.kernel(head.module, head.kernel) else { return refused(CallFailure::NoKernel) };
        let parameters = loaded.signature.parameters.clone();
        if parameters.len() != rest.arg_count as usize {
            return refused(CallFailure::ArgumentCount { wanted: parameters.len() as u32, given: rest.arg_count });
        }
        let stream_state = self.streams[head.stream as usize].as_ref().expect("it was made");
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

    /// Lets the stream wait for what the call is to come after.
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

    /// Lets the stream wait for a fence. Whether it has passed.
    fn wait_for_fence(&mut self, head: &CallHeader, fence: Fence, resources: &Resources) -> Result<bool, FailureText> {
        if fence.value == 0 {
            return Ok(true);
        }
        let semaphores = match resources.broker().semaphores(fence.tenant) {
            Ok(semaphores) => semaphores,
            // All of its work has passed.
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
        // What waits is the first behind a signal, so that it is known to wait, and not to run.
        self.signal(head.stream).map_err(|code| (faulted(code), String::new()))?;
        let stream_state = self.streams[head.stream as usize].as_ref().expect("it was made");
        let waiting = stream_state.stream.wait_word(&semaphores, word, value);
        let record_wait =
            || self.progress.stream(head.stream).record_fence_wait(&self.watchdog, &stream_state.stream, head.number);
        waiting.and_then(|()| record_wait()).map_err(|error| (launch_failure(&error), String::new()))?;
        Ok(false)
    }

    /// Has a stream write its word behind the last call.
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

    /// Wakes the tenant if it sleeps and its calls have come further.
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
        freehold::Error::EmptyGrid | freehold::Error::ShapeTooLarge { .. } => CallFailure::UnsupportedShape,
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
