//! Sending: straight from device memory, through pinned buffers, or to a receiver in this process.

use std::collections::VecDeque;
use std::sync::Arc;

use freehold::Lent;

use super::envelope::{ENVELOPE_BYTES, Envelope, Means};
use super::shared::Giving;
use super::{Flight, Order, Received, Stage, Work, ground, refused};
use crate::copies::Move;
use crate::error::{Failed, Result};
use crate::ranks::{Handover, Ranks, Route};
use crate::raw::{Comm, Memory, Pending};

/// How many buffers of one message are on their way.
const DEPTH: usize = 4;

/// As above, before the receiver is known to take any: messages that nobody receives yet fill no memory.
const DEPTH_UNMET: usize = 2;

/// A message to a rank.
pub(crate) struct Send {
    comm: Comm,
    to: i32,
    tag: i32,
    memory: Memory,
    /// None: there is nothing to send, all of it was copied, or somebody else keeps it.
    lent: Option<Lent>,
    state: State,
}

enum State {
    /// For the work before it.
    Waiting,
    Direct(Pending),
    Staged(Staged),
    Local(Local),
    Shared(Shared),
    Over,
}

/// Bytes that go through buffers.
struct Staged {
    number: u32,
    /// How many bytes have a buffer, the envelope being the first.
    taken: Option<usize>,
    flights: VecDeque<Flight>,
    is_posted: bool,
    /// Whether the receiver has taken any of the rest.
    has_met: bool,
}

/// Bytes for a receiver that has this rank's memory.
struct Shared {
    giving: Giving,
    envelope: Option<(Box<[u8; ENVELOPE_BYTES]>, Pending)>,
}

/// Bytes for a receiver in this process.
struct Local {
    handover: Arc<Handover>,
    envelope: Option<(Box<[u8; ENVELOPE_BYTES]>, Pending)>,
}

impl Send {
    pub(crate) fn new(comm: Comm, to: i32, tag: i32, lent: Option<Lent>) -> Self {
        let memory = lent
            .as_ref()
            .map_or(Memory { address: 0, bytes: 0 }, |lent| Memory { address: lent.address(), bytes: lent.bytes() });
        Self { comm, to, tag, memory, lent, state: State::Waiting }
    }

    /// Of memory that somebody else keeps until this is over.
    pub(crate) fn of(comm: Comm, to: i32, tag: i32, memory: Memory) -> Self {
        Self { comm, to, tag, memory, lent: None, state: State::Waiting }
    }

    fn begin(&mut self, ranks: &Ranks) -> Result<State> {
        match ranks.route(self.to) {
            Route::Direct => {
                // SAFETY: the library takes device memory here; it is lent until the call is complete.
                let pending = unsafe { ranks.library.isend(self.comm, self.memory, self.to, self.tag) };
                Ok(State::Direct(pending.map_err(|code| refused(self.title(), code))?))
            }
            Route::Local => {
                let (number, handover) = ranks.hand_over(self.memory);
                let envelope = Some(self.post(Means::Local, number, ranks)?);
                Ok(State::Local(Local { handover, envelope }))
            }
            Route::Shared => {
                let number = ranks.number();
                let envelope = Some(self.post(Means::Shared, number, ranks)?);
                Ok(State::Shared(Shared { giving: Giving::new(self.to, number), envelope }))
            }
            Route::Staged => Ok(State::Staged(Staged {
                number: ranks.number(),
                taken: None,
                flights: VecDeque::new(),
                is_posted: false,
                has_met: false,
            })),
        }
    }

    /// Sends an envelope alone.
    fn post(&self, means: Means, number: u32, ranks: &Ranks) -> Result<(Box<[u8; ENVELOPE_BYTES]>, Pending)> {
        let envelope = Box::new(Envelope { means, number, bytes: self.memory.bytes as u64 }.encode());
        // SAFETY: the box is kept until the call is complete, and nobody changes it.
        let pending = unsafe { ranks.library.isend(self.comm, Memory::of(&envelope[..]), self.to, self.tag) };
        Ok((envelope, pending.map_err(|code| refused(self.title(), code))?))
    }

    fn advance_staged(&mut self, ranks: &Ranks) -> Result<bool> {
        let title = self.title();
        let State::Staged(staged) = &mut self.state else { unreachable!("only staged sends come here") };
        staged.load(self.memory, ranks)?;
        let (comm, tag) = (self.comm, self.tag);
        staged.post((comm, self.to, tag), &title, ranks)?;
        while let Some(Flight { stage: Stage::Moving(pending), start, .. }) = staged.flights.front_mut() {
            if ranks.library.test(pending).map_err(|code| refused(title.clone(), code))?.is_none() {
                break;
            }
            staged.has_met |= *start > 0;
            staged.flights.pop_front();
        }
        let is_taken = staged.taken == Some(self.memory.bytes);
        if is_taken && !staged.flights.iter().any(|flight| matches!(flight.stage, Stage::Copying(_))) {
            // What is to be sent is in buffers: the block may be written.
            if let Some(lent) = self.lent.take() {
                lent.done();
            }
        }
        Ok(is_taken && staged.flights.is_empty())
    }
}

