//! The ledger against a naive model: random operations, equal results.
//!
//! The model is a list that is scanned. `FREEHOLD_SEED` replays a run.

use crate::model;

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use freehold::ledger::{
    BlockId, ContextId, EndReason, Entry, Fence, Kind, Ledger, NotEntered, Release, State, StreamId, WrongRelease,
};
use freehold_testing::{Random, at_effort, report_covered, seed};
use model::Model;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Where blocks are made: in the middle of the addresses that a device has, across the end of 47 bits, at the last
/// address of all, and at the first.
const NEIGHBOURHOODS: [u64; 4] = [0x7f00_0000_0000, (1 << 47) - 4 * MIB, u64::MAX - 8 * MIB, 0];

struct Run {
    ledger: Ledger,
    model: Model,
    numbers: Random,
    /// How often each kind of answer was met.
    met: BTreeMap<&'static str, u64>,
    lines: [&'static Location<'static>; 2],
}

#[test]
fn random_operations_are_answered_as_by_a_list() {
    let steps = at_effort(20_000, 200_000, 2_000_000);
    let mut run = Run {
        ledger: Ledger::new(),
        model: Model::default(),
        numbers: Random::new(seed()),
        met: BTreeMap::new(),
        lines: [Location::caller(), here()],
    };
    for step in 0..steps {
        run.step();
        assert_eq!(run.ledger.stats(), run.model.totals(), "step {step}");
        if step % 10_000 == 0 {
            run.compare_lists();
        }
    }
    println!("{:?}", run.met);
    report_covered(steps, "operations of the ledger");
    let wanted = [
        "adopted",
        "already released",
        "already released, interior",
        "beyond addresses",
        "context destroyed",
        "empty",
        "entered",
        "forgotten",
        "given back unreleased",
        "grown",
        "imported",
        "interior",
        "never allocated",
        "not grown",
        "overlap",
        "owner at the base",
        "owner at the last byte",
        "owner interior",
        "owner none",
        "releasable",
        "released",
        "released free",
        "shrunk",
        "slack",
        "stale",
        "trace gave way",
        "waiting owner",
    ];
    for answer in wanted {
        assert!(run.met.get(answer).is_some_and(|&count| count >= steps / 100_000), "{answer} was hardly met");
    }
}

#[track_caller]
fn here() -> &'static Location<'static> {
    Location::caller()
}

impl Run {
    fn step(&mut self) {
        match self.numbers.below(100) {
            0..25 => self.enter(),
            25..50 => self.release(),
            50..70 => self.forget(),
            75..80 => self.resize(),
            74 if self.numbers.below(50) == 0 => self.end_context(),
            _ => self.ask(),
        }
    }

    fn meet(&mut self, answer: &'static str) {
        *self.met.entry(answer).or_default() += 1;
    }

    fn line(&mut self) -> &'static Location<'static> {
        self.lines[self.numbers.below(2) as usize]
    }

    fn tag(&mut self) -> Option<Arc<str>> {
        (self.numbers.below(3) == 0).then(|| Arc::from("weights"))
    }

    fn stream(&mut self) -> Option<StreamId> {
        let stream = self.numbers.below(4) as u32;
        (stream > 0).then_some(StreamId(stream))
    }

    fn entry(&mut self) -> Entry {
        let numbers = &mut self.numbers;
        let neighbourhood = NEIGHBOURHOODS[[0, 0, 0, 0, 0, 1, 2, 3][numbers.below(8) as usize]];
        let capacity_bytes = match numbers.below(40) {
            0 => [64 * MIB, GIB][numbers.below(2) as usize] + numbers.below(2) * MIB,
            1 => 1 << 50,
            2..6 => 1 + numbers.below(8 * MIB),
            6..10 => 1 + numbers.below(100),
            10..20 => 512,
            _ => 512 * (1 + numbers.below(64)),
        };
        // The second crowds a few granules, the third 64 KiB, the others spread over pages.
        let offset = match numbers.below(4) {
            0 => numbers.below(8 * MIB),
            1 => numbers.below(2048) + 2 * MIB,
            2 => numbers.below(128) * 512 + 3 * MIB,
            _ => numbers.below(16 * 1024) * 512,
        };
        let slack = if numbers.below(3) == 0 { numbers.below(capacity_bytes.min(512)) } else { 0 };
        Entry {
            base: neighbourhood.saturating_add(offset),
            bytes: if numbers.below(200) == 0 { 0 } else { capacity_bytes - slack },
            capacity_bytes,
            context: ContextId(numbers.below(4) as u32),
            stream: self.stream(),
            process: self.numbers.below(3) as u32,
            kind: [Kind::Own, Kind::Own, Kind::Own, Kind::Own, Kind::Adopted, Kind::Imported]
                [self.numbers.below(6) as usize],
            tag: self.tag(),
            allocated_at: self.line(),
        }
    }

    fn enter(&mut self) {
        let entry = self.entry();
        let traces = self.model.traces();
        let expected = self.model.enter(&entry);
        let entered = self.ledger.enter(entry.clone());
        match (&entered, expected) {
            (Ok(block), Ok(place)) => {
                self.model.identify(place, *block);
                if self.model.traces() < traces {
                    self.meet("trace gave way");
                }
                self.meet("entered");
            }
            (Err(NotEntered::Overlap { base, bytes, with }), Err(Some(place))) => {
                assert_eq!((*base, *bytes), (entry.base, entry.capacity_bytes));
                assert_eq!(**with, self.model.owner(place).expect("only live blocks are in the way"));
                self.meet("overlap");
            }
            (Err(NotEntered::Empty { base }), Err(None)) => {
                assert_eq!((*base, entry.bytes), (entry.base, 0));
                self.meet("empty");
            }
            (Err(NotEntered::BeyondAddresses { base, bytes }), Err(None)) => {
                assert_eq!((*base, *bytes), (entry.base, entry.capacity_bytes));
                assert_ne!(entry.bytes, 0);
                self.meet("beyond addresses");
            }
            (answer, model) => panic!("{entry:?}: the ledger says {answer:?}, the model {model:?}"),
        }
    }

