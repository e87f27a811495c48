//! Random programs: what they do, step by step, and what each step accesses.

use freehold_testing::Random;

/// Words of a buffer.
pub(crate) const DEVICE_WORDS: usize = 64;
pub(crate) const PINNED_WORDS: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamKind {
    Blocking,
    NonBlocking,
    Legacy,
    /// The default stream of a thread.
    PerThread(usize),
}

impl StreamKind {
    /// Returns whether it waits for the legacy default stream, and that for it.
    pub(crate) fn is_blocking(self) -> bool {
        matches!(self, Self::Blocking | Self::PerThread(_))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    Device,
    Pinned,
    /// Allocated and freed in stream order.
    Pool,
}

impl Home {
    pub(crate) fn words(self) -> usize {
        if self == Self::Pinned { PINNED_WORDS } else { DEVICE_WORDS }
    }
}

/// Words of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) buffer: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Range {
    pub(crate) fn words(self) -> usize {
        self.end - self.start
    }

    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.buffer == other.buffer && self.start < other.end && other.start < self.end
    }

    /// Returns some words of a buffer.
    pub(crate) fn random(random: &mut Random, buffer: usize, words: usize, of: usize) -> Self {
        let start = random.below((of - words + 1) as u64) as usize;
        Self { buffer, start, end: start + words }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Read,
    Write,
    Atomic,
    Allocate,
    Free,
}

/// Returns whether two lists of accesses have two that must not happen at once.
pub(crate) fn conflict(one: &[(Range, Effect)], other: &[(Range, Effect)]) -> bool {
    one.iter().any(|&(range, effect)| {
        let may_overlap = |with| effect == with && matches!(effect, Effect::Read | Effect::Atomic);
        other.iter().any(|&(there, with)| range.overlaps(there) && !may_overlap(with))
    })
}

/// Work of a stream. `to` and `from` have no word in common.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    Fill {
        to: Range,
        value: u32,
    },
    Copy {
        to: Range,
        from: Range,
    },
    /// A call that has no stream.
    CopyNow {
        to: Range,
        from: Range,
    },
    /// From pageable memory.
    Upload {
        to: Range,
        value: u32,
    },
    UploadNow {
        to: Range,
        value: u32,
    },
    /// To pageable memory: it is there when the call returns.
    Download {
        from: Range,
    },
    /// Kernels.
    Mix {
        to: Range,
        from: Range,
        add: u32,
    },
    Store {
        to: Range,
        from: Range,
        add: u32,
    },
    Add {
        to: Range,
        add: u32,
    },
    /// A host function, with a number of its own.
    Host {
        slot: usize,
        to: Range,
        from: Range,
        add: u32,
    },
}

impl Work {
    pub(crate) fn accesses(&self) -> Vec<(Range, Effect)> {
        match *self {
            Self::Fill { to, .. } | Self::Upload { to, .. } | Self::UploadNow { to, .. } => vec![(to, Effect::Write)],
            Self::Copy { to, from } | Self::CopyNow { to, from } => vec![(from, Effect::Read), (to, Effect::Write)],
            Self::Download { from } => vec![(from, Effect::Read)],
            Self::Mix { to, from, .. } | Self::Store { to, from, .. } | Self::Host { to, from, .. } => {
                vec![(from, Effect::Read), (to, Effect::Write)]
            }
            Self::Add { to, .. } => vec![(to, Effect::Atomic)],
        }
    }
}

/// What a step does.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Work {
        stream: usize,
        work: Work,
    },
    Allocate {
        stream: usize,
        buffer: usize,
    },
    Free {
        stream: usize,
        buffer: usize,
    },
    Launch {
        stream: usize,
        graph: usize,
    },
    Record {
        stream: usize,
        event: usize,
    },
    Wait {
        stream: usize,
        event: usize,
    },
    SyncStream(usize),
    SyncEvent(usize),
    SyncContext,
    /// Asks until the answer is yes.
    PollStream(usize),
    PollEvent(usize),
    /// Asks once, and does the same whatever the answer is.
    AskStream(usize),
    /// Loads and stores of the host.
    Read {
        from: Range,
    },
    Write {
        to: Range,
        value: u32,
    },
}

