//! The kind of error of two accesses that nothing orders, or of which one freed the memory.

use crate::access::Spot;
use crate::blocks::{BlockKind, Blocks};
use crate::clock::QueueId;
use crate::finding::Kind;
use crate::report::Reporter;
use crate::shadow::Effect;
use crate::tasks::{Task, Tasks};
use crate::wording::{Conflicting, Said};

/// One of two accesses.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) task: Task,
    pub(crate) effect: Effect,
    pub(crate) spot: Spot,
}

impl Side {
    fn is_host(&self) -> bool {
        self.task.epoch.queue == QueueId::HOST
    }

    /// Returns whether it is an access of the host, even if a stream runs its function.
    fn is_of_host(&self) -> bool {
        self.is_host() || self.task.origin.is_program()
    }

    fn is_allocation(&self) -> bool {
        matches!(self.effect, Effect::Allocate | Effect::AllocateDefined)
    }
}

/// Two accesses in the order of the program, which does not depend on the order of execution.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) first: Side,
    pub(crate) second: Side,
}

impl Pair {
    /// Takes two accesses in the order of execution.
    pub(crate) fn new(first: Side, second: Side) -> Self {
        let is_race = ![first.effect, second.effect].contains(&Effect::Release);
        if is_race && first.task.submitted > second.task.submitted {
            return Self { first: second, second: first };
        }
        Self { first, second }
    }

    /// Returns what is wrong with the accesses to an address.
    pub(crate) fn kind(&self, address: u64, blocks: &Blocks, tasks: &Tasks) -> Kind {
        let memory = blocks.around(address).map(|block| block.kind);
        let is_of_host = matches!(memory, Some(BlockKind::Host | BlockKind::Registered));
        let part = blocks.part(address);
        match (self.first.effect, self.second.effect) {
            (Effect::Free, _) if is_of_host => Kind::HostMemoryFreed,
            (Effect::Free, _) => Kind::UseAfterFree,
            (Effect::Release, _) if part.is_some_and(|part| part.freed.is_some()) => Kind::UseAfterFree,
            // Between the blocks that the pool has handed out.
            (Effect::Release, _) => Kind::OutOfBounds,
            (_, Effect::Free) => match memory {
                _ if is_of_host => Kind::HostMemoryFreed,
                Some(BlockKind::Imported) => Kind::IpcClosed,
                _ => Kind::FreeInUse,
            },
            _ if self.first.is_allocation() => Kind::UseBeforeAllocation,
            _ if part.is_some_and(|part| tasks.get(part.allocated).submitted > self.first.task.submitted) => {
                Kind::ReuseRace
            }
            _ if self.first.is_of_host() || self.second.is_of_host() => Kind::HostRace,
            _ => Kind::StreamRace,
        }
    }

    /// Says what is wrong, and what to do about it.
    pub(crate) fn message_and_advice(&self, kind: Kind, reporter: &Reporter) -> (String, String) {
        let [first, second] = [&self.first, &self.second].map(|side| {
            let (name, is_host) = (side.task.origin.name(), side.is_host());
            let actor = if is_host { name.clone() } else { format!("{name} in {}", reporter.stream_name(&side.task)) };
            Said { name, actor, verb: side.effect.verb(), is_host }
        });
        let before = if self.second.task.origin.is_program() { "this access".to_owned() } else { second.name.clone() };
        let stream = reporter.stream_name(&self.second.task);
        let outside = "memory of a pool that is outside of all blocks that it has handed out";
        Conflicting { kind, first, second, stream, before: &before, outside }.message_and_advice()
    }
}
