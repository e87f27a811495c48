//! Receiving: straight into device memory, through pinned buffers, or from a sender in this process.

use std::collections::VecDeque;
use std::sync::Arc;

use freehold::{Event, Lent};

use super::envelope::{ENVELOPE_BYTES, Envelope, Means};
use super::shared::Taking;
use super::{Flight, Order, Received, Stage, Work, ground, refused};
use crate::copies::{Buffer, Move};
use crate::error::{Error, Failed, Result};
use crate::ranks::{Handover, Ranks};
use crate::raw::{Comm, Memory, Pending, Status, any_source, any_tag};

/// How many buffers of one message are on their way.
const DEPTH: usize = 4;

/// A message from a rank, or from any.
pub(crate) struct Receive {
    comm: Comm,
    from: Option<i32>,
    tag: Option<i32>,
    memory: Memory,
    /// None: somebody else keeps it.
    lent: Option<Lent>,
    state: State,
}

enum State {
    Waiting,
    Direct(Pending),
    /// For the envelope.
    Listening(Buffer, Pending),
    Staged(Staged),
    Local(Local),
    Shared(Received, Taking),
    Over,
}

/// A message whose envelope has come.
struct Staged {
    /// The chunks' sender and tag.
    source: i32,
    number: u32,
    whole: Received,
    /// How many bytes were asked for, or came.
    asked: usize,
    flights: VecDeque<Flight>,
    /// Whether there is no room for it: it is taken, and dropped.
    is_dropped: bool,
}

struct Local {
    handover: Arc<Handover>,
    whole: Received,
    copying: Option<Event>,
}

impl Receive {
    pub(crate) fn new(comm: Comm, from: Option<i32>, tag: Option<i32>, lent: Lent) -> Self {
        let memory = Memory { address: lent.address(), bytes: lent.bytes() };
        Self { comm, from, tag, memory, lent: Some(lent), state: State::Waiting }
    }

    /// Into memory that somebody else keeps until this is over.
    pub(crate) fn of(comm: Comm, from: i32, tag: i32, memory: Memory) -> Self {
        Self { comm, from: Some(from), tag: Some(tag), memory, lent: None, state: State::Waiting }
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
        match envelope.means {
            Means::Staged => {
                let first = status.bytes - ENVELOPE_BYTES;
                let mut flights = VecDeque::new();
                flights.push_back(Flight { buffer, start: 0, bytes: first, stage: Stage::Ready });
                let is_dropped = bytes > self.memory.bytes;
                let (source, number) = (status.source, envelope.number);
                self.state = State::Staged(Staged { source, number, whole, asked: first, flights, is_dropped });
            }
            Means::Local => {
                let handover = ranks.taken_over(envelope.number);
                self.state = State::Local(Local { handover, whole, copying: None });
            }
            Means::Shared => {
                self.state = State::Shared(whole, Taking::new(status.source, envelope.number, bytes));
            }
        }
        Ok(())
    }

    fn truncated(&self, whole: Received) -> Error {
        let (bytes, room_bytes) = (Some(whole.bytes as u64), self.memory.bytes as u64);
        Error::Truncated { source_rank: whole.source, tag: whole.tag, bytes, room_bytes }
    }

    fn advance_staged(&mut self, ranks: &Ranks) -> Result<Option<Received>> {
        let (title, memory) = (self.title(), self.memory);
        let State::Staged(staged) = &mut self.state else { unreachable!("only staged receipts come here") };
        staged.ask(&title, ranks)?;
        for flight in &mut staged.flights {
            if let Stage::Moving(pending) = &mut flight.stage {
                if ranks.library.test(pending).map_err(|code| refused(title.clone(), code))?.is_none() {
                    break;
                }
                flight.stage = Stage::Ready;
            }
            if let Stage::Ready = flight.stage
                && flight.bytes > 0
                && !staged.is_dropped
            {
                if !is_ready(&self.lent)? {
                    break;
                }
                let at = if flight.start == 0 { ENVELOPE_BYTES } else { 0 };
                let to = Move { device: memory.address + flight.start as u64, at, bytes: flight.bytes };
                // SAFETY: the memory is lent, all before that has passed, and the message fits; the flight keeps the buffer, and
                // the transfer the memory.
                flight.stage = Stage::Copying(unsafe { ranks.copies.to_device(&flight.buffer, &[to]) }?);
            }
        }
        while let Some(flight) = staged.flights.front() {
            let is_over = match &flight.stage {
                Stage::Ready => flight.bytes == 0 || staged.is_dropped,
                Stage::Copying(event) => event.has_passed()?,
                Stage::Moving(_) => false,
            };
            if !is_over {
                break;
            }
            staged.flights.pop_front();
        }
        let whole = staged.whole;
        if !staged.flights.is_empty() || staged.asked < whole.bytes {
            return Ok(None);
        }
        if staged.is_dropped { Err(self.truncated(whole)) } else { Ok(Some(whole)) }
    }

