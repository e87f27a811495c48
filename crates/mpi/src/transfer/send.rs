//! Sending: directly from device memory, through pinned buffers, or to a receiver in this process.

use std::sync::Arc;

use freehold::{Event, ExternalAccess};

use super::chunks::ChunkSender;
use super::envelope::{Delivery, ENVELOPE_BYTES, Envelope};
use super::shared::SharedSender;
use super::{MatchOrder, Operation, Received, transfer_error};
use crate::error::{Result, TransferError};
use crate::node_peers::SharedMemoryKind;
use crate::raw::{Comm, RawRequest, Span};
use crate::staging::{CopySegment, StagingBuffer};
use crate::world_inner::{LocalOffer, MessageId, Route, WorldInner};

/// A send to one rank.
pub(crate) struct Send {
    comm: Comm,
    to: i32,
    tag: i32,
    memory: Span,
    /// `None` if there is nothing to send, all of it was copied, or the caller keeps the memory.
    access: Option<ExternalAccess>,
    /// Distinguishes its control words and chunks from those of other messages.
    message_id: Option<MessageId>,
    state: State,
}

enum State {
    /// Waits for earlier work on the memory.
    Waiting,
    Direct(RawRequest),
    /// Copies into the envelope's buffer.
    Copying(StagingBuffer, Event),
    Posted {
        /// Until it is sent.
        envelope: Option<(StagingBuffer, RawRequest)>,
        rest: Rest,
    },
    Done,
}

/// The part of a message that follows an envelope.
enum Rest {
    Nothing,
    Chunks(ChunkSender),
    /// For a receiver in this process.
    Local(Arc<LocalOffer>),
    /// For a receiver that has mapped this rank's slots.
    Shared(SharedSender),
}

impl Send {
    pub(crate) fn new(comm: Comm, to: i32, tag: i32, access: Option<ExternalAccess>) -> Self {
        let memory = access
            .as_ref()
            .map_or(Span { address: 0, bytes: 0 }, |access| Span { address: access.address(), bytes: access.bytes() });
        Self { comm, to, tag, memory, access, message_id: None, state: State::Waiting }
    }

    /// Sends memory that the caller keeps until this is complete.
    pub(crate) fn for_span(comm: Comm, to: i32, tag: i32, memory: Span) -> Self {
        Self { comm, to, tag, memory, access: None, message_id: None, state: State::Waiting }
    }

    fn begin(&mut self, world: &WorldInner) -> Result<State> {
        let (means, number, rest) = match world.route(self.to) {
            Route::Direct => {
                // SAFETY: the library accepts device memory on this path; the memory is lent until the call is
                // complete.
                let pending = unsafe { world.library.isend(self.comm, self.memory, self.to, self.tag) };
                return Ok(State::Direct(pending.map_err(|code| transfer_error(self.describe(), code))?));
            }
            Route::Local => {
                let (number, offer) = world.offer_local(self.memory);
                (Delivery::Local, Some(number), Rest::Local(offer))
            }
            Route::Staged | Route::Shared(SharedMemoryKind::Host)
                if self.memory.bytes <= world.settings.eager_bytes =>
            {
                (Delivery::Staged, None, Rest::Nothing)
            }
            // An empty message needs no slot.
            Route::Shared(SharedMemoryKind::Device) if self.memory.bytes == 0 => {
                (Delivery::Staged, None, Rest::Nothing)
            }
            Route::Shared(kind) => {
                let number = world.new_message_id();
                let giving = SharedSender::new(self.to, world.tag_of(number.value()), kind);
                (Delivery::Shared(kind), Some(number), Rest::Shared(giving))
            }
            Route::Staged => {
                let number = world.new_message_id();
                let loading = ChunkSender::new(self.to, world.tag_of(number.value()));
                (Delivery::Staged, Some(number), Rest::Chunks(loading))
            }
        };
        let value = number.as_ref().map_or(0, MessageId::value);
        self.message_id = number;
        let mut buffer = world.stager.buffer(ENVELOPE_BYTES + world.settings.eager_bytes)?;
        buffer.write(&Envelope { delivery: means, message_id: value, bytes: self.memory.bytes as u64 }.encode());
        if matches!(rest, Rest::Nothing) && self.memory.bytes > 0 {
            let from = CopySegment { device: self.memory.address, offset: ENVELOPE_BYTES, bytes: self.memory.bytes };
            // SAFETY: the memory is lent, and earlier work on it is complete; the state keeps the buffer, and the
            // transfer the memory.
            let copying = unsafe { world.stager.to_host(&mut buffer, &[from]) }?;
            return Ok(State::Copying(buffer, copying));
        }
        Ok(State::Posted { envelope: Some(self.post(buffer, 0, world)?), rest })
    }