impl Action {
    /// Returns whether its only purpose is to wait.
    pub(crate) fn is_wait(&self) -> bool {
        matches!(
            self,
            Self::Wait { .. }
                | Self::SyncStream(_)
                | Self::SyncEvent(_)
                | Self::SyncContext
                | Self::PollStream(_)
                | Self::PollEvent(_)
        )
    }
}

/// A step, with a number that it keeps when others are removed.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) number: usize,
    pub(crate) thread: usize,
    pub(crate) action: Action,
}

/// A graph as it is captured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    pub(crate) steps: Vec<GraphStep>,
}

#[derive(Clone, Debug)]
pub(crate) enum GraphStep {
    Work {
        branch: usize,
        work: Work,
    },
    Record {
        branch: usize,
        event: usize,
    },
    /// `is_fork`: the capture needs it, whatever the work accesses.
    Wait {
        branch: usize,
        event: usize,
        is_fork: bool,
    },
}

impl Graph {
    /// Returns for each step the steps of work that directly precede it, and those at the end.
    pub(crate) fn predecessors(&self) -> (Vec<Vec<usize>>, Vec<usize>) {
        let mut last: Vec<Vec<usize>> = vec![Vec::new(); BRANCHES];
        let mut events: Vec<Vec<usize>> = vec![Vec::new(); GRAPH_EVENTS];
        let mut before = Vec::new();
        for (index, step) in self.steps.iter().enumerate() {
            before.push(Vec::new());
            match *step {
                GraphStep::Work { branch, .. } => before[index] = std::mem::replace(&mut last[branch], vec![index]),
                GraphStep::Record { branch, event } => events[event] = last[branch].clone(),
                GraphStep::Wait { branch, event, .. } => last[branch].extend(&events[event]),
            }
        }
        (before, last.swap_remove(0))
    }
}

pub(crate) const BRANCHES: usize = 3;
pub(crate) const GRAPH_EVENTS: usize = 4;
pub(crate) const EVENTS: usize = 5;

#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) threads: usize,
    pub(crate) streams: Vec<StreamKind>,
    pub(crate) buffers: Vec<Home>,
    pub(crate) graphs: Vec<Graph>,
    pub(crate) steps: Vec<Step>,
    /// How many host functions there are.
    pub(crate) slots: usize,
}

/// A wait that can be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    Step(usize),
    GraphStep(usize, usize),
}

impl Program {
    /// Returns all waits but those that the end and the captures need.
    pub(crate) fn waits(&self) -> Vec<Removal> {
        let steps = &self.steps[..self.steps.len() - 1];
        let steps = steps.iter().enumerate().filter(|(_, step)| step.action.is_wait());
        let mut waits: Vec<Removal> = steps.map(|(index, _)| Removal::Step(index)).collect();
        for (number, graph) in self.graphs.iter().enumerate() {
            let inner = graph.steps.iter().enumerate();
            let inner = inner.filter(|(_, step)| matches!(step, GraphStep::Wait { is_fork: false, .. }));
            waits.extend(inner.map(|(index, _)| Removal::GraphStep(number, index)));
        }
        waits
    }

    pub(crate) fn without(&self, wait: Removal) -> Self {
        let mut program = self.clone();
        match wait {
            Removal::Step(index) => drop(program.steps.remove(index)),
            Removal::GraphStep(graph, index) => drop(program.graphs[graph].steps.remove(index)),
        }
        program
    }

    /// Lists the steps, for a report.
    pub(crate) fn listing(&self) -> String {
        let mut lines = vec![format!("streams {:?}, buffers {:?}", self.streams, self.buffers)];
        lines.extend(
            self.graphs
                .iter()
                .enumerate()
                .flat_map(|(number, graph)| graph.steps.iter().map(move |step| format!("graph {number}: {step:?}"))),
        );
        lines
            .extend(self.steps.iter().map(|step| format!("{} thread {}: {:?}", step.number, step.thread, step.action)));
        lines.join("\n")
    }
}
