//! Messages that are longer than what goes with an envelope, through pinned buffers: a chunk is copied to the host, sent, and copied to the
//! device, and several are on their way. The receiver says when it is to come, so that few messages have buffers at once.

use std::collections::VecDeque;

use freehold::Event;

use super::line::{COME, End, Line};
use super::refused;
use crate::copies::{Buffer, Move};
use crate::error::{Error, Failed, Result};
use crate::ranks::{Pass, Ranks};
use crate::raw::{Memory, Pending};

/// One buffer on its way.
struct Flight {
    buffer: Buffer,
    bytes: usize,
    stage: Stage,
}

enum Stage {
    Copying(Event),
    Moving(Pending),
}

/// Gives up what is on its way: copies first, for their buffers are used again.
fn ground(flights: VecDeque<Flight>, ranks: &Ranks) {
    ranks.settle();
    for flight in flights {
        if let Stage::Moving(pending) = flight.stage
            && !ranks.library.cancel(pending)
        {
            flight.buffer.abandon();
        }
    }
}

/// The sender's side, behind its envelope.
pub(super) struct Loading {
    line: Line,
    answer: Answer,
    /// How many bytes have a buffer, or had one.
    taken: usize,
    flights: VecDeque<Flight>,
    /// While it copies before it is known to be wanted.
    ahead: Option<Pass>,
    /// Whether the receiver has asked for every chunk: none that is under way is another message's of the same number later.
    is_asked: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Awaited,
    Come,
    Stay,
}

impl Loading {
    pub(super) fn new(peer: i32, tag: i32) -> Self {
        let line = Line::new(peer, tag, End::Sender);
        Self { line, answer: Answer::Awaited, taken: 0, flights: VecDeque::new(), ahead: None, is_asked: false }
    }

    /// Whether the message's memory is not read any more.
    pub(super) fn is_loaded(&self, memory: Memory) -> bool {
        let is_taken = self.taken == memory.bytes || self.answer == Answer::Stay;
        is_taken && !self.flights.iter().any(|flight| matches!(flight.stage, Stage::Copying(_)))
    }

    /// Goes on: whether all has been sent, or is not wanted.
    pub(super) fn advance(&mut self, memory: Memory, title: &Failed, ranks: &Ranks) -> Result<bool> {
        if self.answer == Answer::Awaited
            && let Some(word) = self.line.hear(title, ranks)?
        {
            self.answer = if word == COME { Answer::Come } else { Answer::Stay };
            self.ahead = None;
        }
        if self.answer == Answer::Come && !self.is_asked {
            self.is_asked = self.line.hear(title, ranks)?.is_some();
        }
        self.load(memory, ranks)?;
        self.post(title, ranks)?;
        self.land(title, ranks)?;
        let is_known = self.is_asked || self.answer == Answer::Stay;
        Ok(is_known && self.flights.is_empty() && self.is_loaded(memory))
    }

    /// Begins to copy what there are buffers for.
    fn load(&mut self, memory: Memory, ranks: &Ranks) -> Result<()> {
        let may_load = match self.answer {
            Answer::Come => true,
            Answer::Stay => false,
            Answer::Awaited => {
                self.ahead = self.ahead.take().or_else(|| ranks.ahead.pass());
                self.ahead.is_some()
            }
        };
        let chunk_bytes = ranks.settings.chunk_bytes;
        while may_load && self.flights.len() < ranks.settings.depth && self.taken < memory.bytes {
            let bytes = chunk_bytes.min(memory.bytes - self.taken);
            let mut buffer = ranks.copies.buffer(chunk_bytes)?;
            let from = Move { device: memory.address + self.taken as u64, at: 0, bytes };
            // SAFETY: the memory is lent, and all before that has passed; the flight keeps the buffer, and the transfer the
            // memory.
            let copying = unsafe { ranks.copies.to_host(&mut buffer, &[from]) }?;
            self.flights.push_back(Flight { buffer, bytes, stage: Stage::Copying(copying) });
            self.taken += bytes;
        }
        Ok(())
    }

    /// Sends what has been copied, in its order.
    fn post(&mut self, title: &Failed, ranks: &Ranks) -> Result<()> {
        if self.answer != Answer::Come {
            return Ok(());
        }
        for flight in &mut self.flights {
            let Stage::Copying(event) = &flight.stage else { continue };
            if !event.is_complete()? {
                break;
            }
            let memory = flight.buffer.memory(flight.bytes);
            // SAFETY: the flight keeps the buffer until the call is complete; no copy writes it any more.
            let pending = unsafe { ranks.library.isend(ranks.chunks, memory, self.line.peer, self.line.tag) };
            flight.stage = Stage::Moving(pending.map_err(|code| refused(title.clone(), code))?);
        }
        Ok(())
    }