    /// Sends an envelope with the first `bytes` bytes.
    fn post(&self, buffer: StagingBuffer, bytes: usize, world: &WorldInner) -> Result<(StagingBuffer, RawRequest)> {
        // SAFETY: the buffer is kept until the call is complete, and nothing still writes it.
        let pending =
            unsafe { world.library.isend(self.comm, buffer.memory(ENVELOPE_BYTES + bytes), self.to, self.tag) };
        Ok((buffer, pending.map_err(|code| transfer_error(self.describe(), code))?))
    }

    /// Ends the loan: the block may be written.
    fn end_access(&mut self) {
        if let Some(access) = self.access.take() {
            access.done();
        }
    }
}

impl Operation for Send {
    fn order(&self) -> MatchOrder {
        MatchOrder::Send { to: self.to }
    }

    fn is_posted(&self) -> bool {
        !matches!(self.state, State::Waiting | State::Copying(..))
    }

    fn advance(&mut self, world: &WorldInner) -> Result<Option<Received>> {
        if let State::Waiting = self.state {
            if let Some(access) = &self.access
                && !access.is_ready()?
            {
                return Ok(None);
            }
            self.state = self.begin(world)?;
        }
        if let State::Copying(_, event) = &self.state {
            if !event.is_complete()? {
                return Ok(None);
            }
            let State::Copying(buffer, _) = std::mem::replace(&mut self.state, State::Done) else {
                unreachable!("the state was just matched")
            };
            self.end_access();
            let envelope = Some(self.post(buffer, self.memory.bytes, world)?);
            self.state = State::Posted { envelope, rest: Rest::Nothing };
        }
        let (title, memory) = (self.describe(), self.memory);
        let mut is_loaded = false;
        let is_over = match &mut self.state {
            State::Direct(pending) => {
                world.library.test(pending).map_err(|code| transfer_error(title, code))?.is_some()
            }
            State::Posted { envelope, rest } => {
                if let Some((_, pending)) = envelope
                    && world.library.test(pending).map_err(|code| transfer_error(title.clone(), code))?.is_some()
                {
                    *envelope = None;
                }
                let is_through = match rest {
                    Rest::Nothing => true,
                    Rest::Chunks(loading) => {
                        let is_through = loading.advance(memory, &title, world)?;
                        is_loaded = loading.is_loaded(memory);
                        is_through
                    }
                    Rest::Local(offer) => offer.is_done(),
                    Rest::Shared(giving) => giving.advance(memory, &title, world)?,
                };
                is_through && envelope.is_none()
            }
            State::Waiting | State::Copying(..) | State::Done => {
                unreachable!("the operation has started, and is not polled after its end")
            }
        };
        if is_loaded || is_over {
            self.end_access();
        }
        if !is_over {
            return Ok(None);
        }
        let state = std::mem::replace(&mut self.state, State::Done);
        let number = self.message_id.take();
        if let (State::Posted { rest: Rest::Shared(giving), .. }, Some(number)) = (state, number)
            && giving.is_declined()
        {
            number.leak();
        }
        Ok(Some(Received::EMPTY))
    }

    fn missing_rank(&self, world: &WorldInner) -> Option<i32> {
        world.liveness.has_died(self.to).then_some(self.to)
    }

    fn describe(&self) -> TransferError {
        let (rank, bytes) = (Some(self.to), self.memory.bytes as u64);
        TransferError { what: "sending", rank, tag: Some(self.tag), bytes, message: Box::default() }
    }

    fn abort(&mut self, world: &WorldInner) {
        match std::mem::replace(&mut self.state, State::Done) {
            State::Waiting | State::Done => {}
            State::Direct(pending) => {
                // The library may still read the memory, whose content is unchanged.
                world.library.cancel(pending);
            }
            State::Copying(..) => world.synchronize_copies(),
            State::Posted { envelope, rest } => {
                if let Some((buffer, pending)) = envelope
                    && !world.library.cancel(pending)
                {
                    buffer.leak();
                }
                match rest {
                    Rest::Nothing => {}
                    Rest::Chunks(loading) => loading.abort(world),
                    Rest::Local(offer) => offer.withdraw(),
                    Rest::Shared(giving) => giving.abort(world),
                }
            }
        }
        // Parts of the message may still arrive.
        if let Some(number) = self.message_id.take() {
            number.leak();
        }
        // The content of the block is unchanged.
        self.end_access();
    }
}
