//! The ledger as a list: each lookup is a scan. Based only on the ledger's documentation.

use std::panic::Location;
use std::time::Duration;

use freehold::ledger::{
    BlockId, ContextId, EndReason, Entry, Fence, Kind, LedgerStats, Owner, Release, State, WrongRelease,
};
use freehold_testing::Random;

pub(crate) struct Block {
    pub(crate) entry: Entry,
    id: Option<BlockId>,
    /// None of a block that is gone.
    pub(crate) state: Option<State>,
    pub(crate) marks: Vec<Fence>,
    released: Option<(Option<&'static Location<'static>>, Duration)>,
    /// When its context went, if it went with it.
    ended: Option<Duration>,
}

impl Block {
    pub(crate) fn id(&self) -> BlockId {
        self.id.expect("a block that was entered has an id")
    }

    /// The last address, of what was asked for or of what the driver gave.
    fn last(&self, bytes: u64) -> u64 {
        self.entry.base + (bytes - 1)
    }

    fn has(&self, address: u64) -> bool {
        (self.entry.base..=self.last(self.entry.bytes)).contains(&address)
    }
}

#[derive(Default)]
pub(crate) struct Model {
    pub(crate) blocks: Vec<Block>,
}

impl Model {
    /// The place of the new block, or of the first that is in the way, or neither.
    pub(crate) fn enter(&mut self, entry: &Entry) -> Result<usize, Option<usize>> {
        let last = entry.base.checked_add(entry.capacity_bytes - 1).filter(|_| entry.bytes > 0).ok_or(None)?;
        let overlaps = |block: &Block| block.entry.base <= last && block.last(block.entry.capacity_bytes) >= entry.base;
        let live = (0..self.blocks.len())
            .filter(|&place| self.blocks[place].state.is_some() && overlaps(&self.blocks[place]))
            .min_by_key(|&place| self.blocks[place].entry.base);
        if live.is_some() {
            return Err(live);
        }
        self.blocks.retain(|block| !overlaps(block));
        self.blocks.push(Block {
            entry: entry.clone(),
            id: None,
            state: Some(State::Owned),
            marks: Vec::new(),
            released: None,
            ended: None,
        });
        Ok(self.blocks.len() - 1)
    }

    /// The first block that is in the way of a longer one, or neither.
    pub(crate) fn resize(&mut self, place: usize, bytes: u64) -> Result<(), Option<usize>> {
        let (base, id) = (self.blocks[place].entry.base, self.blocks[place].id());
        let last = base.checked_add(bytes.checked_sub(1).ok_or(None)?).ok_or(None)?;
        let overlaps = |block: &Block| {
            block.id != Some(id) && block.entry.base <= last && block.last(block.entry.capacity_bytes) >= base
        };
        let live = (0..self.blocks.len())
            .filter(|&other| self.blocks[other].state.is_some() && overlaps(&self.blocks[other]))
            .min_by_key(|&other| self.blocks[other].entry.base);
        if live.is_some() {
            return Err(live);
        }
        let entry = &mut self.blocks[place].entry;
        (entry.bytes, entry.capacity_bytes) = (bytes, bytes);
        self.blocks.retain(|block| !overlaps(block));
        Ok(())
    }

    pub(crate) fn identify(&mut self, place: usize, id: BlockId) {
        self.blocks[place].id = Some(id);
    }

    pub(crate) fn traces(&self) -> usize {
        self.blocks.iter().filter(|block| block.state.is_none()).count()
    }

    pub(crate) fn owner(&self, place: usize) -> Option<Owner> {
        let block = &self.blocks[place];
        let entry = block.entry.clone();
        Some(Owner {
            base: entry.base,
            bytes: entry.bytes,
            context: entry.context,
            stream: entry.stream,
            process: entry.process,
            kind: entry.kind,
            tag: entry.tag,
            allocated_at: Some(entry.allocated_at),
            state: block.state?,
            block: block.id(),
        })
    }

    fn at(&self, address: u64) -> Option<usize> {
        self.blocks.iter().position(|block| block.has(address))
    }

    pub(crate) fn owner_of(&self, address: u64) -> Option<Owner> {
        self.owner(self.at(address)?)
    }

    /// Is an address of the driver's, beyond what was asked for?
    pub(crate) fn is_slack(&self, address: u64) -> bool {
        self.blocks.iter().any(|block| {
            let given = block.entry.base..=block.last(block.entry.capacity_bytes);
            block.state.is_some() && given.contains(&address) && !block.has(address)
        })
    }

