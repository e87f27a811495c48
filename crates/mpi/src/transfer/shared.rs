//! Messages between ranks of one machine: the sender copies a piece into memory that both have, and the receiver copies it out; only words
//! about it go through MPI. Between ranks of one device nothing of it is in the host's memory.

use std::collections::VecDeque;

use freehold::Event;

use super::line::{COME, End, Line, STAY};
use crate::error::{Error, Failed, Result};
use crate::neighbours::Ground;
use crate::ranks::Ranks;
use crate::raw::Memory;

/// Pieces that a receiver copies at once.
const DEPTH: usize = 4;

/// The sender's side, behind its envelope.
pub(super) struct Giving {
    line: Line,
    ground: Ground,
    has_come: bool,
    /// How many bytes have a slot.
    taken: usize,
    pieces: VecDeque<Given>,
    is_over: bool,
    /// Whether the receiver has given up behind its answer: what was said to it may lie there.
    is_cut_off: bool,
}

struct Given {
    slot: usize,
    bytes: usize,
    /// None when the receiver was told.
    copying: Option<Event>,
}

impl Giving {
    pub(super) fn new(peer: i32, tag: i32, ground: Ground) -> Self {
        let line = Line::new(peer, tag, End::Sender);
        Self { line, ground, has_come: false, taken: 0, pieces: VecDeque::new(), is_over: false, is_cut_off: false }
    }

    /// Goes on: whether all is with the receiver.
    pub(super) fn advance(&mut self, memory: Memory, title: &Failed, ranks: &Ranks) -> Result<bool> {
        self.hear(memory, title, ranks)?;
        let neighbours = ranks.neighbours(self.ground);
        while self.has_come && self.taken < memory.bytes {
            let Some((slot, place)) = neighbours.take_slot() else { break };
            let bytes = neighbours.slot_bytes().min(memory.bytes - self.taken);
            // SAFETY: the memory is lent, and all before that has passed; the slot is this message's until it is answered.
            let copied = unsafe { ranks.copies.put_into(memory.address + self.taken as u64, place, bytes) };
            let copying = Some(copied.inspect_err(|_| neighbours.give_back(slot))?);
            self.pieces.push_back(Given { slot, bytes, copying });
            self.taken += bytes;
        }
        for piece in &mut self.pieces {
            let Some(copying) = &piece.copying else { continue };
            if !copying.is_complete()? {
                break;
            }
            piece.copying = None;
            self.line.say((piece.slot as u64) << 32 | piece.bytes as u64, title, ranks)?;
        }
        let are_gone = self.line.are_gone(title, ranks)?;
        Ok(self.is_over && are_gone)
    }

    /// Hears whether the receiver takes the message, and then which pieces it has taken.
    fn hear(&mut self, memory: Memory, title: &Failed, ranks: &Ranks) -> Result<()> {
        while !self.is_over {
            let Some(word) = self.line.hear(title, ranks)? else { return Ok(()) };
            if word == STAY {
                (self.is_over, self.is_cut_off) = (true, self.has_come);
                ranks.settle();
                let pieces = self.pieces.drain(..);
                pieces.for_each(|piece| ranks.neighbours(self.ground).give_back(piece.slot));
                return Ok(());
            }
            if !self.has_come {
                self.has_come = true;
            } else if let Some(piece) = self.pieces.pop_front() {
                ranks.neighbours(self.ground).give_back(piece.slot);
            }
            self.is_over |= self.has_come && self.taken == memory.bytes && self.pieces.is_empty();
        }
        Ok(())
    }

    /// Whether its number is not to be used again.
    pub(super) fn is_cut_off(&self) -> bool {
        self.is_cut_off
    }

    pub(super) fn give_up(self, ranks: &Ranks) {
        let has_died = ranks.watch.has_died(self.line.peer);
        self.line.give_up(ranks);
        ranks.settle();
        // One that lives may read what it was told of, whenever it likes: those slots are lost.
        let unread = self.pieces.into_iter().filter(|piece| has_died || piece.copying.is_some());
        unread.for_each(|piece| ranks.neighbours(self.ground).give_back(piece.slot));
    }
}

/// The receiver's side, behind the envelope.
pub(super) struct Taking {
    line: Line,
    ground: Ground,
    bytes: usize,
    has_answered: bool,
    /// How many bytes are in copies.
    taken: usize,
    copying: VecDeque<Event>,
}

impl Taking {
    pub(super) fn new(peer: i32, tag: i32, ground: Ground, bytes: usize) -> Self {
        let line = Line::new(peer, tag, End::Receiver);
        Self { line, ground, bytes, has_answered: false, taken: 0, copying: VecDeque::new() }
    }

    /// Goes on, into memory that is ready: whether all is there.
    pub(super) fn advance(&mut self, memory: Memory, title: &Failed, ranks: &Ranks) -> Result<bool> {
        if !self.has_answered {
            self.has_answered = true;
            self.line.say(COME, title, ranks)?;
        }
        while self.taken < self.bytes && self.copying.len() < DEPTH {
            let Some(word) = self.line.hear(title, ranks)? else { break };
            let (slot, bytes) = ((word >> 32) as usize, word as u32 as usize);
            let neighbours = ranks.neighbours(self.ground);
            let bytes_max = neighbours.slot_bytes().min(self.bytes - self.taken);
            let from = neighbours.slot_of(self.line.peer, slot).filter(|_| bytes <= bytes_max);
            let Some(from) = from else {
                let said = "the sender told of memory that it does not share".into();
                return Err(Error::Failed(Box::new(Failed { said, ..title.clone() })));
            };
            // SAFETY: the memory is lent, and all before that has passed; the slot is the message's until it is answered, and what
            // the sender copied is there, as it said.
            let copied = unsafe { ranks.copies.take_from(from, memory.address + self.taken as u64, bytes) };
            self.copying.push_back(copied?);
            self.taken += bytes;
        }
        while let Some(event) = self.copying.front() {
            if !event.is_complete()? {
                break;
            }
            self.copying.pop_front();
            self.line.say(COME, title, ranks)?;
        }
        let are_gone = self.line.are_gone(title, ranks)?;
        Ok(are_gone && self.taken == self.bytes && self.copying.is_empty())
    }

    /// The sender hears of it, and gives its slots to others.
    pub(super) fn give_up(self, title: &Failed, ranks: &Ranks) {
        ranks.settle();
        self.line.leave(STAY, title, ranks);
    }
}