    fn advance_local(&mut self, ranks: &Ranks) -> Result<Option<Received>> {
        let State::Local(local) = &mut self.state else { unreachable!("only local receipts come here") };
        if local.whole.bytes > self.memory.bytes {
            local.handover.end();
            let whole = local.whole;
            return Err(self.truncated(whole));
        }
        if local.copying.is_none() && local.whole.bytes > 0 {
            if !is_ready(&self.lent)? {
                return Ok(None);
            }
            let Some(from) = local.handover.begin() else {
                let title = Failed { said: "the sender has given up".into(), ..self.title() };
                return Err(Error::Failed(Box::new(title)));
            };
            // SAFETY: both memories are lent, the sender's until the handover ends; all before that has passed.
            let copying = unsafe { ranks.copies.within(from.address, self.memory.address, local.whole.bytes) };
            local.copying = Some(copying.inspect_err(|_| local.handover.end())?);
        }
        if let Some(copying) = &local.copying
            && !copying.has_passed()?
        {
            return Ok(None);
        }
        local.handover.end();
        Ok(Some(local.whole))
    }

    fn advance_shared(&mut self, ranks: &Ranks) -> Result<Option<Received>> {
        let (title, memory) = (self.title(), self.memory);
        let State::Shared(whole, taking) = &mut self.state else { unreachable!("only shared receipts come here") };
        let whole = *whole;
        if whole.bytes > memory.bytes {
            return if taking.refuse(&title, ranks)? { Err(self.truncated(whole)) } else { Ok(None) };
        }
        if !is_ready(&self.lent)? {
            return Ok(None);
        }
        Ok(taking.advance(memory, &title, ranks)?.then_some(whole))
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

fn is_ready(lent: &Option<Lent>) -> Result<bool> {
    lent.as_ref().map_or(Ok(true), |lent| Ok(lent.is_ready()?))
}

impl Staged {
    /// Asks for the chunks that there are buffers for.
    fn ask(&mut self, title: &Failed, ranks: &Ranks) -> Result<()> {
        while self.flights.len() < DEPTH && self.asked < self.whole.bytes {
            let bytes = ranks.settings.chunk_bytes.min(self.whole.bytes - self.asked);
            let buffer = ranks.copies.buffer(ranks.settings.chunk_bytes)?;
            let tag = Ranks::tag_of(self.number);
            // SAFETY: the flight keeps the buffer until the call is complete.
            let pending = unsafe { ranks.library.irecv(ranks.chunks, buffer.memory(bytes), self.source, tag) };
            let pending = pending.map_err(|code| refused(title.clone(), code))?;
            self.flights.push_back(Flight { buffer, start: self.asked, bytes, stage: Stage::Moving(pending) });
            self.asked += bytes;
        }
        Ok(())
    }
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
            State::Staged(_) => self.advance_staged(ranks)?,
            State::Local(_) => self.advance_local(ranks)?,
            State::Shared(..) => self.advance_shared(ranks)?,
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
            State::Staged(staged) => Some(staged.source),
            State::Shared(whole, _) => Some(whole.source),
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
            State::Staged(mut staged) => {
                is_written = !staged.is_dropped;
                ground(&mut staged.flights, ranks);
            }
            State::Local(local) => {
                is_written = local.copying.is_some();
                if is_written && let Err(error) = ranks.copies.settle() {
                    ranks.trouble(error);
                }
                local.handover.end();
            }
            State::Shared(whole, taking) => {
                is_written = whole.bytes <= self.memory.bytes;
                taking.give_up(ranks);
            }
        }
        let Some(lent) = self.lent.take() else { return };
        if is_written { lent.failed() } else { lent.done() }
    }
}
