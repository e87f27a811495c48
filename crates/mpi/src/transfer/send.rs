//! Sending: straight from device memory, through pinned buffers, or to a receiver in this process.

use std::sync::Arc;

use freehold::{Event, ExternalAccess};

use super::chunks::Loading;
use super::envelope::{ENVELOPE_BYTES, Envelope, Means};
use super::shared::Giving;
use super::{Order, Received, Work, refused};
use crate::copies::{Buffer, Move};
use crate::error::{Failed, Result};
use crate::neighbours::Ground;
use crate::ranks::{Handover, Number, Ranks, Route};
use crate::raw::{Comm, Memory, Pending};

/// A message to a rank.
pub(crate) struct Send {
    comm: Comm,
    to: i32,
    tag: i32,
    memory: Memory,
    /// None: there is nothing to send, all of it was copied, or somebody else keeps it.
    lent: Option<ExternalAccess>,
    /// What tells its words and chunks from those of others.
    number: Option<Number>,
    state: State,
}

enum State {
    /// For the work before it.
    Waiting,
    Direct(Pending),
    /// Into the envelope.
    Copying(Buffer, Event),
    Posted {
        /// Until it has gone.
        envelope: Option<(Buffer, Pending)>,
        rest: Rest,
    },
    Over,
}

/// What comes behind an envelope.
enum Rest {
    Nothing,
    Chunks(Loading),
    /// For a receiver in this process.
    Local(Arc<Handover>),
    /// For a receiver that has this rank's memory.
    Shared(Giving),
}

impl Send {
    pub(crate) fn new(comm: Comm, to: i32, tag: i32, lent: Option<ExternalAccess>) -> Self {
        let memory = lent
            .as_ref()
            .map_or(Memory { address: 0, bytes: 0 }, |lent| Memory { address: lent.address(), bytes: lent.bytes() });
        Self { comm, to, tag, memory, lent, number: None, state: State::Waiting }
    }

    /// Of memory that somebody else keeps until this is over.
    pub(crate) fn of(comm: Comm, to: i32, tag: i32, memory: Memory) -> Self {
        Self { comm, to, tag, memory, lent: None, number: None, state: State::Waiting }
    }

    fn begin(&mut self, ranks: &Ranks) -> Result<State> {
        let (means, number, rest) = match ranks.route(self.to) {
            Route::Direct => {
                // SAFETY: the library takes device memory here; it is lent until the call is complete.
                let pending = unsafe { ranks.library.isend(self.comm, self.memory, self.to, self.tag) };
                return Ok(State::Direct(pending.map_err(|code| refused(self.title(), code))?));
            }
            Route::Local => {
                let (number, handover) = ranks.hand_over(self.memory);
                (Means::Local, Some(number), Rest::Local(handover))
            }
            Route::Staged | Route::Shared(Ground::Host) if self.memory.bytes <= ranks.settings.eager_bytes => {
                (Means::Staged, None, Rest::Nothing)
            }
            // Nothing to share.
            Route::Shared(Ground::Device) if self.memory.bytes == 0 => (Means::Staged, None, Rest::Nothing),
            Route::Shared(ground) => {
                let number = ranks.number();
                let giving = Giving::new(self.to, ranks.tag_of(number.value()), ground);
                (Means::Shared(ground), Some(number), Rest::Shared(giving))
            }
            Route::Staged => {
                let number = ranks.number();
                let loading = Loading::new(self.to, ranks.tag_of(number.value()));
                (Means::Staged, Some(number), Rest::Chunks(loading))
            }
        };
        let value = number.as_ref().map_or(0, Number::value);
        self.number = number;
        let mut buffer = ranks.copies.buffer(ENVELOPE_BYTES + ranks.settings.eager_bytes)?;
        buffer.write(&Envelope { means, number: value, bytes: self.memory.bytes as u64 }.encode());
        if matches!(rest, Rest::Nothing) && self.memory.bytes > 0 {
            let from = Move { device: self.memory.address, at: ENVELOPE_BYTES, bytes: self.memory.bytes };
            // SAFETY: the memory is lent, and all before that has passed; the state keeps the buffer, and the transfer the memory.
            let copying = unsafe { ranks.copies.to_host(&mut buffer, &[from]) }?;
            return Ok(State::Copying(buffer, copying));
        }
        Ok(State::Posted { envelope: Some(self.post(buffer, 0, ranks)?), rest })
    }

