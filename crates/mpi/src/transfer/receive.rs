//! Receiving: straight into device memory, through pinned buffers, or from a sender in this process.

use std::sync::Arc;

use freehold::{Event, ExternalAccess};

use super::chunks::Storing;
use super::envelope::{ENVELOPE_BYTES, Envelope, Means};
use super::line::{End, Line, STAY};
use super::shared::Taking;
use super::{Order, Received, Work, refused};
use crate::copies::{Buffer, Move};
use crate::error::{Error, Failed, Result};
use crate::ranks::{Handover, Ranks};
use crate::raw::{Comm, Memory, Pending, Status, any_source, any_tag};

/// A message from a rank, or from any.
pub(crate) struct Receive {
    comm: Comm,
    from: Option<i32>,
    tag: Option<i32>,
    memory: Memory,
    /// None: somebody else keeps it.
    lent: Option<ExternalAccess>,
    state: State,
}

enum State {
    Waiting,
    Direct(Pending),
    /// For the envelope.
    Listening(Buffer, Pending),
    /// All of it came with its envelope.
    Short(Received, Buffer, Option<Event>),
    Chunks(Received, Storing),
    Local(Received, Arc<Handover>, Option<Event>),
    Shared(Received, Taking),
    /// There is no room for it, and the sender hears of that.
    Refusing(Received, Line),
    Over,
}

impl Receive {
    pub(crate) fn new(comm: Comm, from: Option<i32>, tag: Option<i32>, lent: ExternalAccess) -> Self {
        let memory = Memory { address: lent.address(), bytes: lent.bytes() };
        Self { comm, from, tag, memory, lent: Some(lent), state: State::Waiting }
    }

    /// Into memory that somebody else keeps until this is over.
    pub(crate) fn of(comm: Comm, from: Option<i32>, tag: Option<i32>, memory: Memory) -> Self {
        Self { comm, from, tag, memory, lent: None, state: State::Waiting }
    }

    fn pattern(&self) -> (i32, i32) {
        (self.from.unwrap_or_else(any_source), self.tag.unwrap_or_else(any_tag))
    }

    fn begin(&mut self, ranks: &Ranks) -> Result<()> {
        let (from, tag) = self.pattern();
        if ranks.is_direct() {
            if is_ready(&self.lent)? {
                // SAFETY: the library takes device memory here; it is lent until the call is complete, and all before that has
                // passed.
                let pending = unsafe { ranks.library.irecv(self.comm, self.memory, from, tag) };
                self.state = State::Direct(pending.map_err(|code| refused(self.title(), code))?);
            }
            return Ok(());
        }
        let bytes = ENVELOPE_BYTES + ranks.settings.eager_bytes;
        let buffer = ranks.copies.buffer(bytes)?;
        // SAFETY: the state keeps the buffer until the call is complete.
        let pending = unsafe { ranks.library.irecv(self.comm, buffer.memory(bytes), from, tag) };
        self.state = State::Listening(buffer, pending.map_err(|code| refused(self.title(), code))?);
        Ok(())
    }

    /// What an envelope says of the rest.
    fn open(&mut self, status: Status, ranks: &Ranks) -> Result<()> {
        let State::Listening(buffer, _) = std::mem::replace(&mut self.state, State::Over) else {
            unreachable!("an envelope is listened for")
        };
        let envelope = (status.bytes >= ENVELOPE_BYTES).then(|| Envelope::decode(&buffer.read())).flatten();
        let Some(envelope) = envelope else {
            let said = "the message is of other code than this, or of another version".into();
            let (rank, tag) = (Some(status.source), Some(status.tag));
            return Err(Error::Failed(Box::new(Failed { rank, tag, said, ..self.title() })));
        };
        let bytes = usize::try_from(envelope.bytes).unwrap_or(usize::MAX);
        let whole = Received { source: status.source, tag: status.tag, bytes };
        let fits = bytes <= self.memory.bytes;
        let is_whole = status.bytes - ENVELOPE_BYTES == bytes;
        let line_tag = ranks.tag_of(envelope.number);
        self.state = match envelope.means {
            Means::Local => State::Local(whole, ranks.taken_over(envelope.number), None),
            Means::Staged if is_whole => State::Short(whole, buffer, None),
            Means::Staged | Means::Shared(_) if !fits => {
                let mut line = Line::new(status.source, line_tag, End::Receiver);
                line.say(STAY, &self.title(), ranks)?;
                State::Refusing(whole, line)
            }
            Means::Staged => State::Chunks(whole, Storing::new(status.source, line_tag, bytes)),
            Means::Shared(ground) => State::Shared(whole, Taking::new(status.source, line_tag, ground, bytes)),
        };
        Ok(())
    }