    /// A random block that is not gone.
    fn live(&mut self) -> Option<usize> {
        self.model.random_live(&mut self.numbers)
    }

    fn release(&mut self) {
        let Some(place) = self.live().filter(|&place| self.model.blocks[place].state == Some(State::Owned)) else {
            return;
        };
        let count = [0, 1, 2, 5][self.numbers.below(4) as usize];
        let marks: Vec<Fence> = (0..count)
            .map(|_| Fence { stream: StreamId(self.numbers.below(3) as u32), seq: self.numbers.below(100) })
            .collect();
        let released_at = if self.numbers.below(2) == 0 { Some(self.line()) } else { None };
        let release = Release { fences: marks, released_at, when: Duration::from_nanos(self.numbers.below(1 << 40)) };
        self.ledger.release(self.model.blocks[place].id(), release.clone());
        self.meet(if release.fences.is_empty() { "released free" } else { "released" });
        self.model.release(place, release);
    }

    fn resize(&mut self) {
        let Some(place) = self.live().filter(|&place| self.model.blocks[place].state == Some(State::Owned)) else {
            return;
        };
        let (block, had) = (self.model.blocks[place].id(), self.model.blocks[place].entry.capacity_bytes);
        let bytes = match self.numbers.below(8) {
            0 => self.entry().bytes,
            1..4 => had - self.numbers.below(had),
            _ => had.saturating_add(self.numbers.below(4 * MIB)),
        };
        let expected = self.model.resize(place, bytes);
        match (self.ledger.resize(block, bytes), expected) {
            (Ok(()), Ok(())) => self.meet(if bytes > had { "grown" } else { "shrunk" }),
            (Err(NotEntered::Overlap { with, .. }), Err(Some(other))) => {
                assert_eq!(*with, self.model.owner(other).expect("only live blocks are in the way"));
                self.meet("not grown");
            }
            (Err(NotEntered::Empty { .. } | NotEntered::BeyondAddresses { .. }), Err(None)) => {}
            (answer, model) => panic!("{bytes} bytes: the ledger says {answer:?}, the model {model:?}"),
        }
    }

    fn forget(&mut self) {
        let Some(place) = self.live() else { return };
        let block = self.model.blocks[place].id();
        let why = match self.numbers.below(4) {
            0 => EndReason::ContextDestroyed(Duration::from_nanos(self.numbers.below(1 << 40))),
            _ => EndReason::Returned,
        };
        if why == EndReason::Returned && self.model.blocks[place].state == Some(State::Owned) {
            self.meet("given back unreleased");
        }
        self.ledger.forget(block, why);
        self.model.forget(place, why);
        self.stale(block);
        self.meet("forgotten");
    }

    fn end_context(&mut self) {
        let context = ContextId(self.numbers.below(4) as u32);
        let when = Duration::from_nanos(self.numbers.below(1 << 40));
        let ended: Vec<BlockId> = self.ledger.end_context(context, when);
        assert_eq!(ended, self.model.end_context(context, when));
    }

    fn stale(&mut self, block: BlockId) {
        assert_eq!(self.ledger.owner(block), None);
        self.meet("stale");
    }

    /// Asks for an address at or near an edge of a block, or anywhere.
    fn ask(&mut self) {
        let address = self.model.random_edge(&mut self.numbers).unwrap_or_else(|| {
            let neighbourhood = NEIGHBOURHOODS[self.numbers.below(4) as usize];
            neighbourhood.saturating_add(self.numbers.below(8 * MIB))
        });
        let owner = self.ledger.owner_of(address);
        assert_eq!(owner, self.model.owner_of(address), "the owner of {address:#x}");
        match &owner {
            None => self.meet("owner none"),
            Some(owner) => {
                assert_eq!(self.ledger.owner(owner.block).as_ref(), Some(owner));
                if matches!(owner.state, State::Released { waiting_for: 1.. }) {
                    self.meet("waiting owner");
                }
                match address - owner.base {
                    0 => self.meet("owner at the base"),
                    offset if offset == owner.bytes - 1 => self.meet("owner at the last byte"),
                    _ => self.meet("owner interior"),
                }
            }
        }
        if owner.is_none() && self.model.is_slack(address) {
            self.meet("slack");
        }
        let answer = self.ledger.releasable(address);
        assert_eq!(answer, self.model.releasable(address), "the release of {address:#x}");
        self.meet(match answer {
            Ok(_) => "releasable",
            Err(WrongRelease::Interior { .. }) => "interior",
            Err(WrongRelease::AlreadyReleased { offset_bytes: 0, .. }) => "already released",
            Err(WrongRelease::AlreadyReleased { .. }) => "already released, interior",
            Err(WrongRelease::NeverAllocated { .. }) => "never allocated",
            Err(WrongRelease::Adopted { .. }) => "adopted",
            Err(WrongRelease::Imported { .. }) => "imported",
            Err(WrongRelease::ContextDestroyed { .. }) => "context destroyed",
            Err(WrongRelease::Held { .. }) => panic!("the ledger knows of no handles"),
            Err(WrongRelease::ForkedChild { .. }) => panic!("the ledger knows of no processes"),
            Err(other) => panic!("the model does not know {other}"),
        });
    }

    fn compare_lists(&self) {
        assert_eq!(self.ledger.owned(), self.model.owned());
    }
}
