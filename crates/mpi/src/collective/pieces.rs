//! A collective call in pieces: each is copied to the host, given to the library, and copied back, and several are on their way.
//! Where the library takes device memory, a piece is the memory itself.

use std::collections::VecDeque;

use freehold::{Event, ExternalAccess};

use super::Ends;
use crate::copies::{Buffer, Move};
use crate::element::{Kind, Op};
use crate::error::{Error, Failed, Result};
use crate::ranks::Ranks;
use crate::raw::{Code, Memory, Pending, Spread};
use crate::settings::Path;
use crate::transfer::{Order, Received, Work};

/// How many pieces are on their way.
const DEPTH: usize = 4;

/// The longest piece of device memory that the library is given at once: counts are of 31 bits.
const DIRECT_BYTES_MAX: usize = 1 << 30;

#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    Broadcast {
        root: i32,
    },
    /// Without a root, for all.
    Reduce {
        root: Option<i32>,
        op: Op,
        kind: Kind,
    },
    Spread(Spread),
}

/// A collective call that is under way.
pub(crate) struct Collective {
    what: What,
    ends: Ends,
    /// Of each rank's part.
    part_bytes: usize,
    element_bytes: usize,
    /// How many bytes of each part have a piece.
    taken: usize,
    pieces: VecDeque<Piece>,
    has_begun: bool,
}

/// Some bytes of every part.
struct Piece {
    start: usize,
    bytes: usize,
    /// None where the memory itself is given, or there is nothing to give.
    from: Option<Buffer>,
    to: Option<Buffer>,
    stage: Stage,
}

enum Stage {
    Loading(Option<Event>),
    Called(Pending),
    Storing(Option<Event>),
}

impl Collective {
    pub(crate) fn new(what: What, ends: Ends, part_bytes: usize, element_bytes: usize) -> Self {
        let (taken, pieces) = (0, VecDeque::new());
        Self { what, ends, part_bytes, element_bytes, taken, pieces, has_begun: false }
    }

    /// How many parts this rank gives, and is given.
    fn parts(&self, ranks: &Ranks) -> (usize, usize) {
        let size = ranks.size as usize;
        let (from, to) = match self.what {
            What::Broadcast { .. } | What::Reduce { .. } => (1, 1),
            What::Spread(Spread::Gather(_)) => (1, size),
            What::Spread(Spread::Scatter(_)) => (size, 1),
            What::Spread(Spread::AllToAll) => (size, size),
        };
        let (has_from, has_to) = (self.ends.0.is_some(), self.ends.1.is_some());
        (if has_from { from } else { 0 }, if has_to { to } else { 0 })
    }

    /// The most parts that any rank gives or is given: pieces are the same at all.
    fn parts_max(&self, ranks: &Ranks) -> usize {
        if matches!(self.what, What::Spread(_)) { ranks.size as usize } else { 1 }
    }

    /// Whether the library is given device memory. The same at all ranks.
    fn is_direct(&self, ranks: &Ranks) -> bool {
        // Parts that are cut do not lie side by side.
        let is_whole = !matches!(self.what, What::Spread(_)) || self.part_bytes <= DIRECT_BYTES_MAX;
        ranks.choice.collectives == Path::Direct && is_whole
    }

    fn piece_bytes(&self, ranks: &Ranks) -> usize {
        if self.is_direct(ranks) {
            return DIRECT_BYTES_MAX;
        }
        let bytes = ranks.settings.chunk_bytes / self.parts_max(ranks);
        (bytes / self.element_bytes * self.element_bytes).max(self.element_bytes)
    }