    /// Lets go of what has been sent, or copied in vain.
    fn land(&mut self, title: &Failed, ranks: &Ranks) -> Result<()> {
        while let Some(flight) = self.flights.front_mut() {
            let is_over = match &mut flight.stage {
                Stage::Moving(pending) => {
                    ranks.library.test(pending).map_err(|code| refused(title.clone(), code))?.is_some()
                }
                Stage::Copying(event) => self.answer == Answer::Stay && event.is_complete()?,
            };
            if !is_over {
                return Ok(());
            }
            self.flights.pop_front();
        }
        Ok(())
    }

    pub(super) fn give_up(self, ranks: &Ranks) {
        self.line.give_up(ranks);
        ground(self.flights, ranks);
    }
}

/// The receiver's side, behind the envelope.
pub(super) struct Storing {
    line: Line,
    bytes: usize,
    /// How many bytes were asked for.
    asked: usize,
    flights: VecDeque<Flight>,
    /// Where they go on from, in the message.
    stored: usize,
    /// From when it is to come on.
    pass: Option<Pass>,
    /// Whether the sender was told that all was asked for.
    has_told: bool,
}

impl Storing {
    pub(super) fn new(peer: i32, tag: i32, bytes: usize) -> Self {
        let line = Line::new(peer, tag, End::Receiver);
        Self { line, bytes, asked: 0, flights: VecDeque::new(), stored: 0, pass: None, has_told: false }
    }

    /// Goes on, into memory that is ready: whether all is there.
    pub(super) fn advance(&mut self, memory: Memory, title: &Failed, ranks: &Ranks) -> Result<bool> {
        if self.pass.is_none() {
            let Some(pass) = ranks.arriving.pass() else { return Ok(false) };
            self.pass = Some(pass);
            // What comes finds a buffer.
            self.ask(title, ranks)?;
            self.line.say(COME, title, ranks)?;
        }
        self.store(memory, title, ranks)?;
        while let Some(Flight { stage: Stage::Copying(event), .. }) = self.flights.front() {
            if !event.is_complete()? {
                break;
            }
            self.flights.pop_front();
        }
        self.ask(title, ranks)?;
        if self.asked == self.bytes && !self.has_told {
            self.has_told = true;
            self.line.say(COME, title, ranks)?;
        }
        let are_gone = self.line.are_gone(title, ranks)?;
        Ok(are_gone && self.flights.is_empty() && self.has_told)
    }

    /// Asks for the chunks that there are buffers for.
    fn ask(&mut self, title: &Failed, ranks: &Ranks) -> Result<()> {
        let chunk_bytes = ranks.settings.chunk_bytes;
        while self.flights.len() < ranks.settings.depth && self.asked < self.bytes {
            let bytes = chunk_bytes.min(self.bytes - self.asked);
            let buffer = ranks.copies.buffer(chunk_bytes)?;
            let (peer, tag) = (self.line.peer, self.line.tag);
            // SAFETY: the flight keeps the buffer until the call is complete.
            let pending = unsafe { ranks.library.irecv(ranks.chunks, buffer.memory(bytes), peer, tag) };
            let pending = pending.map_err(|code| refused(title.clone(), code))?;
            self.flights.push_back(Flight { buffer, bytes, stage: Stage::Moving(pending) });
            self.asked += bytes;
        }
        Ok(())
    }

    /// Begins to copy what has come, in its order.
    fn store(&mut self, memory: Memory, title: &Failed, ranks: &Ranks) -> Result<()> {
        for flight in &mut self.flights {
            let Stage::Moving(pending) = &mut flight.stage else { continue };
            let Some(status) = ranks.library.test(pending).map_err(|code| refused(title.clone(), code))? else {
                return Ok(());
            };
            if status.bytes != flight.bytes {
                let said = format!("a chunk of {} bytes came for one of {}", status.bytes, flight.bytes).into();
                return Err(Error::Failed(Box::new(Failed { said, ..title.clone() })));
            }
            let to = Move { device: memory.address + self.stored as u64, at: 0, bytes: flight.bytes };
            // SAFETY: the memory is lent, all before that has passed, and the message fits; the flight keeps the buffer, and the
            // transfer the memory.
            flight.stage = Stage::Copying(unsafe { ranks.copies.to_device(&flight.buffer, &[to]) }?);
            self.stored += flight.bytes;
        }
        Ok(())
    }

    pub(super) fn give_up(self, ranks: &Ranks) {
        self.line.give_up(ranks);
        ground(self.flights, ranks);
    }
}
