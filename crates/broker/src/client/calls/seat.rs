//! A tenant's place at a worker: the ring of calls, and the words of the worker's clock that tell how far they are. It ends with
//! the worker, and all calls that were put in with it.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use freehold::ForkGuard;

use super::error::{CallError, Carried, Code};
use super::modules::Kernel;
use crate::calls::{CALL_WORDS, CALLS, Calls, ENDED, STREAMS, word_of};
use crate::client::link::{LOOK, Link, LinkError, Patience};
use crate::order::{Argument, Head, encode};
use crate::ring::Spin;
use crate::shared::Shared;
use crate::state::CLOCK_WORDS;
use crate::trouble::{Among, Told, Trouble};
use crate::wire::{Id, Point, Refusal, Reply, Request};

/// How many messages of calls that nobody waited for are kept.
const TOLD_MAX: usize = 1 << 16;

/// How long who finds the ring full sleeps before it looks again.
const FULL: Duration = Duration::from_millis(1);

/// Where a call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) stream: u32,
    /// Among the calls of its stream.
    pub(super) number: u64,
    /// Among all calls of the ring.
    count: u32,
}

#[derive(Debug)]
pub(super) struct Seat {
    worker: Id,
    seat: u32,
    calls: Calls,
    clock: Shared,
    bell: OwnedFd,
    spin: Spin,
    family: ForkGuard,
    line: Mutex<Line>,
}

/// What was put in, and what was told of it.
#[derive(Debug, Default)]
struct Line {
    requested: u32,
    /// How many had been taken when this side looked last.
    taken: u32,
    numbers: [u64; STREAMS as usize],
    told: VecDeque<Heard>,
    /// In each stream, the last call of which a failure was forgotten: of it and those before it nobody knows how they went.
    forgotten: [u64; STREAMS as usize],
}

/// What was told, and the text with it.
#[derive(Debug)]
struct Heard {
    told: Told,
    text: Box<str>,
}

impl Line {
    fn keep(&mut self, heard: Heard) {
        if self.told.len() == TOLD_MAX
            && let Some(Heard { told, .. }) = self.told.pop_front()
        {
            let forgotten = &mut self.forgotten[told.stream as usize % STREAMS as usize];
            *forgotten = told.last.max(*forgotten);
        }
        self.told.push_back(heard);
    }

    /// What was told of a call.
    fn of(&self, spot: Spot) -> Option<&Heard> {
        let is_of = |told: &Told| told.stream == spot.stream && (told.number..=told.last).contains(&spot.number);
        self.told.iter().find(|heard| is_of(&heard.told))
    }
}

impl Seat {
    pub(super) fn hire(link: &mut Link, label: u64, family: ForkGuard) -> Result<Self, CallError> {
        let answer = link.call(Request::Hire { label })?;
        let descriptors = <[OwnedFd; 3]>::try_from(answer.descriptors);
        let (Reply::Hired { worker, seat }, Ok([calls, clock, bell])) = (answer.reply, descriptors) else {
            return Err(LinkError::Malformed.into());
        };
        let calls = Calls::open(calls).map_err(LinkError::from)?;
        let clock = Shared::open(clock, CLOCK_WORDS as usize * 8).map_err(LinkError::from)?;
        let (spin, line) = (Spin::new(), Mutex::default());
        Ok(Self { worker, seat, calls, clock, bell, spin, family, line })
    }

    pub(super) fn point(&self, spot: Spot) -> Point {
        Point { tenant: self.worker, word: word_of(self.seat, spot.stream), value: spot.number }
    }

    #[inline]
    fn word(&self, stream: u32) -> u64 {
        self.clock.word(8 * word_of(self.seat, stream) as usize).load(Ordering::Acquire)
    }

    /// Whether the worker's process has ended.
    #[inline]
    pub(super) fn has_ended(&self) -> bool {
        self.word(0) >= ENDED
    }

