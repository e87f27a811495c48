//! Receiving: directly into device memory, through pinned buffers, or from a sender in this process.

use std::sync::Arc;

use freehold::{Event, ExternalAccess};

use super::chunks::ChunkReceiver;
use super::control::{ControlChannel, DECLINE, Side};
use super::envelope::{Delivery, ENVELOPE_BYTES, Envelope};
use super::shared::SharedReceiver;
use super::{MatchOrder, Operation, Received, transfer_error};
use crate::error::{Error, Result, TransferError};
use crate::raw::{Comm, RawRequest, Span, Status, any_source, any_tag};
use crate::staging::{CopySegment, StagingBuffer};
use crate::world_inner::{LocalOffer, WorldInner};

/// A receive from one rank, or from any.
pub(crate) struct Receive {
    comm: Comm,
    from: Option<i32>,
    tag: Option<i32>,
    memory: Span,
    /// `None` if the caller keeps the memory.
    access: Option<ExternalAccess>,
    state: State,
}

enum State {
    Waiting,
    Direct(RawRequest),
    /// Waits for the envelope.
    AwaitingEnvelope(StagingBuffer, RawRequest),
    /// The whole message arrived with its envelope.
    Eager(Received, StagingBuffer, Option<Event>),
    Chunks(Received, ChunkReceiver),
    Local(Received, Arc<LocalOffer>, Option<Event>),
    Shared(Received, SharedReceiver),
    /// The message does not fit, and the sender is told.
    Rejecting(Received, ControlChannel),
    Done,
}

impl Receive {
    pub(crate) fn new(comm: Comm, from: Option<i32>, tag: Option<i32>, access: ExternalAccess) -> Self {
        let memory = Span { address: access.address(), bytes: access.bytes() };
        Self { comm, from, tag, memory, access: Some(access), state: State::Waiting }
    }

    /// Receives into memory that the caller keeps until this is complete.
    pub(crate) fn for_span(comm: Comm, from: Option<i32>, tag: Option<i32>, memory: Span) -> Self {
        Self { comm, from, tag, memory, access: None, state: State::Waiting }
    }

    fn pattern(&self) -> (i32, i32) {
        (self.from.unwrap_or_else(any_source), self.tag.unwrap_or_else(any_tag))
    }

    fn begin(&mut self, world: &WorldInner) -> Result<()> {
        let (from, tag) = self.pattern();
        if world.is_direct() {
            if is_ready(&self.access)? {
                // SAFETY: the library accepts device memory on this path; the memory is lent until the call is
                // complete, and earlier work on it is complete.
                let pending = unsafe { world.library.irecv(self.comm, self.memory, from, tag) };
                self.state = State::Direct(pending.map_err(|code| transfer_error(self.describe(), code))?);
            }
            return Ok(());
        }
        let bytes = ENVELOPE_BYTES + world.settings.eager_bytes;
        let buffer = world.stager.buffer(bytes)?;
        // SAFETY: the state keeps the buffer until the call is complete.
        let pending = unsafe { world.library.irecv(self.comm, buffer.memory(bytes), from, tag) };
        self.state = State::AwaitingEnvelope(buffer, pending.map_err(|code| transfer_error(self.describe(), code))?);
        Ok(())
    }

