//! How windows are served: requests of other ranks, and what is moved for each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use freehold::ExternalAccess;

use crate::error::{Failed, Result};
use crate::ranks::{Number, Ranks};
use crate::raw::{Comm, Memory, Pending, Spread, any_source};
use crate::transfer::receive::Receive;
use crate::transfer::send::Send;
use crate::transfer::{Order, Received, Work, refused};

const ASKED_BYTES: usize = 32;

/// How much is to be served, until all ranks have said so.
pub(super) const UNKNOWN: u64 = u64::MAX;

/// What a rank asks of another: to take bytes for its window, or to give some of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) is_get: bool,
    /// In bytes, from the window's first on.
    pub(super) start: u64,
    pub(super) bytes: u64,
    /// Of the message with the bytes.
    pub(super) tag: i32,
}

impl Asked {
    fn encode(self) -> [u8; ASKED_BYTES] {
        let mut bytes = [0; ASKED_BYTES];
        let words = [u64::from(self.is_get), self.start, self.bytes, self.tag as u64];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8; ASKED_BYTES]) -> Self {
        let (words, _) = bytes.as_chunks::<8>();
        let word = |index: usize| u64::from_le_bytes(words[index]);
        Self { is_get: word(0) != 0, start: word(1), bytes: word(2), tag: word(3) as i32 }
    }
}

/// A request to another rank, and what is moved for it.
pub(super) struct Asking {
    comm: Comm,
    rank: i32,
    bytes: Box<[u8; ASKED_BYTES]>,
    request: Asks,
    moving: Option<Box<dyn Work>>,
    /// What its tag is made of.
    number: Option<Number>,
    title: Failed,
}

enum Asks {
    NotYet,
    Now(Pending),
    Over,
}

impl Asking {
    pub(super) fn new(comm: Comm, rank: i32, (asked, number): (Asked, Number), moving: Box<dyn Work>) -> Self {
        let (bytes, title) = (Box::new(asked.encode()), moving.title());
        let what = if asked.is_get { "getting" } else { "putting" };
        let title = Failed { what, tag: None, ..title };
        Self { comm, rank, bytes, request: Asks::NotYet, moving: Some(moving), number: Some(number), title }
    }
}

impl Work for Asking {
    fn order(&self) -> Order {
        Order::Free
    }

    fn is_posted(&self) -> bool {
        true
    }

    fn advance(&mut self, ranks: &Ranks) -> Result<Option<Received>> {
        if let Asks::NotYet = self.request {
            // SAFETY: the box is kept until the call is complete, and nobody changes it.
            let pending = unsafe { ranks.library.isend(self.comm, Memory::of(&self.bytes[..]), self.rank, 0) };
            self.request = Asks::Now(pending.map_err(|code| refused(self.title(), code))?);
        }
        if let Asks::Now(pending) = &mut self.request
            && ranks.library.test(pending).map_err(|code| refused(self.title.clone(), code))?.is_some()
        {
            self.request = Asks::Over;
        }
        if let Some(moving) = &mut self.moving
            && moving.advance(ranks)?.is_some()
        {
            self.moving = None;
        }
        let is_over = self.moving.is_none() && matches!(self.request, Asks::Over);
        if is_over {
            self.number = None;
        }
        Ok(is_over.then_some(Received::NOTHING))
    }

    fn lacks(&self, ranks: &Ranks) -> Option<i32> {
        ranks.watch.has_died(self.rank).then_some(self.rank)
    }

    fn title(&self) -> Failed {
        self.title.clone()
    }

    fn give_up(&mut self, ranks: &Ranks) {
        if let Asks::Now(pending) = std::mem::replace(&mut self.request, Asks::Over)
            && !ranks.library.cancel(pending)
        {
            // The library may still read them.
            std::mem::forget(std::mem::replace(&mut self.bytes, Box::new([0; ASKED_BYTES])));
        }
        if let Some(mut moving) = self.moving.take() {
            moving.give_up(ranks);
        }
        if let Some(number) = self.number.take() {
            number.abandon();
        }
    }
}

/// The window of this rank, while others reach it.
pub(super) struct Serving {
    requests: Comm,
    data: Comm,
    lent: Option<ExternalAccess>,
    memory: Memory,
    /// How many requests come in all.
    expected: Arc<AtomicU64>,
    begun: u64,
    listening: Option<(Box<[u8; ASKED_BYTES]>, Pending)>,
    moving: Vec<Box<dyn Work>>,
    is_written: bool,
}

impl Serving {
    pub(super) fn new(requests: Comm, data: Comm, lent: ExternalAccess, expected: Arc<AtomicU64>) -> Self {
        let memory = Memory { address: lent.address(), bytes: lent.bytes() };
        let (lent, listening, moving) = (Some(lent), None, Vec::new());
        Self { requests, data, lent, memory, expected, begun: 0, listening, moving, is_written: false }
    }

    fn listen(&mut self, ranks: &Ranks) -> Result<()> {
        if self.listening.is_none() {
            let room = Box::new([0; ASKED_BYTES]);
            // SAFETY: the box is kept until the call is complete, and nobody reads it before.
            let pending = unsafe { ranks.library.irecv(self.requests, Memory::of(&room[..]), any_source(), 0) };
            self.listening = Some((room, pending.map_err(|code| refused(self.title(), code))?));
        }
        Ok(())
    }

