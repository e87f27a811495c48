//! Words about a message between its two ends, behind its envelope: whether it is to come, and what has.

use crate::error::{Failed, Result};
use crate::ranks::Ranks;
use crate::raw::{Memory, Pending};

use super::refused;

/// What a receiver answers to an envelope.
pub(super) const COME: u64 = 1;
pub(super) const STAY: u64 = 0;

/// Which end speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Sender,
    Receiver,
}

/// A word on its way, and the place that it lies in.
pub(super) struct Word {
    place: Box<[u64; 1]>,
    pending: Pending,
}

impl Word {
    /// The word, when it has come, or has gone.
    pub(super) fn test(&mut self, title: &Failed, ranks: &Ranks) -> Result<Option<u64>> {
        let tested = ranks.library.test(&mut self.pending).map_err(|code| refused(title.clone(), code))?;
        Ok(tested.map(|_| self.place[0]))
    }

    fn give_up(self, ranks: &Ranks) {
        if !ranks.library.cancel(self.pending) {
            std::mem::forget(self.place);
        }
    }
}

/// What one end has said, and listens for.
pub(super) struct Line {
    pub(super) peer: i32,
    /// Of what belongs to the message.
    pub(super) tag: i32,
    end: End,
    said: Vec<Word>,
    heard: Option<Word>,
}

impl Line {
    pub(super) fn new(peer: i32, tag: i32, end: End) -> Self {
        Self { peer, tag, end, said: Vec::new(), heard: None }
    }

    pub(super) fn say(&mut self, word: u64, title: &Failed, ranks: &Ranks) -> Result<()> {
        let place = Box::new([word]);
        let comm = if self.end == End::Sender { ranks.chunks } else { ranks.answers };
        // SAFETY: the box goes with the call until it is complete, and nobody changes it.
        let pending = unsafe { ranks.library.isend(comm, Memory::of(&place[..]), self.peer, self.tag) };
        self.said.push(Word { place, pending: pending.map_err(|code| refused(title.clone(), code))? });
        Ok(())
    }

    /// The next word of the other end, when it has come.
    pub(super) fn hear(&mut self, title: &Failed, ranks: &Ranks) -> Result<Option<u64>> {
        let mut heard = match self.heard.take() {
            Some(heard) => heard,
            None => {
                let place = Box::new([0]);
                let comm = if self.end == End::Sender { ranks.answers } else { ranks.chunks };
                // SAFETY: the box goes with the call until it is complete, and nobody reads it before.
                let pending = unsafe { ranks.library.irecv(comm, Memory::of(&place[..]), self.peer, self.tag) };
                Word { place, pending: pending.map_err(|code| refused(title.clone(), code))? }
            }
        };
        let word = heard.test(title, ranks)?;
        if word.is_none() {
            self.heard = Some(heard);
        }
        Ok(word)
    }

    /// Forgets the words that have gone out: whether all have.
    pub(super) fn are_gone(&mut self, title: &Failed, ranks: &Ranks) -> Result<bool> {
        let mut outcome = Ok(());
        self.said.retain_mut(|word| match word.test(title, ranks) {
            Ok(gone) => gone.is_none(),
            Err(error) => {
                outcome = Err(error);
                false
            }
        });
        outcome.map(|()| self.said.is_empty())
    }

    /// Says a last word, whose way nobody watches. Who has died does not hear it.
    pub(super) fn leave(mut self, word: u64, title: &Failed, ranks: &Ranks) {
        if !ranks.watch.has_died(self.peer)
            && self.say(word, title, ranks).is_ok()
            && let Some(word) = self.said.pop()
        {
            // The library reads it when it likes.
            std::mem::forget(word);
        }
        self.give_up(ranks);
    }

    pub(super) fn give_up(self, ranks: &Ranks) {
        self.said.into_iter().chain(self.heard).for_each(|word| word.give_up(ranks));
    }
}