    /// Begins to copy what there is room for.
    fn load(&mut self, ranks: &Ranks) -> Result<()> {
        let (piece_bytes, is_direct, parts) = (self.piece_bytes(ranks), self.is_direct(ranks), self.parts(ranks));
        while self.pieces.len() < DEPTH && self.taken < self.part_bytes {
            let (start, bytes) = (self.taken, piece_bytes.min(self.part_bytes - self.taken));
            let buffer = |parts: usize| -> Result<Option<Buffer>> {
                let wanted = parts * piece_bytes.min(self.part_bytes.next_power_of_two());
                if is_direct || parts == 0 { Ok(None) } else { ranks.copies.buffer(wanted).map(Some) }
            };
            let (mut from, to) = (buffer(parts.0)?, buffer(parts.1)?);
            let loading = match (&mut from, &self.ends.0) {
                (Some(buffer), Some(lent)) => {
                    let moves = self.moves(lent, parts.0, start, bytes);
                    // SAFETY: the memory is lent, and all before that has passed; the piece keeps the buffer, and the call the
                    // memory.
                    Some(unsafe { ranks.copies.to_host(buffer, &moves) }?)
                }
                _ => None,
            };
            self.pieces.push_back(Piece { start, bytes, from, to, stage: Stage::Loading(loading) });
            self.taken += bytes;
        }
        Ok(())
    }

    /// Where some bytes of each part lie, on the device and in a buffer.
    fn moves(&self, lent: &ExternalAccess, parts: usize, start: usize, bytes: usize) -> Vec<Move> {
        let of = |part: usize| Move {
            device: lent.address() + (part * self.part_bytes + start) as u64,
            at: part * bytes,
            bytes,
        };
        (0..parts).map(of).collect()
    }

    fn call(&self, piece: &Piece, ranks: &Ranks) -> std::result::Result<Pending, Code> {
        let parts = self.parts(ranks);
        let memory = |buffer: &Option<Buffer>, lent: &Option<ExternalAccess>, parts: usize| match (buffer, lent) {
            (Some(buffer), _) => buffer.memory(parts * piece.bytes),
            (None, Some(lent)) => Memory { address: lent.address() + piece.start as u64, bytes: parts * piece.bytes },
            (None, None) => Memory { address: 0, bytes: 0 },
        };
        let from = memory(&piece.from, &self.ends.0, parts.0);
        let to = memory(&piece.to, &self.ends.1, parts.1);
        let (library, comm) = (&ranks.library, ranks.collectives);
        match self.what {
            What::Broadcast { root } => {
                let memory = if root == ranks.rank { from } else { to };
                // SAFETY: the memory is a buffer that the piece keeps until the call is complete, or lent until then and such
                // as the library takes; all before that has passed.
                unsafe { library.ibroadcast(comm, memory, root) }
            }
            What::Reduce { root, op, kind } => {
                let count = piece.bytes / self.element_bytes;
                // SAFETY: as above, for both; each holds so many elements.
                unsafe { library.ireduce(comm, (from, to), (count, kind, op), root) }
            }
            What::Spread(spread) => {
                // SAFETY: as above, for both; each holds so many bytes for each of its parts.
                unsafe { library.ispread(comm, spread, (from, to), piece.bytes) }
            }
        }
    }

    /// Goes on with each piece, in their order.
    fn move_on(&mut self, ranks: &Ranks) -> Result<()> {
        let (title, parts) = (self.title(), self.parts(ranks));
        let refused = |code: Code| Error::Failed(Box::new(Failed { said: code.said, ..title.clone() }));
        let mut pieces = std::mem::take(&mut self.pieces);
        let mut moved = Ok(());
        for piece in &mut pieces {
            moved = self.move_piece(piece, parts.1, ranks, &refused);
            // The library hears of pieces in their order.
            if moved.is_err() || matches!(piece.stage, Stage::Loading(_)) {
                break;
            }
        }
        self.pieces = pieces;
        moved
    }

    fn move_piece(
        &self,
        piece: &mut Piece,
        parts: usize,
        ranks: &Ranks,
        refused: &impl Fn(Code) -> Error,
    ) -> Result<()> {
        if let Stage::Loading(event) = &piece.stage
            && event.as_ref().map_or(Ok(true), Event::is_complete)?
        {
            piece.stage = Stage::Called(self.call(piece, ranks).map_err(refused)?);
        }
        if let Stage::Called(pending) = &mut piece.stage
            && ranks.library.test(pending).map_err(refused)?.is_some()
        {
            let storing = match (&piece.to, &self.ends.1) {
                (Some(buffer), Some(lent)) => {
                    let moves = self.moves(lent, parts, piece.start, piece.bytes);
                    // SAFETY: the memory is lent, and all before that has passed; the piece keeps the buffer, and the call the
                    // memory.
                    Some(unsafe { ranks.copies.to_device(buffer, &moves) }?)
                }
                _ => None,
            };
            piece.stage = Stage::Storing(storing);
        }
        Ok(())
    }
}

