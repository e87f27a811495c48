//! Memory that was released and can be handed out again: which piece serves a request, and which pieces wait for what.
//!
//! Pure: it knows marks and spans, and is told what has passed. A piece is free in its home stream as soon as its marks
//! have passed; in other streams when the home stream, too, has passed its last use.

use std::collections::{BTreeMap, VecDeque};

use crate::ledger::{BlockId, ContextId, Ledger, Mark, StreamId};

/// Sizes are rounded up to a multiple of this.
const GRANULE_BYTES: u64 = 512;

/// How many pieces that wait are looked at for one request.
const LOOKS_MAX: usize = 64;

/// A piece of memory that was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) block: BlockId,
    pub(crate) base: u64,
    pub(crate) capacity_bytes: u64,
    /// The last use in the stream that it lived in.
    pub(crate) home: Mark,
}

/// How many bytes are asked of the driver for a block of `bytes`: at most an eighth more, so that blocks of about one size
/// serve each other.
pub(crate) fn capacity_of(bytes: u64) -> Option<u64> {
    let granule = (bytes.checked_next_power_of_two()? / 8).max(GRANULE_BYTES);
    bytes.checked_next_multiple_of(granule)
}

#[derive(Debug, Default)]
pub(crate) struct Stock {
    /// Free in their home stream, the last released last.
    ready: BTreeMap<(StreamId, u64), VecDeque<Piece>>,
    /// By context and capacity: pieces with marks, and those of streams that are gone.
    waiting: BTreeMap<(ContextId, u64), VecDeque<Piece>>,
    /// The home streams of each context that have pieces of a capacity.
    homes: BTreeMap<(ContextId, u64), Vec<StreamId>>,
}

/// What a request got.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Piece(Piece),
    /// Nothing; where these are marked, a later request may find something.
    Unmarked(Vec<Mark>),
}

impl Stock {
    /// Takes in a piece whose release the ledger has noted.
    pub(crate) fn put(&mut self, ledger: &Ledger, context: ContextId, piece: Piece) {
        if ledger.marks(piece.block).is_empty() {
            self.put_ready(context, piece);
        } else {
            self.waiting.entry((context, piece.capacity_bytes)).or_default().push_back(piece);
        }
    }

    /// A piece of `capacity_bytes` for work in `stream`.
    pub(crate) fn take(
        &mut self,
        ledger: &mut Ledger,
        context: ContextId,
        stream: StreamId,
        capacity_bytes: u64,
        mut has_passed: impl FnMut(Mark) -> bool,
    ) -> Found {
        if let Some(piece) = self.ready.get_mut(&(stream, capacity_bytes)).and_then(VecDeque::pop_back) {
            return Found::Piece(piece);
        }
        let mut unmarked = Vec::new();
        if let Some(waiting) = self.waiting.get_mut(&(context, capacity_bytes)) {
            let looked = waiting.len().min(LOOKS_MAX);
            for index in 0..looked {
                let piece = waiting[index];
                let is_free = ledger.settle(piece.block, &mut has_passed);
                if is_free && (piece.home.stream == stream || has_passed(piece.home)) {
                    waiting.remove(index);
                    return Found::Piece(piece);
                }
                // A mark that failed when the piece was released is still to be made.
                unmarked.extend_from_slice(ledger.marks(piece.block));
                if is_free {
                    unmarked.push(piece.home);
                }
            }
            // The next request looks at others first.
            waiting.rotate_left(looked);
        }
        let Some(homes) = self.homes.get_mut(&(context, capacity_bytes)) else { return Found::Unmarked(unmarked) };
        let mut index = 0;
        while let Some(&home) = homes.get(index) {
            match self.ready.get_mut(&(home, capacity_bytes)) {
                Some(pieces) if !pieces.is_empty() => {
                    // The first one was released first, so that its mark passes first.
                    if has_passed(pieces[0].home)
                        && let Some(piece) = pieces.pop_front()
                    {
                        return Found::Piece(piece);
                    }
                    unmarked.push(pieces[0].home);
                    index += 1;
                }
                // A stream without pieces may be gone, and then nobody else would strike it off.
                _ => {
                    self.ready.remove(&(home, capacity_bytes));
                    homes.swap_remove(index);
                }
            }
        }
        Found::Unmarked(unmarked)
    }

