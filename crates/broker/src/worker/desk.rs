//! One tenant's calls: taken out of its ring, checked, launched in streams of its own. Nothing of a call is believed: modules,
//! kernels and leases are looked up, and arguments are held against parameters and bounds.

use std::sync::Arc;

use freehold::{Device, DynArg, Grid, Stream};
use freehold_driver::cuda::CUerror;

use super::stock::{Lack, Loaded, Stock, faulted, of_device};
use super::watch::{Line, ROOM_FOR_END, Watch};
use crate::calls::{CALL_WORDS, CALLS, Calls, STREAMS};
use crate::client::{Error, LinkError};
use crate::order::{Given, Head, Rest, Task, decode};
use crate::trouble::{Told, Trouble};
use crate::wire::{Id, Point, Refusal};
use freehold::signature::Kind;

/// How many calls are taken before others have their turn, and behind how many the stream writes its word at the latest.
const TURN: usize = 32;

/// What came of looking into a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    Nothing,
    Some,
    /// The device has failed, with a code.
    Fatal(u32),
}

#[derive(Debug)]
pub(super) struct Desk {
    tenant: Id,
    calls: Arc<Calls>,
    watch: Arc<Watch>,
    line: Arc<Line>,
    lanes: [Option<Lane>; STREAMS as usize],
    /// Its tenant goes: so many calls are taken at the most, which is as many as a ring holds. Nobody hears what goes wrong.
    left: Option<u32>,
    /// Calls that have not come to their end: beyond, no more are taken.
    launches_max: u64,
    /// No call was taken since the others had their turn.
    is_first: bool,
}

#[derive(Debug)]
struct Lane {
    stream: Stream,
    /// The last call that the stream writes the word behind.
    marked: u64,
    /// How far the tenant was told that it has come.
    told: u64,
}

impl Desk {
    pub(super) fn new(tenant: Id, calls: Arc<Calls>, watch: Arc<Watch>, launches_max: u64) -> Self {
        let line = watch.line(tenant);
        Self { tenant, calls, watch, line, lanes: Default::default(), left: None, launches_max, is_first: true }
    }

    pub(super) fn tenant(&self) -> Id {
        self.tenant
    }

    /// Its tenant goes.
    pub(super) fn dismiss(&mut self) {
        self.left.get_or_insert(CALLS);
    }

    /// Whether its tenant goes, and all of its calls have come to their end.
    pub(super) fn is_left(&self) -> bool {
        let has_call = || self.left != Some(0) && self.calls.peek(&mut [0; CALL_WORDS]);
        self.left.is_some() && !self.is_pending() && !has_call()
    }

    /// Says whether this process sleeps. Whether there is a call meanwhile that can be taken.
    pub(super) fn set_asleep(&self, is_asleep: bool) -> bool {
        self.calls.set_asleep(is_asleep) && self.has_room()
    }

    /// Says that this process does not sleep.
    pub(super) fn wake(&self) {
        self.calls.set_asleep(false);
    }

    fn lanes(&self) -> impl Iterator<Item = (u32, &Lane)> {
        (0..).zip(&self.lanes).filter_map(|(stream, lane)| Some((stream, lane.as_ref()?)))
    }

    /// Whether calls have not come to their end.
    pub(super) fn is_pending(&self) -> bool {
        self.flight() > 0
    }

    fn flight(&self) -> u64 {
        let flight = self.lanes().map(|(stream, _)| {
            let lane = self.line.lane(stream);
            lane.put().saturating_sub(lane.done(&self.watch))
        });
        flight.sum()
    }

    /// Whether one more call can be taken: what goes wrong with it can be told, where somebody is there to hear it.
    fn has_room(&self) -> bool {
        let has_room = match self.left {
            None => self.calls.room() > ROOM_FOR_END,
            Some(left) => left > 0,
        };
        has_room && self.flight() < self.launches_max
    }

