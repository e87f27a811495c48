//! Control words between sender and receiver of a message, after its envelope: whether to proceed, and which data has
//! arrived.

use crate::error::{Result, TransferError};
use crate::raw::{RawRequest, Span};
use crate::world_inner::WorldInner;

use super::transfer_error;

/// A receiver's answer to an envelope.
pub(super) const PROCEED: u64 = 1;
pub(super) const DECLINE: u64 = 0;

/// Which side of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Sender,
    Receiver,
}

/// A control word in flight, and its memory.
pub(super) struct ControlWord {
    buffer: Box<[u64; 1]>,
    pending: RawRequest,
}

impl ControlWord {
    /// Returns the word once it has been received or sent.
    pub(super) fn test(&mut self, title: &TransferError, world: &WorldInner) -> Result<Option<u64>> {
        let tested = world.library.test(&mut self.pending).map_err(|code| transfer_error(title.clone(), code))?;
        Ok(tested.map(|_| self.buffer[0]))
    }

    fn abort(self, world: &WorldInner) {
        if !world.library.cancel(self.pending) {
            std::mem::forget(self.buffer);
        }
    }
}

/// The control words that one side has sent, and the receive it has posted.
pub(super) struct ControlChannel {
    pub(super) peer: i32,
    /// The tag of the message's chunks and words.
    pub(super) tag: i32,
    side: Side,
    sending: Vec<ControlWord>,
    receiving: Option<ControlWord>,
}

impl ControlChannel {
    pub(super) fn new(peer: i32, tag: i32, end: Side) -> Self {
        Self { peer, tag, side: end, sending: Vec::new(), receiving: None }
    }

    pub(super) fn send(&mut self, word: u64, title: &TransferError, world: &WorldInner) -> Result<()> {
        let place = Box::new([word]);
        let comm = if self.side == Side::Sender { world.chunks } else { world.answers };
        // SAFETY: the box is kept until the call is complete, and nothing changes it.
        let pending = unsafe { world.library.isend(comm, Span::from_slice(&place[..]), self.peer, self.tag) };
        self.sending
            .push(ControlWord { buffer: place, pending: pending.map_err(|code| transfer_error(title.clone(), code))? });
        Ok(())
    }

    /// Returns the other side's next word, if it has arrived.
    pub(super) fn try_recv(&mut self, title: &TransferError, world: &WorldInner) -> Result<Option<u64>> {
        let mut heard = match self.receiving.take() {
            Some(heard) => heard,
            None => {
                let place = Box::new([0]);
                let comm = if self.side == Side::Sender { world.answers } else { world.chunks };
                // SAFETY: the box is kept until the call is complete, and nothing reads it before.
                let pending = unsafe { world.library.irecv(comm, Span::from_slice(&place[..]), self.peer, self.tag) };
                ControlWord { buffer: place, pending: pending.map_err(|code| transfer_error(title.clone(), code))? }
            }
        };
        let word = heard.test(title, world)?;
        if word.is_none() {
            self.receiving = Some(heard);
        }
        Ok(word)
    }

    /// Frees the words that have been sent. Returns whether all have.
    pub(super) fn is_flushed(&mut self, title: &TransferError, world: &WorldInner) -> Result<bool> {
        let mut outcome = Ok(());
        self.sending.retain_mut(|word| match word.test(title, world) {
            Ok(gone) => gone.is_none(),
            Err(error) => {
                outcome = Err(error);
                false
            }
        });
        outcome.map(|()| self.sending.is_empty())
    }

    /// Sends a last word without waiting for it. A dead rank does not receive it.
    pub(super) fn close_with(mut self, word: u64, title: &TransferError, world: &WorldInner) {
        if !world.liveness.has_died(self.peer)
            && self.send(word, title, world).is_ok()
            && let Some(word) = self.sending.pop()
        {
            // The library may read it at any time.
            std::mem::forget(word);
        }
        self.abort(world);
    }

    pub(super) fn abort(self, world: &WorldInner) {
        self.sending.into_iter().chain(self.receiving).for_each(|word| word.abort(world));
    }
}