    /// Sends an envelope, and so many bytes in it.
    fn post(&self, buffer: Buffer, bytes: usize, ranks: &Ranks) -> Result<(Buffer, Pending)> {
        // SAFETY: the buffer is kept until the call is complete, and nothing writes it any more.
        let pending =
            unsafe { ranks.library.isend(self.comm, buffer.memory(ENVELOPE_BYTES + bytes), self.to, self.tag) };
        Ok((buffer, pending.map_err(|code| refused(self.title(), code))?))
    }

    /// The block may be written.
    fn give_back(&mut self) {
        if let Some(lent) = self.lent.take() {
            lent.done();
        }
    }
}

impl Work for Send {
    fn order(&self) -> Order {
        Order::Send { to: self.to }
    }

    fn is_posted(&self) -> bool {
        !matches!(self.state, State::Waiting | State::Copying(..))
    }

    fn advance(&mut self, ranks: &Ranks) -> Result<Option<Received>> {
        if let State::Waiting = self.state {
            if let Some(lent) = &self.lent
                && !lent.is_ready()?
            {
                return Ok(None);
            }
            self.state = self.begin(ranks)?;
        }
        if let State::Copying(_, event) = &self.state {
            if !event.is_complete()? {
                return Ok(None);
            }
            let State::Copying(buffer, _) = std::mem::replace(&mut self.state, State::Over) else {
                unreachable!("it was just seen")
            };
            self.give_back();
            let envelope = Some(self.post(buffer, self.memory.bytes, ranks)?);
            self.state = State::Posted { envelope, rest: Rest::Nothing };
        }
        let (title, memory) = (self.title(), self.memory);
        let mut is_loaded = false;
        let is_over = match &mut self.state {
            State::Direct(pending) => ranks.library.test(pending).map_err(|code| refused(title, code))?.is_some(),
            State::Posted { envelope, rest } => {
                if let Some((_, pending)) = envelope
                    && ranks.library.test(pending).map_err(|code| refused(title.clone(), code))?.is_some()
                {
                    *envelope = None;
                }
                let is_through = match rest {
                    Rest::Nothing => true,
                    Rest::Chunks(loading) => {
                        let is_through = loading.advance(memory, &title, ranks)?;
                        is_loaded = loading.is_loaded(memory);
                        is_through
                    }
                    Rest::Local(handover) => handover.is_over(),
                    Rest::Shared(giving) => giving.advance(memory, &title, ranks)?,
                };
                is_through && envelope.is_none()
            }
            State::Waiting | State::Copying(..) | State::Over => {
                unreachable!("it began, and is not asked after its end")
            }
        };
        if is_loaded || is_over {
            self.give_back();
        }
        if !is_over {
            return Ok(None);
        }
        let state = std::mem::replace(&mut self.state, State::Over);
        let number = self.number.take();
        if let (State::Posted { rest: Rest::Shared(giving), .. }, Some(number)) = (state, number)
            && giving.is_cut_off()
        {
            number.abandon();
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
            State::Copying(..) => ranks.settle(),
            State::Posted { envelope, rest } => {
                if let Some((buffer, pending)) = envelope
                    && !ranks.library.cancel(pending)
                {
                    buffer.abandon();
                }
                match rest {
                    Rest::Nothing => {}
                    Rest::Chunks(loading) => loading.give_up(ranks),
                    Rest::Local(handover) => handover.withdraw(),
                    Rest::Shared(giving) => giving.give_up(ranks),
                }
            }
        }
        // What was sent may still come.
        if let Some(number) = self.number.take() {
            number.abandon();
        }
        // The block holds what it held.
        self.give_back();
    }
}