impl Staged {
    /// Begins to copy what there are buffers for.
    fn load(&mut self, memory: Memory, ranks: &Ranks) -> Result<()> {
        let depth = if self.has_met { DEPTH } else { DEPTH_UNMET };
        while self.flights.len() < depth {
            let (buffer_bytes, start, bytes, at) = match self.taken {
                None => {
                    let bytes = memory.bytes.min(ranks.settings.eager_bytes);
                    (ENVELOPE_BYTES + ranks.settings.eager_bytes, 0, bytes, ENVELOPE_BYTES)
                }
                Some(taken) if taken < memory.bytes => {
                    let chunk_bytes = ranks.settings.chunk_bytes;
                    (chunk_bytes, taken, chunk_bytes.min(memory.bytes - taken), 0)
                }
                Some(_) => break,
            };
            let mut buffer = ranks.copies.buffer(buffer_bytes)?;
            if self.taken.is_none() {
                let envelope = Envelope { means: Means::Staged, number: self.number, bytes: memory.bytes as u64 };
                buffer.write(&envelope.encode());
            }
            let stage = if bytes == 0 {
                Stage::Ready
            } else {
                let from = Move { device: memory.address + start as u64, at, bytes };
                // SAFETY: the memory is lent, and all before that has passed; the flight keeps the buffer, and the transfer the
                // memory.
                Stage::Copying(unsafe { ranks.copies.to_host(&mut buffer, &[from]) }?)
            };
            self.flights.push_back(Flight { buffer, start, bytes: at + bytes, stage });
            self.taken = Some(start + bytes);
        }
        Ok(())
    }

    /// Sends what has been copied, in its order.
    fn post(&mut self, (comm, to, tag): (Comm, i32, i32), title: &Failed, ranks: &Ranks) -> Result<()> {
        for flight in &mut self.flights {
            let is_copied = match &flight.stage {
                Stage::Moving(_) => continue,
                Stage::Ready => true,
                Stage::Copying(event) => event.has_passed()?,
            };
            if !is_copied {
                break;
            }
            flight.stage = Stage::Ready;
            let memory = flight.buffer.memory(flight.bytes);
            let (comm, tag) = if self.is_posted { (ranks.chunks, Ranks::tag_of(self.number)) } else { (comm, tag) };
            // SAFETY: the flight keeps the buffer until the call is complete; no copy writes it any more.
            let pending = unsafe { ranks.library.isend(comm, memory, to, tag) };
            flight.stage = Stage::Moving(pending.map_err(|code| refused(title.clone(), code))?);
            self.is_posted = true;
        }
        Ok(())
    }
}

impl Work for Send {
    fn order(&self) -> Order {
        Order::Send { to: self.to }
    }

    fn is_posted(&self) -> bool {
        match &self.state {
            State::Waiting => false,
            State::Staged(staged) => staged.is_posted,
            State::Direct(_) | State::Local(_) | State::Shared(_) | State::Over => true,
        }
    }

    fn advance(&mut self, ranks: &Ranks) -> Result<Option<Received>> {
        if matches!(self.state, State::Waiting) {
            if let Some(lent) = &self.lent
                && !lent.is_ready()?
            {
                return Ok(None);
            }
            self.state = self.begin(ranks)?;
        }
        let title = self.title();
        let is_over = match &mut self.state {
            State::Direct(pending) => ranks.library.test(pending).map_err(|code| refused(title, code))?.is_some(),
            State::Staged(_) => self.advance_staged(ranks)?,
            State::Local(local) => {
                if let Some((_, pending)) = &mut local.envelope
                    && ranks.library.test(pending).map_err(|code| refused(title, code))?.is_some()
                {
                    local.envelope = None;
                }
                local.envelope.is_none() && local.handover.is_over()
            }
            State::Shared(shared) => {
                if let Some((_, pending)) = &mut shared.envelope
                    && ranks.library.test(pending).map_err(|code| refused(title.clone(), code))?.is_some()
                {
                    shared.envelope = None;
                }
                shared.giving.advance(self.memory, &title, ranks)? && shared.envelope.is_none()
            }
            State::Waiting | State::Over => unreachable!("it began, and is not asked after its end"),
        };
        if !is_over {
            return Ok(None);
        }
        self.state = State::Over;
        if let Some(lent) = self.lent.take() {
            lent.done();
        }
        Ok(Some(Received::NOTHING))
    }

    fn lacks(&self, ranks: &Ranks) -> Option<i32> {
        ranks.watch.has_died(self.to).then_some(self.to)
    }

    fn title(&self) -> Failed {
        let (rank, bytes) = (Some(self.to), self.memory.bytes as u64);
        Failed { what: "sending", rank, tag: Some(self.tag), bytes, said: Box::default() }
    }

    fn give_up(&mut self, ranks: &Ranks) {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Waiting | State::Over => {}
            State::Direct(pending) => {
                // The library reads what it may not have read yet; it holds what it held.
                ranks.library.cancel(pending);
            }
            State::Staged(mut staged) => ground(&mut staged.flights, ranks),
            State::Local(local) => {
                if let Some((envelope, pending)) = local.envelope
                    && !ranks.library.cancel(pending)
                {
                    std::mem::forget(envelope);
                }
                local.handover.withdraw();
            }
            State::Shared(shared) => {
                if let Some((envelope, pending)) = shared.envelope
                    && !ranks.library.cancel(pending)
                {
                    std::mem::forget(envelope);
                }
                shared.giving.give_up(ranks);
            }
        }
        // The block holds what it held.
        if let Some(lent) = self.lent.take() {
            lent.done();
        }
    }
}
