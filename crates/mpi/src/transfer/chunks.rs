//! Messages longer than an envelope carries, through pinned buffers: each chunk is copied to the host, sent, and copied
//! to the device, several at a time. The receiver says when to start, so few messages have buffers at once.

use std::collections::VecDeque;

use freehold::Event;

use super::control::{ControlChannel, PROCEED, Side};
use super::transfer_error;
use crate::error::{Error, Result, TransferError};
use crate::raw::{RawRequest, Span};
use crate::staging::{CopySegment, StagingBuffer};
use crate::world_inner::{Permit, WorldInner};

/// One buffer in flight.
struct InFlight {
    buffer: StagingBuffer,
    bytes: usize,
    stage: Stage,
}

enum Stage {
    Copying(Event),
    Sending(RawRequest),
}

/// Abandons buffers in flight. Waits for copies first, because their buffers are reused.
fn leak_in_flight(in_flight: VecDeque<InFlight>, world: &WorldInner) {
    world.synchronize_copies();
    for chunk in in_flight {
        if let Stage::Sending(pending) = chunk.stage
            && !world.library.cancel(pending)
        {
            chunk.buffer.leak();
        }
    }
}

/// The sender's side, after the envelope.
pub(super) struct ChunkSender {
    control: ControlChannel,
    answer: Answer,
    /// How many bytes have been given a buffer.
    next_offset: usize,
    in_flight: VecDeque<InFlight>,
    /// Held while chunks are copied before the receiver has accepted the message.
    early_permit: Option<Permit>,
    /// Whether the receiver has posted a receive for every chunk. Before that, a later message must not reuse the
    /// message id.
    is_requested: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Awaited,
    Proceed,
    Decline,
}

impl ChunkSender {
    pub(super) fn new(peer: i32, tag: i32) -> Self {
        let line = ControlChannel::new(peer, tag, Side::Sender);
        Self {
            control: line,
            answer: Answer::Awaited,
            next_offset: 0,
            in_flight: VecDeque::new(),
            early_permit: None,
            is_requested: false,
        }
    }

    /// Returns whether the message's memory is no longer read.
    pub(super) fn is_loaded(&self, memory: Span) -> bool {
        let is_taken = self.next_offset == memory.bytes || self.answer == Answer::Decline;
        is_taken && !self.in_flight.iter().any(|chunk| matches!(chunk.stage, Stage::Copying(_)))
    }

    /// Makes progress. Returns whether all chunks are sent, or the receiver has declined.
    pub(super) fn advance(&mut self, memory: Span, title: &TransferError, world: &WorldInner) -> Result<bool> {
        if self.answer == Answer::Awaited
            && let Some(word) = self.control.try_recv(title, world)?
        {
            self.answer = if word == PROCEED { Answer::Proceed } else { Answer::Decline };
            self.early_permit = None;
        }
        if self.answer == Answer::Proceed && !self.is_requested {
            self.is_requested = self.control.try_recv(title, world)?.is_some();
        }
        self.load(memory, world)?;
        self.post(title, world)?;
        self.complete_sends(title, world)?;
        let is_known = self.is_requested || self.answer == Answer::Decline;
        Ok(is_known && self.in_flight.is_empty() && self.is_loaded(memory))
    }

    /// Starts copies into free buffers.
    fn load(&mut self, memory: Span, world: &WorldInner) -> Result<()> {
        let may_load = match self.answer {
            Answer::Proceed => true,
            Answer::Decline => false,
            Answer::Awaited => {
                self.early_permit = self.early_permit.take().or_else(|| world.early_copies.try_acquire());
                self.early_permit.is_some()
            }
        };
        let chunk_bytes = world.settings.chunk_bytes;
        while may_load && self.in_flight.len() < world.settings.depth && self.next_offset < memory.bytes {
            let bytes = chunk_bytes.min(memory.bytes - self.next_offset);
            let mut buffer = world.stager.buffer(chunk_bytes)?;
            let from = CopySegment { device: memory.address + self.next_offset as u64, offset: 0, bytes };
            // SAFETY: the memory is lent, and earlier work on it is complete; the `InFlight` keeps the buffer, and the
            // transfer keeps the memory.
            let copying = unsafe { world.stager.to_host(&mut buffer, &[from]) }?;
            self.in_flight.push_back(InFlight { buffer, bytes, stage: Stage::Copying(copying) });
            self.next_offset += bytes;
        }
        Ok(())
    }

    /// Sends copied chunks, in order.
    fn post(&mut self, title: &TransferError, world: &WorldInner) -> Result<()> {
        if self.answer != Answer::Proceed {
            return Ok(());
        }
        for chunk in &mut self.in_flight {
            let Stage::Copying(event) = &chunk.stage else { continue };
            if !event.is_complete()? {
                break;
            }
            let memory = chunk.buffer.memory(chunk.bytes);
            // SAFETY: the `InFlight` keeps the buffer until the call is complete; no copy still writes it.
            let pending = unsafe { world.library.isend(world.chunks, memory, self.control.peer, self.control.tag) };
            chunk.stage = Stage::Sending(pending.map_err(|code| transfer_error(title.clone(), code))?);
        }
        Ok(())
    }