    fn truncated(&self, whole: Received) -> Error {
        let (bytes, room_bytes) = (Some(whole.bytes as u64), self.memory.bytes as u64);
        Error::Truncated { source_rank: whole.source, tag: whole.tag, bytes, room_bytes }
    }

    fn advance_short(&mut self, ranks: &Ranks) -> Result<Option<Received>> {
        let State::Short(whole, buffer, copying) = &mut self.state else {
            unreachable!("only short receipts come here")
        };
        let whole = *whole;
        if whole.bytes > self.memory.bytes {
            return Err(self.truncated(whole));
        }
        if copying.is_none() && whole.bytes > 0 {
            if !is_ready(&self.lent)? {
                return Ok(None);
            }
            let to = Move { device: self.memory.address, at: ENVELOPE_BYTES, bytes: whole.bytes };
            // SAFETY: the memory is lent, all before that has passed, and the message fits; the state keeps the buffer, and the
            // transfer the memory.
            *copying = Some(unsafe { ranks.copies.to_device(buffer, &[to]) }?);
        }
        let is_there = copying.as_ref().map_or(Ok(true), Event::is_complete)?;
        Ok(is_there.then_some(whole))
    }

    fn advance_local(&mut self, ranks: &Ranks) -> Result<Option<Received>> {
        let State::Local(whole, handover, copying) = &mut self.state else {
            unreachable!("only local receipts come here")
        };
        let whole = *whole;
        if whole.bytes > self.memory.bytes {
            handover.end();
            return Err(self.truncated(whole));
        }
        if copying.is_none() && whole.bytes > 0 {
            if !is_ready(&self.lent)? {
                return Ok(None);
            }
            let Some(from) = handover.begin() else {
                let title = Failed { said: "the sender has given up".into(), ..self.title() };
                return Err(Error::Failed(Box::new(title)));
            };
            // SAFETY: both memories are lent, the sender's until the handover ends; all before that has passed.
            let begun = unsafe { ranks.copies.within(from.address, self.memory.address, whole.bytes) };
            *copying = Some(begun.inspect_err(|_| handover.end())?);
        }
        if !copying.as_ref().map_or(Ok(true), Event::is_complete)? {
            return Ok(None);
        }
        handover.end();
        Ok(Some(whole))
    }

    /// What comes behind an envelope, into memory that is ready.
    fn advance_rest(&mut self, ranks: &Ranks) -> Result<Option<Received>> {
        if !is_ready(&self.lent)? {
            return Ok(None);
        }
        let (title, memory) = (self.title(), self.memory);
        let (whole, is_there) = match &mut self.state {
            State::Chunks(whole, storing) => (*whole, storing.advance(memory, &title, ranks)?),
            State::Shared(whole, taking) => (*whole, taking.advance(memory, &title, ranks)?),
            _ => unreachable!("only receipts in parts come here"),
        };
        Ok(is_there.then_some(whole))
    }

    fn refuse(&mut self, ranks: &Ranks) -> Result<Option<Received>> {
        let title = self.title();
        let State::Refusing(whole, line) = &mut self.state else { unreachable!("only what is refused comes here") };
        let whole = *whole;
        if line.are_gone(&title, ranks)? { Err(self.truncated(whole)) } else { Ok(None) }
    }