impl Work for Collective {
    fn order(&self) -> Order {
        Order::Collective
    }

    fn is_posted(&self) -> bool {
        let is_called = |piece: &Piece| !matches!(piece.stage, Stage::Loading(_));
        self.has_begun && self.taken == self.part_bytes && self.pieces.iter().all(is_called)
    }

    fn advance(&mut self, ranks: &Ranks) -> Result<Option<Received>> {
        if !self.has_begun {
            for lent in [&self.ends.0, &self.ends.1].into_iter().flatten() {
                if !lent.is_ready()? {
                    return Ok(None);
                }
            }
            self.has_begun = true;
        }
        self.load(ranks)?;
        self.move_on(ranks)?;
        while let Some(Piece { stage: Stage::Storing(event), .. }) = self.pieces.front() {
            if !event.as_ref().map_or(Ok(true), Event::is_complete)? {
                break;
            }
            self.pieces.pop_front();
        }
        if self.taken < self.part_bytes || !self.pieces.is_empty() {
            return Ok(None);
        }
        for lent in [self.ends.0.take(), self.ends.1.take()].into_iter().flatten() {
            lent.done();
        }
        Ok(Some(Received::NOTHING))
    }

    fn lacks(&self, ranks: &Ranks) -> Option<i32> {
        ranks.watch.dead()
    }

    fn title(&self) -> Failed {
        let (what, rank) = match self.what {
            What::Broadcast { root } => ("broadcasting", Some(root)),
            What::Reduce { root, .. } => ("reducing", root),
            What::Spread(Spread::Gather(root)) => ("gathering", Some(root)),
            What::Spread(Spread::Scatter(root)) => ("scattering", Some(root)),
            What::Spread(Spread::AllToAll) => ("exchanging", None),
        };
        Failed { what, rank, tag: None, bytes: self.part_bytes as u64, said: Box::default() }
    }

    fn give_up(&mut self, ranks: &Ranks) {
        if let Err(error) = ranks.copies.settle() {
            ranks.trouble(error);
        }
        for piece in self.pieces.drain(..) {
            if let Stage::Called(_) = piece.stage {
                // Collective calls cannot be taken back: the library may still use the buffers.
                piece.from.into_iter().chain(piece.to).for_each(Buffer::abandon);
            }
        }
        let (from, to) = (self.ends.0.take(), self.ends.1.take());
        if let Some(from) = from {
            from.done();
        }
        if let Some(to) = to {
            if self.has_begun { to.failed() } else { to.done() }
        }
    }
}

/// A wait for all ranks.
pub(crate) struct Barrier {
    pending: Option<Pending>,
}

impl Barrier {
    pub(crate) fn new() -> Self {
        Self { pending: None }
    }
}

impl Work for Barrier {
    fn order(&self) -> Order {
        Order::Collective
    }

    fn is_posted(&self) -> bool {
        self.pending.is_some()
    }

    fn advance(&mut self, ranks: &Ranks) -> Result<Option<Received>> {
        let title = self.title();
        let refused = |code: Code| Error::Failed(Box::new(Failed { said: code.said, ..title }));
        let pending = match &mut self.pending {
            Some(pending) => pending,
            None => self.pending.insert(ranks.library.ibarrier(ranks.collectives).map_err(&refused)?),
        };
        Ok(ranks.library.test(pending).map_err(&refused)?.map(|_| Received::NOTHING))
    }

    fn lacks(&self, ranks: &Ranks) -> Option<i32> {
        ranks.watch.dead()
    }

    fn title(&self) -> Failed {
        Failed { what: "waiting for all ranks with", rank: None, tag: None, bytes: 0, said: Box::default() }
    }

    fn give_up(&mut self, _: &Ranks) {
        self.pending = None;
    }
}