    /// The driver's code where work has failed.
    pub(super) fn fault(&self) -> Option<u32> {
        self.lanes().find_map(|(_, lane)| match lane.stream.is_idle() {
            Err(error) => match of_device(&error) {
                Trouble::Faulted { code, .. } | Trouble::Device { code } => Some(code),
                _ => None,
            },
            Ok(_) => None,
        })
    }

    /// The code of a device that takes no more work: of the fault, where it is one, whatever the call was answered with.
    fn code_of(&self, error: &freehold::Error) -> u32 {
        let answered = match of_device(error) {
            Trouble::Faulted { code, .. } | Trouble::Device { code } => code,
            _ => CUerror::UNKNOWN.number(),
        };
        self.fault().unwrap_or(answered)
    }

    /// Launches what is called, for a turn, and has streams write their words behind it.
    pub(super) fn serve(&mut self, device: &Device, stock: &mut Stock) -> Served {
        let mut served = Served::Nothing;
        let mut words = [0; CALL_WORDS];
        self.is_first = true;
        for _ in 0..TURN {
            if !self.calls.peek(&mut words) || !self.has_room() {
                break;
            }
            served = Served::Some;
            self.calls.take();
            self.left = self.left.map(|left| left - 1);
            if let Err(code) = self.answer(&words, device, stock) {
                return Served::Fatal(code);
            }
        }
        match self.mark_all() {
            Ok(()) => {
                self.tell_progress();
                served
            }
            Err(code) => Served::Fatal(code),
        }
    }

    /// Carries a call out, or tells why not. The code of a device that has failed.
    fn answer(&mut self, words: &[u64; CALL_WORDS], device: &Device, stock: &mut Stock) -> Result<(), u32> {
        let Some((head, rest)) = decode(words) else {
            // No client writes such: nobody waits for it.
            return Ok(());
        };
        let Head { stream, number, .. } = head;
        if self.lanes[stream as usize].is_none() {
            let made = device.stream().map_err(|error| self.code_of(&error))?;
            self.lanes[stream as usize] = Some(Lane { stream: made, marked: 0, told: 0 });
        }
        // Numbers count on: others would make the word go back, or pass what has not.
        let lane = self.line.lane(stream);
        if number != lane.put() + 1 {
            self.line.tell(&Told { stream, number, last: number, trouble: Trouble::Malformed }, "");
            return Ok(());
        }
        // Asked once a turn: a device that is faster than this process is idle behind each word.
        let was_idle = std::mem::take(&mut self.is_first) && lane.put() <= lane.told(&self.watch);
        let carried = match head.task {
            Task::Load => {
                // That takes the host's time, which is no kernel's.
                self.mark(stream)?;
                stock.load(device, head.module, self.tenant).map(|()| None)
            }
            Task::Launch => self.launch(&head, rest, device, stock).map(Some),
        };
        // What was called before may have failed meanwhile: then that is why, whatever this one was answered with.
        if let Err((trouble, _)) = &carried
            && let Some(code) = self.fault().or(trouble.fault())
        {
            return Err(code);
        }
        self.line.lane(stream).begin(number, carried.as_ref().ok().and_then(Option::clone));
        // Before any word is written behind it: who sees that word, and was told nothing, takes the call for one that went well.
        if let Err((trouble, text)) = carried {
            self.line.tell(&Told { stream, number, last: number, trouble }, &text);
        }
        // The first of many has a word of its own: if it fails, it is known to be the one.
        if head.task == Task::Load || was_idle {
            self.mark(stream)?;
        }
        Ok(())
    }

