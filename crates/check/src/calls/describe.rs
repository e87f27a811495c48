//! The text of findings.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use crate::clock::QueueId;
use crate::finding::{Access, Finding, Kind, Location, Memory as MemoryText, Position};
use crate::report::{Place, Reporter};
use crate::sites::Site;
use crate::wording::{Conflicting, Said};

use super::history::{Name, Task};
use super::memory::Block;

/// One of two calls that conflict, and what it does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side {
    pub(super) task: Task,
    pub(super) verb: &'static str,
    /// How many bytes. `None` if it is not known.
    pub(super) bytes: Option<u64>,
}

/// The memory that a finding is about.
#[derive(Clone, Debug)]
pub(super) struct About {
    address: u64,
    start: u64,
    bytes: u64,
    allocated: Task,
    freed: Option<Task>,
}

impl About {
    pub(super) fn new(block: &Block, address: u64) -> Self {
        let (start, bytes) = (block.range.start, block.range.end - block.range.start);
        Self { address, start, bytes, allocated: block.allocated, freed: block.freed }
    }
}

/// Two calls that conflict, in the order of the program.
#[derive(Clone, Debug)]
pub(super) struct Conflict {
    pub(super) kind: Kind,
    pub(super) first: Side,
    pub(super) second: Side,
    pub(super) about: About,
}

/// Blocks that were allocated in one place and not freed.
#[derive(Debug)]
pub(super) struct Leak {
    /// The first allocation.
    pub(super) task: Task,
    pub(super) first: About,
    pub(super) count: u64,
    pub(super) bytes: u64,
}

/// Writes findings. Knows the names of kernels. Reads symbols, for which the dynamic linker takes its lock: nothing is described with the
/// lock of the checker.
#[derive(Debug)]
pub(super) struct Describer {
    pub(super) reporter: Reporter,
    kernels: RwLock<Kernels>,
}

/// The names of kernels.
#[derive(Debug, Default)]
struct Kernels {
    names: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Describer {
    pub(super) fn new(reporter: Reporter) -> Self {
        Self { reporter, kernels: RwLock::default() }
    }

    /// Returns the number of a kernel's name.
    pub(super) fn kernel(&self, name: String) -> u32 {
        let mut kernels = self.kernels.write().unwrap_or_else(PoisonError::into_inner);
        let Kernels { names, numbers } = &mut *kernels;
        *numbers.entry(name).or_insert_with_key(|name| {
            names.push(name.clone());
            names.len() as u32 - 1
        })
    }

    /// Writes a finding about two calls.
    pub(super) fn conflict(&self, conflict: &Conflict) {
        let Conflict { kind, first, second, about } = conflict;
        let places = [second, first].map(|side| Place::of_call(side.task.site, self.kernel_number(side.task)));
        self.reporter.report_pair(*kind, places, || {
            let (message, advice) = self.message_and_advice(conflict);
            Finding {
                advice: Some(advice),
                access: Some(self.access(second)),
                other: Some(self.access(first)),
                memory: Some(self.memory(about)),
                ..Finding::new(*kind, message)
            }
        });
    }

    /// Writes a finding about one call. `what` says what it does.
    pub(super) fn call(&self, kind: Kind, task: Task, action: &str, what: &str, about: Option<&About>) {
        self.reporter.report(kind, Place::of_call(task.site, self.kernel_number(task)), || {
            let access = Access { action: action.to_owned(), location: self.location(task), position: None };
            let message = format!("{} {what}", self.name(task));
            let memory = about.map(|about| self.memory(about));
            Finding { access: Some(access), memory, ..Finding::new(kind, message) }
        });
    }

    /// Writes a finding about what a call did that is missing its end. `message` gets its name.
    pub(super) fn unfinished(&self, kind: Kind, task: Task, action: &str, message: &str, about: Option<&About>) {
        self.reporter.report(kind, Place::of_call(task.site, self.kernel_number(task)), || {
            let access = Access { action: action.to_owned(), location: self.location(task), position: None };
            let message = message.replace("{}", &self.name(task));
            let memory = about.map(|about| self.memory(about));
            Finding { access: Some(access), memory, ..Finding::new(kind, message) }
        });
    }

    /// Writes a finding about memory that was not freed.
    pub(super) fn leak(&self, leak: &Leak) {
        let Leak { task, first, count, bytes } = leak;
        self.reporter.report(Kind::Leak, Place::of_call(task.site, self.kernel_number(*task)), || {
            let of_blocks =
                if *count > 1 { format!("{bytes} bytes in {count} blocks") } else { format!("{bytes} bytes") };
            let action = format!("allocates {} bytes", first.bytes);
            Finding {
                access: Some(Access { action, location: self.location(*task), position: None }),
                memory: Some(self.memory(first)),
                count: *count,
                ..Finding::new(Kind::Leak, format!("{of_blocks} of {} were never freed", self.name(*task)))
            }
        });
    }

    /// Tells the kernels of one call apart.
    fn kernel_number(&self, task: Task) -> u32 {
        match task.name {
            Name::Function(_) => 0,
            Name::Kernel(number) => number + 1,
        }
    }

    fn bare_name(&self, task: Task) -> String {
        match task.name {
            Name::Function(function) => function_at(task.site).unwrap_or_else(|| function.to_owned()),
            Name::Kernel(number) => {
                let kernels = self.kernels.read().unwrap_or_else(PoisonError::into_inner);
                kernels.names[number as usize].clone()
            }
        }
    }

    fn name(&self, task: Task) -> String {
        let name = self.bare_name(task);
        if matches!(task.name, Name::Kernel(_)) { format!("kernel {name}") } else { name }
    }

    fn location(&self, task: Task) -> Location {
        Location { function: self.bare_name(task), stack: task.site.frames(), ..Location::default() }
    }

    fn access(&self, side: &Side) -> Access {
        let action = match side.bytes {
            Some(bytes) => format!("{} {bytes} bytes", side.verb),
            None => format!("{} the block", side.verb),
        };
        let epoch = side.task.epoch;
        let stream = self.reporter.stream_number(epoch.queue);
        let position = (epoch.queue != QueueId::HOST).then_some(Position { stream, work: epoch.seq });
        Access { action, location: self.location(side.task), position }
    }

    fn memory(&self, about: &About) -> MemoryText {
        MemoryText {
            address: about.start,
            bytes: about.bytes,
            offset: (about.address - about.start).cast_signed(),
            allocated: Some(self.location(about.allocated)),
            freed: about.freed.map(|task| self.location(task)),
        }
    }

    /// Says what is wrong, and what to do about it.
    fn message_and_advice(&self, conflict: &Conflict) -> (String, String) {
        let [first, second] = [&conflict.first, &conflict.second].map(|side| {
            let (name, queue) = (self.name(side.task), side.task.epoch.queue);
            let is_host = queue == QueueId::HOST;
            let actor = if is_host { name.clone() } else { format!("{name} in {}", self.reporter.queue_name(queue)) };
            Said { name, actor, verb: side.verb, is_host }
        });
        let (before, stream) = (second.name.clone(), self.reporter.queue_name(conflict.second.task.epoch.queue));
        let outside = "memory beyond the end of the block that its pool handed out";
        Conflicting { kind: conflict.kind, first, second, stream, before: &before, outside }.message_and_advice()
    }
}

/// What the exported functions are called that see the program's calls of the driver.
pub const EXPORT_PREFIX: &str = "freehold_calls_";

/// Returns the function that the program called.
fn function_at(site: Site) -> Option<String> {
    let name = site.function()?;
    Some(name.strip_prefix(EXPORT_PREFIX).map(str::to_owned).unwrap_or(name))
}