    /// All pieces of a context that have nothing to wait for.
    pub(crate) fn drain_passed(
        &mut self,
        ledger: &mut Ledger,
        context: ContextId,
        mut has_passed: impl FnMut(Mark) -> bool,
    ) -> Vec<Piece> {
        let mut drained = Vec::new();
        for ((_, capacity_bytes), homes) in self.homes.range((context, 0)..=(context, u64::MAX)) {
            for home in homes {
                if let Some(pieces) = self.ready.get_mut(&(*home, *capacity_bytes)) {
                    pieces.retain(|piece| {
                        let waits = !has_passed(piece.home);
                        if !waits {
                            drained.push(*piece);
                        }
                        waits
                    });
                }
            }
        }
        for (_, waiting) in self.waiting.range_mut((context, 0)..=(context, u64::MAX)) {
            waiting.retain(|piece| {
                let waits = !(ledger.settle(piece.block, &mut has_passed) && has_passed(piece.home));
                if !waits {
                    drained.push(*piece);
                }
                waits
            });
        }
        drained
    }

    /// Lets the pieces of a stream that is gone serve all others.
    pub(crate) fn end_stream(&mut self, context: ContextId, stream: StreamId) {
        for ((_, capacity_bytes), homes) in self.homes.range_mut((context, 0)..=(context, u64::MAX)) {
            homes.retain(|&home| home != stream);
            if let Some(pieces) = self.ready.remove(&(stream, *capacity_bytes)) {
                self.waiting.entry((context, *capacity_bytes)).or_default().extend(pieces);
            }
        }
        self.homes.retain(|_, homes| !homes.is_empty());
    }

    /// Forgets all pieces of a context that is gone.
    pub(crate) fn forget_context(&mut self, context: ContextId) {
        for ((_, capacity_bytes), homes) in self.homes.extract_if((context, 0)..=(context, u64::MAX), |_, _| true) {
            for home in homes {
                self.ready.remove(&(home, capacity_bytes));
            }
        }
        self.waiting.extract_if((context, 0)..=(context, u64::MAX), |_, _| true).for_each(drop);
    }

    fn put_ready(&mut self, context: ContextId, piece: Piece) {
        let pieces = self.ready.entry((piece.home.stream, piece.capacity_bytes)).or_default();
        if pieces.is_empty() {
            let homes = self.homes.entry((context, piece.capacity_bytes)).or_default();
            if !homes.contains(&piece.home.stream) {
                homes.push(piece.home.stream);
            }
        }
        pieces.push_back(piece);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::Location;

    use super::*;
    use crate::ledger::{Entry, Kind, Release};

    const CONTEXT: ContextId = ContextId(0);

    #[test]
    fn streams_that_are_gone_are_struck_off_when_their_pieces_are() {
        let (mut stock, mut ledger) = (Stock::default(), Ledger::default());
        let entry = Entry {
            base: 1 << 20,
            bytes: 512,
            capacity_bytes: 512,
            context: CONTEXT,
            stream: None,
            process: 1,
            kind: Kind::Own,
            tag: None,
            allocated_at: Location::caller(),
        };
        let mut block = ledger.enter(entry).unwrap();
        for number in 1..=100 {
            let gone = StreamId(number);
            ledger.release(block, Release { marks: Vec::new(), released_at: None, when: Default::default() });
            let home = Mark { stream: gone, position: 1 };
            stock.put(&ledger, CONTEXT, Piece { block, base: 1 << 20, capacity_bytes: 512, home });
            let found = stock.take(&mut ledger, CONTEXT, StreamId(0), 512, |_| true);
            let Found::Piece(piece) = found else { panic!("{found:?}") };
            block = ledger.reuse(piece.block, 512, CONTEXT, None, None, Location::caller());
        }
        assert_eq!(stock.take(&mut ledger, CONTEXT, StreamId(0), 512, |_| true), Found::Unmarked(Vec::new()));
        assert_eq!((stock.homes[&(CONTEXT, 512)].len(), stock.ready.len()), (0, 0));
    }
}