    /// Reads the envelope, and prepares for the rest.
    fn open(&mut self, status: Status, world: &WorldInner) -> Result<()> {
        let State::AwaitingEnvelope(buffer, _) = std::mem::replace(&mut self.state, State::Done) else {
            unreachable!("called only while an envelope is awaited")
        };
        let envelope = (status.bytes >= ENVELOPE_BYTES).then(|| Envelope::decode(&buffer.read())).flatten();
        let Some(envelope) = envelope else {
            let said = "the message was sent by other code, or by another version of this library".into();
            let (rank, tag) = (Some(status.source), Some(status.tag));
            return Err(Error::Transfer(Box::new(TransferError { rank, tag, message: said, ..self.describe() })));
        };
        let bytes = usize::try_from(envelope.bytes).unwrap_or(usize::MAX);
        let whole = Received { source: status.source, tag: status.tag, bytes };
        let fits = bytes <= self.memory.bytes;
        let is_whole = status.bytes - ENVELOPE_BYTES == bytes;
        let line_tag = world.tag_of(envelope.message_id);
        self.state = match envelope.delivery {
            Delivery::Local => State::Local(whole, world.accept_local(envelope.message_id), None),
            Delivery::Staged if is_whole => State::Eager(whole, buffer, None),
            Delivery::Staged | Delivery::Shared(_) if !fits => {
                let mut line = ControlChannel::new(status.source, line_tag, Side::Receiver);
                line.send(DECLINE, &self.describe(), world)?;
                State::Rejecting(whole, line)
            }
            Delivery::Staged => State::Chunks(whole, ChunkReceiver::new(status.source, line_tag, bytes)),
            Delivery::Shared(kind) => State::Shared(whole, SharedReceiver::new(status.source, line_tag, kind, bytes)),
        };
        Ok(())
    }

    fn truncation_error(&self, whole: Received) -> Error {
        let (bytes, room_bytes) = (Some(whole.bytes as u64), self.memory.bytes as u64);
        Error::Truncated { source_rank: whole.source, tag: whole.tag, bytes, capacity_bytes: room_bytes }
    }

    fn advance_eager(&mut self, world: &WorldInner) -> Result<Option<Received>> {
        let State::Eager(whole, buffer, copying) = &mut self.state else {
            unreachable!("called only for eager messages")
        };
        let whole = *whole;
        if whole.bytes > self.memory.bytes {
            return Err(self.truncation_error(whole));
        }
        if copying.is_none() && whole.bytes > 0 {
            if !is_ready(&self.access)? {
                return Ok(None);
            }
            let to = CopySegment { device: self.memory.address, offset: ENVELOPE_BYTES, bytes: whole.bytes };
            // SAFETY: the memory is lent, earlier work on it is complete, and the message fits; the state keeps the
            // buffer, and the transfer keeps the memory.
            *copying = Some(unsafe { world.stager.to_device(buffer, &[to]) }?);
        }
        let is_there = copying.as_ref().map_or(Ok(true), Event::is_complete)?;
        Ok(is_there.then_some(whole))
    }

    fn advance_local(&mut self, world: &WorldInner) -> Result<Option<Received>> {
        let State::Local(whole, offer, copying) = &mut self.state else {
            unreachable!("called only for local messages")
        };
        let whole = *whole;
        if whole.bytes > self.memory.bytes {
            offer.finish();
            return Err(self.truncation_error(whole));
        }
        if copying.is_none() && whole.bytes > 0 {
            if !is_ready(&self.access)? {
                return Ok(None);
            }
            let Some(from) = offer.accept() else {
                let title = TransferError { message: "the sender withdrew the message".into(), ..self.describe() };
                return Err(Error::Transfer(Box::new(title)));
            };
            // SAFETY: both memories are lent, the sender's until the offer ends; earlier work on them is complete.
            let begun = unsafe { world.stager.device_to_device(from.address, self.memory.address, whole.bytes) };
            *copying = Some(begun.inspect_err(|_| offer.finish())?);
        }
        if !copying.as_ref().map_or(Ok(true), Event::is_complete)? {
            return Ok(None);
        }
        offer.finish();
        Ok(Some(whole))
    }

    /// Receives the data that follows the envelope, into memory that is ready.
    fn advance_rest(&mut self, world: &WorldInner) -> Result<Option<Received>> {
        if !is_ready(&self.access)? {
            return Ok(None);
        }
        let (title, memory) = (self.describe(), self.memory);
        let (whole, is_there) = match &mut self.state {
            State::Chunks(whole, storing) => (*whole, storing.advance(memory, &title, world)?),
            State::Shared(whole, taking) => (*whole, taking.advance(memory, &title, world)?),
            _ => unreachable!("called only for messages in several parts"),
        };
        Ok(is_there.then_some(whole))
    }