    /// Frees buffers that were sent, or copied for a message that was declined.
    fn complete_sends(&mut self, title: &TransferError, world: &WorldInner) -> Result<()> {
        while let Some(chunk) = self.in_flight.front_mut() {
            let is_over = match &mut chunk.stage {
                Stage::Sending(pending) => {
                    world.library.test(pending).map_err(|code| transfer_error(title.clone(), code))?.is_some()
                }
                Stage::Copying(event) => self.answer == Answer::Decline && event.is_complete()?,
            };
            if !is_over {
                return Ok(());
            }
            self.in_flight.pop_front();
        }
        Ok(())
    }

    pub(super) fn abort(self, world: &WorldInner) {
        self.control.abort(world);
        leak_in_flight(self.in_flight, world);
    }
}

/// The receiver's side, after the envelope.
pub(super) struct ChunkReceiver {
    control: ControlChannel,
    bytes: usize,
    /// How many bytes have a posted receive.
    requested: usize,
    in_flight: VecDeque<InFlight>,
    /// The offset of the next chunk to store.
    stored: usize,
    /// Held once the sender was told to start.
    permit: Option<Permit>,
    /// Whether the sender was told that all receives are posted.
    has_acknowledged: bool,
}

impl ChunkReceiver {
    pub(super) fn new(peer: i32, tag: i32, bytes: usize) -> Self {
        let line = ControlChannel::new(peer, tag, Side::Receiver);
        Self {
            control: line,
            bytes,
            requested: 0,
            in_flight: VecDeque::new(),
            stored: 0,
            permit: None,
            has_acknowledged: false,
        }
    }

    /// Makes progress, into memory that is ready. Returns whether all data has arrived.
    pub(super) fn advance(&mut self, memory: Span, title: &TransferError, world: &WorldInner) -> Result<bool> {
        if self.permit.is_none() {
            let Some(pass) = world.arriving.try_acquire() else { return Ok(false) };
            self.permit = Some(pass);
            // A chunk is received only if a buffer is free.
            self.request_chunks(title, world)?;
            self.control.send(PROCEED, title, world)?;
        }
        self.store(memory, title, world)?;
        while let Some(InFlight { stage: Stage::Copying(event), .. }) = self.in_flight.front() {
            if !event.is_complete()? {
                break;
            }
            self.in_flight.pop_front();
        }
        self.request_chunks(title, world)?;
        if self.requested == self.bytes && !self.has_acknowledged {
            self.has_acknowledged = true;
            self.control.send(PROCEED, title, world)?;
        }
        let are_gone = self.control.is_flushed(title, world)?;
        Ok(are_gone && self.in_flight.is_empty() && self.has_acknowledged)
    }

    /// Posts receives for as many chunks as there are buffers.
    fn request_chunks(&mut self, title: &TransferError, world: &WorldInner) -> Result<()> {
        let chunk_bytes = world.settings.chunk_bytes;
        while self.in_flight.len() < world.settings.depth && self.requested < self.bytes {
            let bytes = chunk_bytes.min(self.bytes - self.requested);
            let buffer = world.stager.buffer(chunk_bytes)?;
            let (peer, tag) = (self.control.peer, self.control.tag);
            // SAFETY: the `InFlight` keeps the buffer until the call is complete.
            let pending = unsafe { world.library.irecv(world.chunks, buffer.memory(bytes), peer, tag) };
            let pending = pending.map_err(|code| transfer_error(title.clone(), code))?;
            self.in_flight.push_back(InFlight { buffer, bytes, stage: Stage::Sending(pending) });
            self.requested += bytes;
        }
        Ok(())
    }

    /// Starts to copy received chunks to the device, in order.
    fn store(&mut self, memory: Span, title: &TransferError, world: &WorldInner) -> Result<()> {
        for chunk in &mut self.in_flight {
            let Stage::Sending(pending) = &mut chunk.stage else { continue };
            let Some(status) = world.library.test(pending).map_err(|code| transfer_error(title.clone(), code))? else {
                return Ok(());
            };
            if status.bytes != chunk.bytes {
                let said = format!("received a chunk of {} bytes, expected {}", status.bytes, chunk.bytes).into();
                return Err(Error::Transfer(Box::new(TransferError { message: said, ..title.clone() })));
            }
            let to = CopySegment { device: memory.address + self.stored as u64, offset: 0, bytes: chunk.bytes };
            // SAFETY: the memory is lent, earlier work on it is complete, and the message fits; the `InFlight` keeps
            // the buffer, and the transfer keeps the memory.
            chunk.stage = Stage::Copying(unsafe { world.stager.to_device(&chunk.buffer, &[to]) }?);
            self.stored += chunk.bytes;
        }
        Ok(())
    }

    pub(super) fn abort(self, world: &WorldInner) {
        self.control.abort(world);
        leak_in_flight(self.in_flight, world);
    }
}