    /// Puts a kernel into its stream: its name.
    fn launch(&mut self, head: &Head, rest: Rest<'_>, device: &Device, stock: &mut Stock) -> Result<Arc<str>, Lack> {
        // All that the call needs is there before any of it is used.
        stock.load(device, head.module, self.tenant)?;
        let is_ready = self.check(head, rest, stock)?;
        if !is_ready {
            self.await_points(head, rest, stock)?;
        }
        self.await_streams(head, rest, stock)?;
        let Loaded { kernel, signature } = stock.kernel(head.module, head.kernel).expect("it was found");
        let name = signature.name.clone();
        let mut actuals = Vec::with_capacity(rest.count as usize);
        let mut left = rest;
        while let (true, Some(one)) = (actuals.len() < rest.count as usize, left.next()) {
            let actual = match one {
                Given::Number { parameter, word } => {
                    DynArg::bytes(std::slice::from_ref(word), parameter.bytes as usize)
                }
                Given::Bytes { bytes, words } => DynArg::bytes(words, bytes as usize),
                Given::Lease { lease, offset_bytes } => {
                    // SAFETY: this thread alone puts work in with what is borrowed, and `stock` is its own until the launch has
                    // returned. What a kernel writes is its tenant's to order.
                    unsafe { DynArg::memory_shared(&*stock.borrowed(lease).lease, offset_bytes as usize) }
                }
            };
            actuals.push(actual.expect("sizes and bounds were looked at"));
        }
        let grid = Grid { blocks: head.blocks, threads: head.threads, shared_bytes: head.shared_bytes };
        let lane = self.lanes[head.stream as usize].as_ref().expect("it was made");
        lane.stream.launch(kernel, grid, &mut actuals[..]).map_err(|error| (of_launch(&error), String::new()))?;
        drop(actuals);
        let word = self.line.lane(head.stream).word();
        leases(rest).for_each(|lease| stock.note_use(lease, word, head.number));
        Ok(name)
    }

    /// Notes that a call waits for calls of other streams that use the same memory: the device orders them.
    fn await_streams(&mut self, head: &Head, rest: Rest<'_>, stock: &Stock) -> Result<(), Lack> {
        let own = self.line.lane(head.stream).word();
        for lease in leases(rest) {
            for (word, value) in stock.borrowed(lease).uses_beside(own) {
                if self.watch.done(word) >= value {
                    continue;
                }
                // What waits is the first behind a mark, so that it is known to wait, and not to run.
                self.mark(head.stream).map_err(|code| (faulted(code), String::new()))?;
                self.line.lane(head.stream).gate_beside(head.number, word, value);
            }
        }
        Ok(())
    }

    /// Holds the arguments of a call against the kernel's parameters, and borrows what is leased. Whether nothing has to be waited
    /// for.
    fn check(&self, head: &Head, rest: Rest<'_>, stock: &mut Stock) -> Result<bool, Lack> {
        let refused = |trouble| Err((trouble, String::new()));
        let Some(loaded) = stock.kernel(head.module, head.kernel) else { return refused(Trouble::NoKernel) };
        let parameters = loaded.signature.parameters.clone();
        if parameters.len() != rest.count as usize {
            return refused(Trouble::ArgumentCount { wanted: parameters.len() as u32, given: rest.count });
        }
        let lane = self.lanes[head.stream as usize].as_ref().expect("it was made");
        let mut is_ready = rest.points().next().is_none();
        let mut left = rest;
        for (argument, parameter) in (1..).zip(parameters.iter()) {
            let Some(one) = left.next() else { return refused(Trouble::Malformed) };
            let fits = match one {
                Given::Number { parameter: number, .. } => parameter.takes(&number),
                Given::Bytes { bytes, .. } => parameter.kind == Kind::Bytes && parameter.bytes == bytes,
                Given::Lease { .. } => parameter.takes_address(),
            };
            if !fits {
                return refused(Trouble::ArgumentKind { argument });
            }
            let Given::Lease { lease, offset_bytes } = one else { continue };
            stock.borrow(&lane.stream, lease, self.tenant).map_err(|(trouble, text)| match trouble {
                Trouble::NotBorrowed { refusal, .. } => (Trouble::NotBorrowed { argument, refusal }, text),
                trouble => (trouble, text),
            })?;
            let borrowed = stock.borrowed(lease);
            let bytes = borrowed.lease.len() as u64;
            if offset_bytes >= bytes {
                return refused(Trouble::OutsideOfLease { argument, offset: offset_bytes, bytes });
            }
            is_ready &= borrowed.ready.value == 0;
        }
        Ok(is_ready)
    }

