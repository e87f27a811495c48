//! Messages between ranks of one machine and device: the sender copies a piece into memory that both have, and the receiver copies it out;
//! only words about it go through MPI. Nothing of it is in the host's memory.

use std::collections::VecDeque;

use freehold::Event;

use super::refused;
use crate::error::{Error, Failed, Result};
use crate::ranks::Ranks;
use crate::raw::{Memory, Pending};

/// What a receiver answers to an envelope.
const COME: u64 = 1;
const STAY: u64 = 0;

/// Pieces that a receiver copies at once.
const DEPTH: usize = 4;

/// A word on its way, and the place that it lies in.
struct Word {
    place: Box<[u64; 1]>,
    pending: Pending,
}

/// Where words of a message go.
#[derive(Clone, Copy)]
struct Line {
    peer: i32,
    number: u32,
}

impl Line {
    /// From the sender to the receiver if `is_piece`, else back.
    fn say(self, word: u64, is_piece: bool, title: &Failed, ranks: &Ranks) -> Result<Word> {
        let place = Box::new([word]);
        let (comm, tag) = (if is_piece { ranks.chunks } else { ranks.answers }, Ranks::tag_of(self.number));
        // SAFETY: the box goes with the call until it is complete, and nobody changes it.
        let pending = unsafe { ranks.library.isend(comm, Memory::of(&place[..]), self.peer, tag) };
        Ok(Word { place, pending: pending.map_err(|code| refused(title.clone(), code))? })
    }

    fn listen(self, is_piece: bool, title: &Failed, ranks: &Ranks) -> Result<Word> {
        let place = Box::new([0]);
        let (comm, tag) = (if is_piece { ranks.chunks } else { ranks.answers }, Ranks::tag_of(self.number));
        // SAFETY: the box goes with the call until it is complete, and nobody reads it before.
        let pending = unsafe { ranks.library.irecv(comm, Memory::of(&place[..]), self.peer, tag) };
        Ok(Word { place, pending: pending.map_err(|code| refused(title.clone(), code))? })
    }
}

impl Word {
    /// The word, when it has come, or has gone.
    fn test(&mut self, title: &Failed, ranks: &Ranks) -> Result<Option<u64>> {
        let tested = ranks.library.test(&mut self.pending).map_err(|code| refused(title.clone(), code))?;
        Ok(tested.map(|_| self.place[0]))
    }

    fn give_up(self, ranks: &Ranks) {
        if !ranks.library.cancel(self.pending) {
            std::mem::forget(self.place);
        }
    }
}

/// The sender's side, behind its envelope.
pub(super) struct Giving {
    line: Line,
    has_come: bool,
    /// How many bytes have a slot.
    taken: usize,
    pieces: VecDeque<Given>,
    /// The next answer.
    answer: Option<Word>,
    said: Vec<Word>,
    is_over: bool,
}

struct Given {
    slot: usize,
    bytes: usize,
    /// None when the receiver was told.
    copying: Option<Event>,
}

impl Giving {
    pub(super) fn new(peer: i32, number: u32) -> Self {
        let (pieces, said) = (VecDeque::new(), Vec::new());
        Self { line: Line { peer, number }, has_come: false, taken: 0, pieces, answer: None, said, is_over: false }
    }

    /// Goes on: whether all is with the receiver.
    pub(super) fn advance(&mut self, memory: Memory, title: &Failed, ranks: &Ranks) -> Result<bool> {
        self.hear(memory, title, ranks)?;
        while self.has_come && self.taken < memory.bytes {
            let Some((slot, address)) = ranks.neighbours.take_slot() else { break };
            let bytes = ranks.neighbours.slot_bytes.min(memory.bytes - self.taken);
            // SAFETY: the memory is lent, and all before that has passed; the slot is this message's until it is answered.
            let copied = unsafe { ranks.copies.within(memory.address + self.taken as u64, address, bytes) };
            let copying = Some(copied.inspect_err(|_| ranks.neighbours.give_back(slot))?);
            self.pieces.push_back(Given { slot, bytes, copying });
            self.taken += bytes;
        }
        for piece in &mut self.pieces {
            let Some(copying) = &piece.copying else { continue };
            if !copying.has_passed()? {
                break;
            }
            piece.copying = None;
            let word = (piece.slot as u64) << 32 | piece.bytes as u64;
            self.said.push(self.line.say(word, true, title, ranks)?);
        }
        let are_gone = are_gone(&mut self.said, title, ranks)?;
        Ok(self.is_over && are_gone)
    }

