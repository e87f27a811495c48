//! Messages between ranks of one machine: the sender copies into a slot that both ranks have mapped, and the receiver
//! copies out of it; only control words go through MPI. Between ranks of one device, no data enters host memory.

use std::collections::VecDeque;

use freehold::Event;

use super::control::{ControlChannel, DECLINE, PROCEED, Side};
use crate::error::{Error, Result, TransferError};
use crate::node_peers::SharedMemoryKind;
use crate::raw::Span;
use crate::world_inner::WorldInner;

/// How many slots a receiver copies at once.
const DEPTH: usize = 4;

/// The sender's side, after the envelope.
pub(super) struct SharedSender {
    control: ControlChannel,
    kind: SharedMemoryKind,
    is_accepted: bool,
    /// How many bytes have been given a slot.
    next_offset: usize,
    filled: VecDeque<FilledSlot>,
    is_done: bool,
    /// Whether the receiver gave up after accepting: control words to it may still be in flight.
    is_declined: bool,
}

struct FilledSlot {
    slot: usize,
    bytes: usize,
    /// `None` once the receiver was told.
    copying: Option<Event>,
}

impl SharedSender {
    pub(super) fn new(peer: i32, tag: i32, kind: SharedMemoryKind) -> Self {
        let line = ControlChannel::new(peer, tag, Side::Sender);
        Self {
            control: line,
            kind,
            is_accepted: false,
            next_offset: 0,
            filled: VecDeque::new(),
            is_done: false,
            is_declined: false,
        }
    }

    /// Makes progress. Returns whether the receiver has everything.
    pub(super) fn advance(&mut self, memory: Span, title: &TransferError, world: &WorldInner) -> Result<bool> {
        self.recv_control(memory, title, world)?;
        let neighbours = world.node_peers(self.kind);
        while self.is_accepted && self.next_offset < memory.bytes {
            let Some((slot, place)) = neighbours.alloc_slot() else { break };
            let bytes = neighbours.slot_bytes().min(memory.bytes - self.next_offset);
            // SAFETY: the memory is lent, and earlier work on it is complete; the slot belongs to this message until it
            // is answered.
            let copied = unsafe { world.stager.copy_out(memory.address + self.next_offset as u64, place, bytes) };
            let copying = Some(copied.inspect_err(|_| neighbours.free_slot(slot))?);
            self.filled.push_back(FilledSlot { slot, bytes, copying });
            self.next_offset += bytes;
        }
        for piece in &mut self.filled {
            let Some(copying) = &piece.copying else { continue };
            if !copying.is_complete()? {
                break;
            }
            piece.copying = None;
            self.control.send((piece.slot as u64) << 32 | piece.bytes as u64, title, world)?;
        }
        let are_gone = self.control.is_flushed(title, world)?;
        Ok(self.is_done && are_gone)
    }

    /// Receives whether the receiver accepts the message, and then which slots it has copied.
    fn recv_control(&mut self, memory: Span, title: &TransferError, world: &WorldInner) -> Result<()> {
        while !self.is_done {
            let Some(word) = self.control.try_recv(title, world)? else { return Ok(()) };
            if word == DECLINE {
                (self.is_done, self.is_declined) = (true, self.is_accepted);
                world.synchronize_copies();
                let pieces = self.filled.drain(..);
                pieces.for_each(|piece| world.node_peers(self.kind).free_slot(piece.slot));
                return Ok(());
            }
            if !self.is_accepted {
                self.is_accepted = true;
            } else if let Some(piece) = self.filled.pop_front() {
                world.node_peers(self.kind).free_slot(piece.slot);
            }
            self.is_done |= self.is_accepted && self.next_offset == memory.bytes && self.filled.is_empty();
        }
        Ok(())
    }

    /// Returns whether the message id must not be reused.
    pub(super) fn is_declined(&self) -> bool {
        self.is_declined
    }

    pub(super) fn abort(self, world: &WorldInner) {
        let has_died = world.liveness.has_died(self.control.peer);
        self.control.abort(world);
        world.synchronize_copies();
        // A live receiver may still read the slots it was told about, so those are never reused.
        let unread = self.filled.into_iter().filter(|piece| has_died || piece.copying.is_some());
        unread.for_each(|piece| world.node_peers(self.kind).free_slot(piece.slot));
    }
}

/// The receiver's side, after the envelope.
pub(super) struct SharedReceiver {
    control: ControlChannel,
    kind: SharedMemoryKind,
    bytes: usize,
    has_answered: bool,
    /// How many bytes have been copied, or are being copied.
    received: usize,
    copying: VecDeque<Event>,
}

impl SharedReceiver {
    pub(super) fn new(peer: i32, tag: i32, kind: SharedMemoryKind, bytes: usize) -> Self {
        let line = ControlChannel::new(peer, tag, Side::Receiver);
        Self { control: line, kind, bytes, has_answered: false, received: 0, copying: VecDeque::new() }
    }

    /// Makes progress, into memory that is ready. Returns whether all data has arrived.
    pub(super) fn advance(&mut self, memory: Span, title: &TransferError, world: &WorldInner) -> Result<bool> {
        if !self.has_answered {
            self.has_answered = true;
            self.control.send(PROCEED, title, world)?;
        }
        while self.received < self.bytes && self.copying.len() < DEPTH {
            let Some(word) = self.control.try_recv(title, world)? else { break };
            let (slot, bytes) = ((word >> 32) as usize, word as u32 as usize);
            let neighbours = world.node_peers(self.kind);
            let bytes_max = neighbours.slot_bytes().min(self.bytes - self.received);
            let from = neighbours.peer_slot(self.control.peer, slot).filter(|_| bytes <= bytes_max);
            let Some(from) = from else {
                let said = "the sender named a slot that it does not share".into();
                return Err(Error::Transfer(Box::new(TransferError { message: said, ..title.clone() })));
            };
            // SAFETY: the memory is lent, and earlier work on it is complete; the slot belongs to the message until it
            // is answered, and the sender's copy into it is complete.
            let copied = unsafe { world.stager.copy_in(from, memory.address + self.received as u64, bytes) };
            self.copying.push_back(copied?);
            self.received += bytes;
        }
        while let Some(event) = self.copying.front() {
            if !event.is_complete()? {
                break;
            }
            self.copying.pop_front();
            self.control.send(PROCEED, title, world)?;
        }
        let are_gone = self.control.is_flushed(title, world)?;
        Ok(are_gone && self.received == self.bytes && self.copying.is_empty())
    }

    /// Tells the sender, which then frees its slots.
    pub(super) fn abort(self, title: &TransferError, world: &WorldInner) {
        world.synchronize_copies();
        self.control.close_with(DECLINE, title, world);
    }
}