    pub(crate) fn releasable(&self, address: u64) -> Result<BlockId, WrongRelease> {
        let place = self.at(address).ok_or(WrongRelease::NeverAllocated { address })?;
        let block = &self.blocks[place];
        let (base, bytes, allocated_at) = (block.entry.base, block.entry.bytes, Some(block.entry.allocated_at));
        let offset_bytes = address - base;
        if block.state == Some(State::Owned) {
            let of = Box::new(self.owner(place).expect("an owned block has an owner"));
            return match block.entry.kind {
                Kind::Own if offset_bytes == 0 => Ok(block.id()),
                Kind::Own => Err(WrongRelease::Interior { of, offset_bytes }),
                Kind::Adopted => Err(WrongRelease::Adopted { of }),
                Kind::Imported => Err(WrongRelease::Imported { of }),
            };
        }
        Err(match (block.ended, block.released) {
            (Some(when), _) => WrongRelease::ContextDestroyed { base, bytes, allocated_at, when, offset_bytes },
            (None, released) => WrongRelease::AlreadyReleased {
                base,
                bytes,
                allocated_at,
                released_at: released.and_then(|(at, _)| at),
                when: released.map(|(_, when)| when),
                offset_bytes,
            },
        })
    }

    pub(crate) fn release(&mut self, place: usize, release: Release) {
        let block = &mut self.blocks[place];
        block.released = Some((release.released_at, release.when));
        block.state = Some(match release.fences.len() {
            0 => State::Free,
            count => State::Released { waiting_for: count as u32 },
        });
        block.marks = release.fences;
    }

    pub(crate) fn forget(&mut self, place: usize, why: EndReason) {
        let block = &mut self.blocks[place];
        block.state = None;
        block.marks.clear();
        match why {
            EndReason::ContextDestroyed(when) => block.ended = Some(when),
            EndReason::Returned if block.entry.kind == Kind::Adopted => drop(self.blocks.swap_remove(place)),
            _ => {}
        }
    }

    pub(crate) fn end_context(&mut self, context: ContextId, when: Duration) -> Vec<BlockId> {
        let mut ended = Vec::new();
        for block in &mut self.blocks {
            if block.state.is_some() && block.entry.context == context {
                ended.push((block.entry.base, block.id()));
                (block.state, block.ended) = (None, Some(when));
                block.marks.clear();
            }
        }
        ended.sort_unstable();
        ended.into_iter().map(|(_, id)| id).collect()
    }

    pub(crate) fn owned(&self) -> Vec<Owner> {
        let owned = |block: &Block| block.state == Some(State::Owned) && block.entry.kind == Kind::Own;
        let mut owners: Vec<Owner> = (0..self.blocks.len())
            .filter(|&place| owned(&self.blocks[place]))
            .filter_map(|place| self.owner(place))
            .collect();
        owners.sort_unstable_by_key(|owner| owner.base);
        owners
    }

    pub(crate) fn totals(&self) -> LedgerStats {
        let mut totals = LedgerStats::default();
        for block in self.blocks.iter().filter(|block| block.entry.kind == Kind::Own) {
            let (blocks, in_bytes, bytes) = match block.state {
                None => continue,
                Some(State::Owned) => (&mut totals.owned_blocks, &mut totals.owned_bytes, block.entry.bytes),
                Some(State::Released { .. }) => {
                    (&mut totals.released_blocks, &mut totals.released_bytes, block.entry.bytes)
                }
                Some(State::Asleep) => unreachable!("no block of a ledger sleeps"),
                Some(State::Free) => (&mut totals.free_blocks, &mut totals.free_bytes, block.entry.capacity_bytes),
            };
            *blocks += 1;
            *in_bytes += bytes;
            totals.held_bytes += block.entry.capacity_bytes;
        }
        totals
    }

    pub(crate) fn random_live(&self, numbers: &mut Random) -> Option<usize> {
        let start = numbers.below(self.blocks.len().max(1) as u64) as usize;
        (start..self.blocks.len()).chain(0..start).find(|&place| self.blocks[place].state.is_some())
    }

    /// An address at an edge of a random block, gone or not, or one off.
    pub(crate) fn random_edge(&self, numbers: &mut Random) -> Option<u64> {
        let block = self.blocks.get(numbers.below(self.blocks.len() as u64 + 1) as usize)?;
        Some(match numbers.below(7) {
            0 | 1 => block.entry.base,
            2 => block.entry.base.saturating_sub(1),
            3 => block.last(block.entry.bytes),
            4 => block.last(block.entry.bytes).saturating_add(1),
            5 => block.last(block.entry.capacity_bytes),
            _ => block.entry.base + numbers.below(block.entry.bytes),
        })
    }
}