    /// Whether a call is over, one way or another.
    #[inline]
    pub(super) fn is_over(&self, spot: Spot) -> bool {
        self.word(spot.stream) >= spot.number
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a call in, behind those of its stream. Nothing where the worker has ended before there was room.
    #[inline]
    pub(super) fn put(&self, mut head: Head, after: &[Point], arguments: &[Argument<'_>]) -> Option<Spot> {
        let mut line = self.line();
        let count = line.requested;
        if count.wrapping_sub(line.taken) >= CALLS {
            self.make_room(&mut line)?;
        }
        let number = &mut line.numbers[head.stream as usize];
        *number += 1;
        head.number = *number;
        let mut words = [0; CALL_WORDS];
        let used = encode(&mut words, &head, after, arguments);
        let is_to_wake = self.calls.put(count, &words[..used]);
        line.requested = count.wrapping_add(1);
        if is_to_wake {
            self.wake();
        }
        Some(Spot { stream: head.stream, number: head.number, count })
    }

    #[cold]
    fn make_room(&self, line: &mut Line) -> Option<()> {
        let mut turns = 0_u32;
        loop {
            let seen = self.calls.moved();
            line.taken = self.calls.taken();
            if line.requested.wrapping_sub(line.taken) < CALLS {
                return Some(());
            }
            if self.has_ended() {
                return None;
            }
            self.hear(line);
            turns += 1;
            if turns < self.spin.moments() {
                self.spin.moment();
            } else {
                let has_room = || self.calls.taken() != line.taken;
                self.calls.sleep(seen, FULL, || self.wake(), has_room);
            }
        }
    }

    #[cold]
    fn wake(&self) {
        // A bell that has counted as far as it can rings; of a worker that is gone its clock tells.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// Waits until a call is over: whether it was within the time. `look` is asked from time to time whether the broker is there.
    pub(super) fn wait(
        &self,
        spot: Spot,
        patience: Patience,
        timeout: Option<Duration>,
        look: impl Fn() -> Result<(), CallError>,
    ) -> Result<bool, CallError> {
        if self.family.is_child() {
            return Err(LinkError::ForkedChild.into());
        }
        let mut since = None;
        let mut turns = 0_u32;
        loop {
            let seen = self.calls.moved();
            if self.is_over(spot) {
                return Ok(true);
            }
            if patience != Patience::For(Duration::ZERO) {
                self.spin.moment();
                turns = turns.wrapping_add(1);
                if !turns.is_multiple_of(self.spin.moments()) {
                    continue;
                }
            }
            self.hear(&mut self.line());
            let began = *since.get_or_insert_with(Instant::now);
            let elapsed = began.elapsed();
            if timeout.is_some_and(|timeout| elapsed >= timeout) {
                return Ok(false);
            }
            let has_patience = match patience {
                Patience::Spin => true,
                Patience::For(longest) => elapsed < longest,
            };
            if !has_patience {
                let longest = timeout.map_or(LOOK, |timeout| LOOK.min(timeout - elapsed));
                self.calls.sleep(seen, longest, || self.wake(), || self.is_over(spot));
            }
            if elapsed > LOOK && (!has_patience || turns.is_multiple_of(1 << 20)) && !self.is_over(spot) {
                look()?;
            }
        }
    }

    /// Takes messages out: where they have no room left, the worker takes no call.
    fn hear(&self, line: &mut Line) {
        let mut has_heard = false;
        while let Some((message, text)) = self.calls.hear() {
            has_heard = true;
            if let Some(told) = Told::of(&message) {
                line.keep(Heard { told, text: text.into() });
            }
        }
        if has_heard && self.calls.is_worker_asleep() {
            self.wake();
        }
    }

    /// How a call that is over went.
    pub(super) fn outcome(&self, spot: Spot, kernel: &Kernel) -> Result<(), CallError> {
        let mut line = self.line();
        self.hear(&mut line);
        let is_fatal = |told: &&Told| matches!(told.trouble, Trouble::Faulted { .. } | Trouble::TooLong { .. });
        let word = self.word(spot.stream) & (ENDED - 1);
        // The worker suspects calls that came to their end a moment before it did: their word says that they went well.
        if let Some(heard) = line.of(spot).filter(|heard| !is_fatal(&&heard.told) || word < spot.number) {
            return Err(sentence(heard, kernel));
        }
        let (name, module) = (kernel.name().clone(), kernel.module().clone());
        if spot.number <= line.forgotten[spot.stream as usize] {
            return Err(CallError::Forgotten { kernel: name, module, most: TOLD_MAX });
        }
        if word >= spot.number {
            return Ok(());
        }
        // Its worker has ended before it told of the call.
        let is_elsewhere = |told: &Told| told.trouble == Trouble::Elsewhere;
        let told = || line.told.iter().map(|heard| &heard.told);
        let is_taken = self.calls.taken().wrapping_sub(spot.count).cast_signed() > 0;
        let is_behind = told().filter(is_fatal).any(|told| told.stream == spot.stream && told.number < spot.number);
        let carried = if is_taken && !is_behind { Carried::Perhaps } else { Carried::Not };
        let no_device = line.told.iter().find(|heard| heard.told.trouble == Trouble::NoDevice);
        Err(match (told().any(|told| is_fatal(&told)), no_device) {
            (true, _) => CallError::Behind { kernel: name, module, carried },
            (false, Some(heard)) => CallError::NoDevice { said: heard.text.to_string() },
            (false, None) if told().any(is_elsewhere) => CallError::Elsewhere { kernel: name, module, carried },
            (false, None) => CallError::WorkerGone { kernel: name, module, carried },
        })
    }
}

/// The kernels of which one went wrong.
fn listed(heard: &Heard, among: Among) -> String {
    match among.others {
        0 => heard.text.to_string(),
        others => format!("{}, and {others} of other processes", heard.text),
    }
}

/// What was told of a call of a kernel, as who called it hears it.
fn sentence(heard: &Heard, of: &Kernel) -> CallError {
    let (kernel, module) = (of.name().clone(), of.module().clone());
    let at = |argument: u32| of.parameters().get((argument as usize).wrapping_sub(1)).copied();
    match heard.told.trouble {
        Trouble::Malformed => LinkError::Malformed.into(),
        Trouble::NoModule => CallError::NoModule { name: module, near: String::new() },
        Trouble::NoKernel => CallError::NoKernel { module, kernel: kernel.to_string(), known: Vec::new() },
        Trouble::ArgumentCount { wanted, given } => {
            CallError::ArgumentCount { kernel, wanted: wanted as usize, given: given as usize }
        }
        Trouble::ArgumentKind { argument } => match at(argument) {
            Some(wanted) => CallError::ArgumentKind { kernel, argument: argument as usize, wanted, given: wanted },
            None => LinkError::Malformed.into(),
        },
        Trouble::NotBorrowed { argument, refusal } => {
            let argument = argument as usize;
            match refusal {
                Refusal::NoLease => CallError::NoLease { kernel, argument },
                Refusal::LeaseOver => CallError::LeaseOver { kernel, argument },
                Refusal::ForeignLease => CallError::ForeignLease { kernel, argument },
                refusal => CallError::NotBorrowed { kernel, argument, refusal },
            }
        }
        Trouble::OutsideOfLease { argument, offset, bytes } => {
            CallError::OutsideOfLease { kernel, argument: argument as usize, offset_bytes: offset, bytes }
        }
        Trouble::Shape => CallError::Shape { kernel },
        Trouble::Point => CallError::ForeignPoint { kernel },
        Trouble::Image => CallError::Image { log: heard.text.to_string() },
        Trouble::OtherContent => CallError::OtherContent { module },
        Trouble::NotLoaded { refusal } => LinkError::from(refusal).into(),
        Trouble::Faulted { code, among } => {
            let (code, carried) = (Code(code), Carried::Perhaps);
            match among.is_known() {
                true => CallError::Faulted { kernel, module, code, carried },
                false => CallError::OneFaulted { kernel, module, among: listed(heard, among), code, carried },
            }
        }
        Trouble::TooLong { limit_ms, among } => {
            let (limit, carried) = (Duration::from_millis(limit_ms), Carried::Perhaps);
            match among.is_known() {
                true => CallError::Hung { kernel, module, limit, carried },
                false => CallError::OneHung { kernel, module, among: listed(heard, among), limit, carried },
            }
        }
        Trouble::Elsewhere => CallError::Elsewhere { kernel, module, carried: Carried::Perhaps },
        Trouble::Device { code } => CallError::Device { kernel, module, code: Code(code) },
        Trouble::NoDevice => CallError::NoDevice { said: heard.text.to_string() },
    }
}

#[cfg(test)]
mod tests;