    fn reject(&mut self, world: &WorldInner) -> Result<Option<Received>> {
        let title = self.describe();
        let State::Rejecting(whole, line) = &mut self.state else { unreachable!("called only for rejected messages") };
        let whole = *whole;
        if line.is_flushed(&title, world)? { Err(self.truncation_error(whole)) } else { Ok(None) }
    }

    /// Returns the error for a message that does not fit, or for a failed call.
    fn transfer_error(&self, code: crate::raw::CallError) -> Error {
        if !code.is_truncation {
            return transfer_error(self.describe(), code);
        }
        let (source_rank, tag) = (code.status.source, code.status.tag);
        let (source_rank, tag) = (self.from.unwrap_or(source_rank), self.tag.unwrap_or(tag));
        Error::Truncated { source_rank, tag, bytes: None, capacity_bytes: self.memory.bytes as u64 }
    }
}

fn is_ready(access: &Option<ExternalAccess>) -> Result<bool> {
    access.as_ref().map_or(Ok(true), |access| Ok(access.is_ready()?))
}

impl Operation for Receive {
    fn order(&self) -> MatchOrder {
        MatchOrder::Receive { from: self.from }
    }

    fn is_posted(&self) -> bool {
        !matches!(self.state, State::Waiting)
    }

    fn advance(&mut self, world: &WorldInner) -> Result<Option<Received>> {
        if matches!(self.state, State::Waiting) {
            self.begin(world)?;
        }
        if let State::AwaitingEnvelope(_, pending) = &mut self.state {
            let status = world.library.test(pending);
            match status.map_err(|code| self.transfer_error(code))? {
                None => return Ok(None),
                Some(status) => self.open(status, world)?,
            }
        }
        let received = match &mut self.state {
            State::Waiting => None,
            State::Direct(pending) => {
                let status = world.library.test(pending);
                let status = status.map_err(|code| self.transfer_error(code))?;
                status.map(|Status { source, tag, bytes }| Received { source, tag, bytes })
            }
            State::Eager(..) => self.advance_eager(world)?,
            State::Local(..) => self.advance_local(world)?,
            State::Chunks(..) | State::Shared(..) => self.advance_rest(world)?,
            State::Rejecting(..) => self.reject(world)?,
            State::AwaitingEnvelope(..) | State::Done => {
                unreachable!("the envelope was read, and the operation is not polled after its end")
            }
        };
        if received.is_some() {
            self.state = State::Done;
            if let Some(access) = self.access.take() {
                access.done();
            }
        }
        Ok(received)
    }

    fn missing_rank(&self, world: &WorldInner) -> Option<i32> {
        let from = match &self.state {
            State::Chunks(whole, _) | State::Shared(whole, _) | State::Rejecting(whole, _) => Some(whole.source),
            _ => self.from,
        };
        match from {
            Some(from) => world.liveness.has_died(from).then_some(from),
            None => world.liveness.all_others_dead(world.rank),
        }
    }

    fn describe(&self) -> TransferError {
        let bytes = self.memory.bytes as u64;
        TransferError { what: "receiving", rank: self.from, tag: self.tag, bytes, message: Box::default() }
    }

    fn abort(&mut self, world: &WorldInner) {
        let mut is_written = true;
        match std::mem::replace(&mut self.state, State::Done) {
            State::Waiting => is_written = false,
            State::Done => {}
            State::Direct(pending) => {
                world.library.cancel(pending);
            }
            State::AwaitingEnvelope(buffer, pending) => {
                is_written = false;
                if !world.library.cancel(pending) {
                    buffer.leak();
                }
            }
            State::Eager(_, _, copying) => {
                is_written = copying.is_some();
                world.synchronize_copies();
            }
            State::Local(_, offer, copying) => {
                is_written = copying.is_some();
                world.synchronize_copies();
                offer.finish();
            }
            State::Chunks(_, storing) => storing.abort(world),
            State::Shared(_, taking) => taking.abort(&self.describe(), world),
            State::Rejecting(_, line) => {
                is_written = false;
                line.abort(world);
            }
        }
        let Some(access) = self.access.take() else { return };
        if is_written { access.failed() } else { access.done() }
    }
}