    /// Begins with what others have asked for since the last time.
    fn hear(&mut self, ranks: &Ranks) -> Result<()> {
        while self.begun < self.expected.load(Ordering::Acquire) {
            self.listen(ranks)?;
            let title = self.title();
            let Some((room, pending)) = &mut self.listening else { unreachable!("it listens, as of above") };
            let status = ranks.library.test(pending).map_err(|code| refused(title, code))?;
            let Some(status) = status else { return Ok(()) };
            let asked = Asked::decode(room);
            self.listening = None;
            self.begun += 1;
            let part = self.memory.part(asked.start as usize, asked.bytes as usize);
            if asked.is_get {
                self.moving.push(Box::new(Send::of(self.data, status.source, asked.tag, part)));
            } else {
                self.is_written = true;
                self.moving.push(Box::new(Receive::of(self.data, Some(status.source), Some(asked.tag), part)));
            }
        }
        Ok(())
    }
}

impl Work for Serving {
    fn order(&self) -> Order {
        Order::Free
    }

    fn is_posted(&self) -> bool {
        true
    }

    fn advance(&mut self, ranks: &Ranks) -> Result<Option<Received>> {
        let lent = self.lent.as_ref().expect("the window is lent until the end");
        if !lent.is_ready()? {
            return Ok(None);
        }
        self.hear(ranks)?;
        let mut moved = Ok(());
        self.moving.retain_mut(|moving| match moving.advance(ranks) {
            Ok(received) => received.is_none(),
            Err(error) => {
                moving.give_up(ranks);
                moved = Err(error);
                false
            }
        });
        moved?;
        if self.begun < self.expected.load(Ordering::Acquire) || !self.moving.is_empty() {
            return Ok(None);
        }
        // Nobody asks any more, and nobody will before all have ended the epoch.
        if let Some((room, pending)) = self.listening.take()
            && !ranks.library.cancel(pending)
        {
            std::mem::forget(room);
        }
        self.lent.take().expect("the window is lent until the end").done();
        Ok(Some(Received::NOTHING))
    }

    fn lacks(&self, ranks: &Ranks) -> Option<i32> {
        ranks.watch.dead()
    }

    fn title(&self) -> Failed {
        let bytes = self.memory.bytes as u64;
        Failed { what: "serving a window of", rank: None, tag: None, bytes, said: Box::default() }
    }

    fn give_up(&mut self, ranks: &Ranks) {
        if let Some((room, pending)) = self.listening.take()
            && !ranks.library.cancel(pending)
        {
            std::mem::forget(room);
        }
        self.moving.drain(..).for_each(|mut moving| moving.give_up(ranks));
        if let Some(lent) = self.lent.take() {
            if self.is_written { lent.failed() } else { lent.done() }
        }
    }
}

/// The sum of what all ranks have asked of this one, which is then expected.
pub(super) struct Counting {
    comm: Comm,
    asked: Vec<u64>,
    counts: Vec<u64>,
    expected: Arc<AtomicU64>,
    pending: Option<Pending>,
}

impl Counting {
    pub(super) fn new(comm: Comm, asked: Vec<u64>, expected: Arc<AtomicU64>) -> Self {
        let counts = vec![0; asked.len()];
        Self { comm, asked, counts, expected, pending: None }
    }
}

impl Work for Counting {
    fn order(&self) -> Order {
        Order::Free
    }

    fn is_posted(&self) -> bool {
        true
    }

    fn advance(&mut self, ranks: &Ranks) -> Result<Option<Received>> {
        let title = self.title();
        let pending = match &mut self.pending {
            Some(pending) => pending,
            none => {
                let ends = (Memory::of(&self.asked), Memory::of(&self.counts));
                // SAFETY: both lists have a number for each rank, and are kept until the call is complete; nobody uses them
                // meanwhile.
                let pending = unsafe { ranks.library.ispread(self.comm, Spread::AllToAll, ends, size_of::<u64>()) };
                none.insert(pending.map_err(|code| refused(title.clone(), code))?)
            }
        };
        if ranks.library.test(pending).map_err(|code| refused(title, code))?.is_none() {
            return Ok(None);
        }
        self.pending = None;
        self.expected.store(self.counts.iter().sum(), Ordering::Release);
        Ok(Some(Received::NOTHING))
    }

    fn lacks(&self, ranks: &Ranks) -> Option<i32> {
        ranks.watch.dead()
    }

    fn title(&self) -> Failed {
        let bytes = size_of_val(&self.asked[..]) as u64;
        Failed { what: "counting what was put and got, in", rank: None, tag: None, bytes, said: Box::default() }
    }

    fn give_up(&mut self, _: &Ranks) {
        if self.pending.take().is_some() {
            // Collective calls cannot be taken back: the library may still use both.
            std::mem::forget((std::mem::take(&mut self.asked), std::mem::take(&mut self.counts)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_is_read_as_it_was_written() {
        for is_get in [false, true] {
            let asked = Asked { is_get, start: 0x1_0000_0001, bytes: 12, tag: 0x7fff };
            assert_eq!(Asked::decode(&asked.encode()), asked);
        }
    }
}