    /// The error of a message that came and did not fit.
    fn refused(&self, code: crate::raw::Code) -> Error {
        if !code.is_truncation {
            return refused(self.title(), code);
        }
        let (source_rank, tag) = (code.status.source, code.status.tag);
        let (source_rank, tag) = (self.from.unwrap_or(source_rank), self.tag.unwrap_or(tag));
        Error::Truncated { source_rank, tag, bytes: None, room_bytes: self.memory.bytes as u64 }
    }
}

fn is_ready(lent: &Option<ExternalAccess>) -> Result<bool> {
    lent.as_ref().map_or(Ok(true), |lent| Ok(lent.is_ready()?))
}

impl Work for Receive {
    fn order(&self) -> Order {
        Order::Receive { from: self.from }
    }

    fn is_posted(&self) -> bool {
        !matches!(self.state, State::Waiting)
    }

    fn advance(&mut self, ranks: &Ranks) -> Result<Option<Received>> {
        if matches!(self.state, State::Waiting) {
            self.begin(ranks)?;
        }
        if let State::Listening(_, pending) = &mut self.state {
            let status = ranks.library.test(pending);
            match status.map_err(|code| self.refused(code))? {
                None => return Ok(None),
                Some(status) => self.open(status, ranks)?,
            }
        }
        let received = match &mut self.state {
            State::Waiting => None,
            State::Direct(pending) => {
                let status = ranks.library.test(pending);
                let status = status.map_err(|code| self.refused(code))?;
                status.map(|Status { source, tag, bytes }| Received { source, tag, bytes })
            }
            State::Short(..) => self.advance_short(ranks)?,
            State::Local(..) => self.advance_local(ranks)?,
            State::Chunks(..) | State::Shared(..) => self.advance_rest(ranks)?,
            State::Refusing(..) => self.refuse(ranks)?,
            State::Listening(..) | State::Over => unreachable!("it was opened, and is not asked after its end"),
        };
        if received.is_some() {
            self.state = State::Over;
            if let Some(lent) = self.lent.take() {
                lent.done();
            }
        }
        Ok(received)
    }

    fn lacks(&self, ranks: &Ranks) -> Option<i32> {
        let from = match &self.state {
            State::Chunks(whole, _) | State::Shared(whole, _) | State::Refusing(whole, _) => Some(whole.source),
            _ => self.from,
        };
        match from {
            Some(from) => ranks.watch.has_died(from).then_some(from),
            None => ranks.watch.all_others_died(ranks.rank),
        }
    }

    fn title(&self) -> Failed {
        let bytes = self.memory.bytes as u64;
        Failed { what: "receiving", rank: self.from, tag: self.tag, bytes, said: Box::default() }
    }

    fn give_up(&mut self, ranks: &Ranks) {
        let mut is_written = true;
        match std::mem::replace(&mut self.state, State::Over) {
            State::Waiting => is_written = false,
            State::Over => {}
            State::Direct(pending) => {
                ranks.library.cancel(pending);
            }
            State::Listening(buffer, pending) => {
                is_written = false;
                if !ranks.library.cancel(pending) {
                    buffer.abandon();
                }
            }
            State::Short(_, _, copying) => {
                is_written = copying.is_some();
                ranks.settle();
            }
            State::Local(_, handover, copying) => {
                is_written = copying.is_some();
                ranks.settle();
                handover.end();
            }
            State::Chunks(_, storing) => storing.give_up(ranks),
            State::Shared(_, taking) => taking.give_up(&self.title(), ranks),
            State::Refusing(_, line) => {
                is_written = false;
                line.give_up(ranks);
            }
        }
        let Some(lent) = self.lent.take() else { return };
        if is_written { lent.failed() } else { lent.done() }
    }
}