    /// Hears whether the receiver takes the message, and then which pieces it has taken.
    fn hear(&mut self, memory: Memory, title: &Failed, ranks: &Ranks) -> Result<()> {
        while !self.is_over {
            let answer = match &mut self.answer {
                Some(answer) => answer,
                none => none.insert(self.line.listen(false, title, ranks)?),
            };
            let Some(word) = answer.test(title, ranks)? else { return Ok(()) };
            self.answer = None;
            if !self.has_come {
                self.has_come = word == COME;
                self.is_over = word == STAY;
            } else if let Some(piece) = self.pieces.pop_front() {
                ranks.neighbours.give_back(piece.slot);
            }
            self.is_over |= self.has_come && self.taken == memory.bytes && self.pieces.is_empty();
        }
        Ok(())
    }

    pub(super) fn give_up(self, ranks: &Ranks) {
        self.said.into_iter().chain(self.answer).for_each(|word| word.give_up(ranks));
        if let Err(error) = ranks.copies.settle() {
            ranks.trouble(error);
        }
        // The receiver has died, or never reads them.
        self.pieces.into_iter().for_each(|piece| ranks.neighbours.give_back(piece.slot));
    }
}

/// The receiver's side, behind the envelope.
pub(super) struct Taking {
    line: Line,
    bytes: usize,
    has_answered: bool,
    /// How many bytes are in copies.
    taken: usize,
    listening: Option<Word>,
    copying: VecDeque<Event>,
    said: Vec<Word>,
}

impl Taking {
    pub(super) fn new(peer: i32, number: u32, bytes: usize) -> Self {
        let (copying, said) = (VecDeque::new(), Vec::new());
        Self { line: Line { peer, number }, bytes, has_answered: false, taken: 0, listening: None, copying, said }
    }

    /// Tells the sender that there is no room. Whether it was told.
    pub(super) fn refuse(&mut self, title: &Failed, ranks: &Ranks) -> Result<bool> {
        if !self.has_answered {
            self.has_answered = true;
            self.said.push(self.line.say(STAY, false, title, ranks)?);
        }
        are_gone(&mut self.said, title, ranks)
    }

    /// Goes on, into memory that is ready: whether all is there.
    pub(super) fn advance(&mut self, memory: Memory, title: &Failed, ranks: &Ranks) -> Result<bool> {
        if !self.has_answered {
            self.has_answered = true;
            self.said.push(self.line.say(COME, false, title, ranks)?);
        }
        while self.taken < self.bytes && self.copying.len() < DEPTH {
            let listening = match &mut self.listening {
                Some(listening) => listening,
                none => none.insert(self.line.listen(true, title, ranks)?),
            };
            let Some(word) = listening.test(title, ranks)? else { break };
            self.listening = None;
            let (slot, bytes) = ((word >> 32) as usize, word as u32 as usize);
            let from = ranks.neighbours.slot_of(self.line.peer, slot).filter(|_| bytes <= self.bytes - self.taken);
            let Some(from) = from else {
                let said = "the sender told of memory that it does not share".into();
                return Err(Error::Failed(Box::new(Failed { said, ..title.clone() })));
            };
            // SAFETY: the memory is lent, and all before that has passed; the slot is the message's until it is answered, and what
            // the sender copied is there, as it said.
            let copied = unsafe { ranks.copies.within(from, memory.address + self.taken as u64, bytes) };
            self.copying.push_back(copied?);
            self.taken += bytes;
        }
        while let Some(event) = self.copying.front() {
            if !event.has_passed()? {
                break;
            }
            self.copying.pop_front();
            self.said.push(self.line.say(COME, false, title, ranks)?);
        }
        let are_gone = are_gone(&mut self.said, title, ranks)?;
        Ok(are_gone && self.taken == self.bytes && self.copying.is_empty())
    }

    pub(super) fn give_up(self, ranks: &Ranks) {
        self.said.into_iter().chain(self.listening).for_each(|word| word.give_up(ranks));
        if let Err(error) = ranks.copies.settle() {
            ranks.trouble(error);
        }
    }
}

/// Forgets the words that have gone out: whether all have.
fn are_gone(said: &mut Vec<Word>, title: &Failed, ranks: &Ranks) -> Result<bool> {
    let mut outcome = Ok(());
    said.retain_mut(|word| match word.test(title, ranks) {
        Ok(gone) => gone.is_none(),
        Err(error) => {
            outcome = Err(error);
            false
        }
    });
    outcome.map(|()| said.is_empty())
}