    /// Lets the stream wait for what the call is to come after.
    fn await_points(&mut self, head: &Head, rest: Rest<'_>, stock: &mut Stock) -> Result<(), Lack> {
        for point in rest.points() {
            self.await_point(head, point, stock)?;
        }
        let mut left = rest;
        for _ in 0..rest.count {
            if let Some(Given::Lease { lease, .. }) = left.next()
                && self.await_point(head, stock.borrowed(lease).ready, stock)?
            {
                stock.set_ready(lease);
            }
        }
        Ok(())
    }

    /// Lets the stream wait for a point. Whether it has passed.
    fn await_point(&mut self, head: &Head, point: Point, stock: &Stock) -> Result<bool, Lack> {
        if point.value == 0 {
            return Ok(true);
        }
        let clock = match stock.broker().clock(point.tenant) {
            Ok(clock) => clock,
            // All of its work has passed.
            Err(Error::Link(LinkError::Refused { refusal: Refusal::NoTenant, .. })) => return Ok(true),
            Err(_) => return Err((Trouble::Point, String::new())),
        };
        let (word, value) = (point.word as usize, point.value);
        if word >= clock.len() {
            return Err((Trouble::Point, String::new()));
        }
        if clock.read(word).wrapping_sub(value).cast_signed() >= 0 {
            return Ok(true);
        }
        // What waits is the first behind a mark, so that it is known to wait, and not to run.
        self.mark(head.stream).map_err(|code| (faulted(code), String::new()))?;
        let lane = self.lanes[head.stream as usize].as_ref().expect("it was made");
        let waiting = lane.stream.wait_word(&clock, word, value);
        let gate = || self.line.lane(head.stream).gate(&self.watch, &lane.stream, head.number);
        waiting.and_then(|()| gate()).map_err(|error| (of_launch(&error), String::new()))?;
        Ok(false)
    }

    /// Has a stream write its word behind the last call.
    fn mark(&mut self, stream: u32) -> Result<(), u32> {
        let (lane, known) = (self.line.lane(stream), &mut self.lanes[stream as usize]);
        let Some(known) = known.as_mut().filter(|known| known.marked < lane.put()) else { return Ok(()) };
        lane.mark(lane.put());
        let written = self.watch.write(&known.stream, lane.word(), lane.put());
        known.marked = lane.put();
        written.map_err(|error| self.code_of(&error))
    }

    fn mark_all(&mut self) -> Result<(), u32> {
        (0..STREAMS).try_for_each(|stream| self.mark(stream))
    }

    /// Wakes the tenant if it sleeps and its calls have come further.
    fn tell_progress(&mut self) {
        let mut has_moved = false;
        for (stream, lane) in (0..).zip(&mut self.lanes) {
            let Some(lane) = lane else { continue };
            let told = self.line.lane(stream).told(&self.watch);
            has_moved |= std::mem::replace(&mut lane.told, told) != told;
        }
        if has_moved && self.calls.is_tenant_asleep() {
            self.calls.rouse();
        }
    }
}

/// The leases among the arguments of a call.
fn leases(rest: Rest<'_>) -> impl Iterator<Item = Id> {
    let mut left = rest;
    (0..rest.count).filter_map(move |_| match left.next() {
        Some(Given::Lease { lease, .. }) => Some(lease),
        _ => None,
    })
}

/// Why a launch was refused: its shape, or the device.
fn of_launch(error: &freehold::Error) -> Trouble {
    match error {
        freehold::Error::EmptyGrid | freehold::Error::ShapeTooLarge { .. } => Trouble::Shape,
        freehold::Error::Call(call)
            if [CUerror::INVALID_VALUE, CUerror::LAUNCH_OUT_OF_RESOURCES]
                .iter()
                .any(|&code| call.code == code.into()) =>
        {
            Trouble::Shape
        }
        error => of_device(error),
    }
}
