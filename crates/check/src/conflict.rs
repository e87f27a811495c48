//! Two accesses that nothing orders, or of which one freed the memory: what kind of error that is, and what is said about it.

use crate::access::Spot;
use crate::blocks::{BlockKind, Blocks};
use crate::clock::QueueId;
use crate::finding::Kind;
use crate::report::Reporter;
use crate::shadow::Effect;
use crate::tasks::{Task, Tasks};

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

/// What to do about an access beyond the end of a block.
pub(crate) const OUT_OF_BOUNDS_ADVICE: &str = "Access fewer bytes, or ask the pool for more.";

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
        let [(name, actor, verb), (first_name, first, first_verb)] = [&self.second, &self.first].map(|side| {
            let name = side.task.origin.name();
            let actor =
                if side.is_host() { name.clone() } else { format!("{name} in {}", reporter.stream_name(&side.task)) };
            (name, actor, side.effect.verb())
        });
        let message = match kind {
            Kind::OutOfBounds => {
                format!("{actor} {verb} memory of a pool that is outside of all blocks that it has handed out")
            }
            Kind::UseAfterFree | Kind::HostMemoryFreed
                if matches!(self.first.effect, Effect::Free | Effect::Release) =>
            {
                format!("{actor} {verb} memory that {first} has freed")
            }
            Kind::FreeInUse | Kind::HostMemoryFreed | Kind::IpcClosed => {
                format!("{actor} frees memory that {first} {first_verb}, and nothing orders them")
            }
            Kind::ReuseRace => {
                format!("{actor} {verb} a block that the pool handed out again while {first} {first_verb} it")
            }
            _ => format!("{actor} {verb} what {first} {first_verb}, and nothing orders them"),
        };
        let before = if self.second.task.origin.is_program() { "this access".to_owned() } else { name };
        let advice = if kind == Kind::OutOfBounds {
            OUT_OF_BOUNDS_ADVICE.to_owned()
        } else if matches!(kind, Kind::UseAfterFree) {
            format!("Free the memory after {before}, or do not use it any more.")
        } else if self.second.is_host() {
            format!("The host never waits for {first}: synchronize the stream, or an event after it, before {before}.")
        } else if self.first.is_host() {
            format!("Wait for {actor} before {first_name}, or free the memory in the order of its stream.")
        } else {
            let stream = reporter.stream_name(&self.second.task);
            format!(
                "{} never waits for {first}: record an event after it, and let {stream} wait for the event before {before}.",
                capitalized(&stream)
            )
        };
        (message, advice)
    }
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
