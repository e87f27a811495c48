//! Makes random programs that wait for all they need, by their own reading of the rules (`order`).

use freehold_testing::Random;

use super::order::{Order, Reading};
use super::program::{
    Action, BRANCHES, EVENTS, GRAPH_EVENTS, Graph, GraphStep, Home, Program, Range, Step, StreamKind, Work, conflict,
};

/// The most steps of a program, and of its host functions: each has a name of its own.
const STEPS_MAX: usize = super::labels::STEPS.len();
const SLOTS_MAX: usize = super::labels::HOST_FUNCTIONS.len();

/// The most graphs of a program.
const GRAPHS_MAX: u64 = 2;

/// What work is part of. Not all work can be captured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    Stream,
    Graph,
}

struct Generator {
    random: Random,
    program: Program,
    order: Order,
    /// The buffers that work may use.
    live: Vec<usize>,
}

/// Returns the program of a seed.
pub(crate) fn program(seed: u64) -> Program {
    let mut generator = Generator::new(Random::new(seed));
    let count = 10 + generator.random.below(20);
    for _ in 0..count {
        generator.choose();
        if generator.program.steps.len() + 40 > STEPS_MAX {
            break;
        }
    }
    generator.push(Action::SyncContext);
    generator.program
}

impl Generator {
    fn new(mut random: Random) -> Self {
        let threads = random.pick(&[1, 1, 2, 3]);
        let mut streams = vec![StreamKind::NonBlocking; 1 + random.below(3) as usize];
        streams.extend(vec![StreamKind::Blocking; random.below(3) as usize]);
        // It waits for most others, and leaves little to go wrong.
        streams.extend((random.below(4) == 0).then_some(StreamKind::Legacy));
        streams.extend((0..threads).filter(|_| random.below(3) == 0).map(StreamKind::PerThread));
        if streams.len() == 1 {
            streams.push(StreamKind::NonBlocking);
        }
        let mut buffers = vec![Home::Device; 2 + random.below(3) as usize];
        buffers.extend(vec![Home::Pinned; 1 + random.below(2) as usize]);
        let live = (0..buffers.len()).collect();
        let program = Program { threads, streams, buffers, graphs: Vec::new(), steps: Vec::new(), slots: 0 };
        let order = Order::new(&program, Reading::Promised);
        let mut generator = Self { random, program, order, live };
        let graphs = generator.random.below(GRAPHS_MAX + 1);
        for _ in 0..graphs {
            let graph = generator.graph();
            generator.program.graphs.push(graph);
        }
        // The graphs are not part of the order yet.
        generator.order = Order::new(&generator.program, Reading::Promised);
        generator
    }

    fn stream(&mut self) -> usize {
        self.random.below(self.program.streams.len() as u64) as usize
    }

    /// Adds a random step, and the waits that it needs.
    fn choose(&mut self) {
        let stream = self.stream();
        match self.random.below(32) {
            0..18 => {
                let work = self.work(Within::Stream);
                let stream = self.stream_of(stream, &work);
                self.emit(Action::Work { stream, work });
            }
            18..21 => {
                let (range, value) = (self.range(Some(Home::Pinned)), self.constant());
                let is_read = self.random.below(2) == 0;
                self.emit(if is_read { Action::Read { from: range } } else { Action::Write { to: range, value } });
            }
            21..24 => {
                let event = self.random.below(EVENTS as u64) as usize;
                self.push(Action::Record { stream, event });
            }
            24..26 => {
                let event = self.random.below(EVENTS as u64) as usize;
                self.push(Action::Wait { stream, event });
            }
            26 => self.push(Action::AskStream(stream)),
            27 if self.program.buffers.len() < 9 => self.allocate(stream),
            28 => self.free(stream),
            29.. if !self.program.graphs.is_empty() => {
                let graph = self.random.below(self.program.graphs.len() as u64) as usize;
                self.emit(Action::Launch { stream, graph });
            }
            _ => self.push(Action::SyncStream(stream)),
        }
    }

    /// Returns where work runs: some has no stream of its own.
    fn stream_of(&mut self, stream: usize, work: &Work) -> usize {
        if !matches!(work, Work::CopyNow { .. } | Work::UploadNow { .. }) {
            return stream;
        }
        let legacy = self.program.streams.iter().position(|kind| *kind == StreamKind::Legacy);
        legacy.expect("work without a stream is chosen only if there is the stream that it runs in")
    }

    fn constant(&mut self) -> u32 {
        self.random.next() as u32 | 1
    }

    fn allocate(&mut self, stream: usize) {
        let buffer = self.program.buffers.len();
        self.program.buffers.push(Home::Pool);
        self.emit(Action::Allocate { stream, buffer });
        let to = Range { buffer, start: 0, end: Home::Pool.words() };
        let (stream, value) = (self.stream(), self.constant());
        self.emit(Action::Work { stream, work: Work::Fill { to, value } });
        self.live.push(buffer);
    }

    fn free(&mut self, stream: usize) {
        let is_of_pool = |&place: &usize| self.program.buffers[self.live[place]] == Home::Pool;
        if let Some(place) = (0..self.live.len()).find(is_of_pool) {
            let buffer = self.live.swap_remove(place);
            self.emit(Action::Free { stream, buffer });
        }
    }

    /// Returns a range of a live buffer, of this kind if it matters.
    fn range(&mut self, home: Option<Home>) -> Range {
        loop {
            let buffer = self.random.pick(&self.live);
            let kind = self.program.buffers[buffer];
            if home.is_none_or(|home| home == kind) {
                let most = kind.words().min(24) as u64;
                let words = 4 + self.random.below(most - 3) as usize;
                return Range::random(&mut self.random, buffer, words, kind.words());
            }
        }
    }

    /// Returns two ranges of a size that have nothing in common.
    fn ranges(&mut self) -> (Range, Range) {
        loop {
            let to = self.range(None);
            let buffer = self.random.pick(&self.live);
            let of = self.program.buffers[buffer].words();
            let from = Range::random(&mut self.random, buffer, to.words(), of);
            if !from.overlaps(to) {
                return (to, from);
            }
        }
    }

    /// Returns random work.
    fn work(&mut self, within: Within) -> Work {
        let (to, from) = self.ranges();
        let (value, add) = (self.constant(), self.constant());
        let is_pinned = |range: Range| self.program.buffers[range.buffer] == Home::Pinned;
        let (is_on_host, has_legacy) = (is_pinned(to), self.program.streams.contains(&StreamKind::Legacy));
        let is_alone = within == Within::Stream;
        match self.random.below(16) {
            0 | 1 => Work::Fill { to, value },
            2..5 => Work::Copy { to, from },
            5 if is_alone && has_legacy => Work::CopyNow { to, from },
            6 if is_alone && !is_on_host => Work::Upload { to, value },
            7 if is_alone && !is_on_host && has_legacy => Work::UploadNow { to, value },
            8 if is_alone => Work::Download { from },
            9 if !is_on_host => Work::Add { to, add },
            10 if self.program.slots < SLOTS_MAX => self.host_function(add),
            11 | 12 => Work::Store { to, from, add },
            _ => Work::Mix { to, from, add },
        }
    }

    fn host_function(&mut self, add: u32) -> Work {
        let slot = self.program.slots;
        self.program.slots += 1;
        let to = self.range(Some(Home::Pinned));
        let to = Range { end: to.end.min(to.start + 8), ..to };
        loop {
            let words = Home::Pinned.words();
            let from = Range::random(&mut self.random, to.buffer, to.words(), words);
            if !from.overlaps(to) {
                return Work::Host { slot, to, from, add };
            }
        }
    }

    /// Makes a graph whose branches wait for each other where they must.
    fn graph(&mut self) -> Graph {
        let mut graph = Graph::default();
        let mut is_begun = [false; BRANCHES];
        is_begun[0] = true;
        for _ in 0..3 + self.random.below(4) {
            let branch = self.random.below(BRANCHES as u64) as usize;
            if !std::mem::replace(&mut is_begun[branch], true) {
                self.follow_in(&mut graph, branch, 0, true);
            }
            let work = self.work(Within::Graph);
            while let Some(other) = race_in(&graph, branch, &work) {
                self.follow_in(&mut graph, branch, other, false);
            }
            graph.steps.push(GraphStep::Work { branch, work });
        }
        for branch in (1..BRANCHES).filter(|branch| is_begun[*branch]) {
            self.follow_in(&mut graph, 0, branch, true);
        }
        graph
    }

    fn follow_in(&mut self, graph: &mut Graph, branch: usize, other: usize, is_fork: bool) {
        let event = self.random.below(GRAPH_EVENTS as u64) as usize;
        graph.steps.push(GraphStep::Record { branch: other, event });
        graph.steps.push(GraphStep::Wait { branch, event, is_fork });
    }

    /// Adds the waits that a step needs, and the step.
    fn emit(&mut self, action: Action) {
        while let Some(point) = self.missing(&action) {
            self.insert_wait(point, &action);
        }
        self.push(action);
    }

    /// Returns the last point that a step would race with.
    fn missing(&self, action: &Action) -> Option<usize> {
        let (mut after, first) = (self.order.clone(), self.order.points.len());
        after.apply(&self.program, &Step { number: 0, thread: 0, action: action.clone() });
        let races = after.races(first);
        races.into_iter().map(|(earlier, _)| earlier).filter(|earlier| *earlier < first).max()
    }

    fn insert_wait(&mut self, point: usize, action: &Action) {
        let from = self.order.points[point].stream.expect("what the host has done comes before what it submits");
        let to = match *action {
            Action::Work { stream, .. }
            | Action::Allocate { stream, .. }
            | Action::Free { stream, .. }
            | Action::Launch { stream, .. } => Some(stream),
            _ => None,
        };
        let known = (0..EVENTS).find(|&event| {
            let recorded = self.order.events[event];
            recorded.is_some_and(|recorded| recorded == point || self.order.points[recorded].is_after(point))
        });
        let by_event = to.filter(|_| self.random.below(3) > 0);
        let choice = self.random.below(8);
        if by_event.is_none() && choice < 4 {
            return self.push(match choice {
                0 => Action::SyncContext,
                1 => Action::PollStream(from),
                _ => Action::SyncStream(from),
            });
        }
        let event = known.unwrap_or_else(|| {
            let event = self.random.below(EVENTS as u64) as usize;
            self.push(Action::Record { stream: from, event });
            event
        });
        self.push(match by_event {
            Some(stream) => Action::Wait { stream, event },
            None if choice == 4 => Action::PollEvent(event),
            None => Action::SyncEvent(event),
        });
    }

    fn push(&mut self, action: Action) {
        let number = self.program.steps.len();
        let step = Step { number, thread: self.thread(&action), action };
        self.order.apply(&self.program, &step);
        self.program.steps.push(step);
    }

    /// Returns a thread that can make a step: the default stream of a thread is its own.
    fn thread(&mut self, action: &Action) -> usize {
        let stream = match *action {
            Action::Work { stream, .. }
            | Action::Allocate { stream, .. }
            | Action::Free { stream, .. }
            | Action::Launch { stream, .. }
            | Action::Record { stream, .. }
            | Action::Wait { stream, .. }
            | Action::SyncStream(stream)
            | Action::PollStream(stream)
            | Action::AskStream(stream) => Some(stream),
            _ => None,
        };
        match stream.map(|stream| self.program.streams[stream]) {
            Some(StreamKind::PerThread(thread)) => thread,
            _ => self.random.below(self.program.threads as u64) as usize,
        }
    }
}

/// Returns the branch of the last work that work at the end of a branch would race with.
fn race_in(graph: &Graph, branch: usize, work: &Work) -> Option<usize> {
    let mut longer = graph.clone();
    longer.steps.push(GraphStep::Work { branch, work: work.clone() });
    let (before, _) = longer.predecessors();
    let mut reached = vec![false; longer.steps.len()];
    let mut left = before.last().expect("a step was added").clone();
    while let Some(step) = left.pop() {
        if !std::mem::replace(&mut reached[step], true) {
            left.extend(&before[step]);
        }
    }
    let accesses = work.accesses();
    graph.steps.iter().enumerate().rev().find_map(|(index, step)| match step {
        GraphStep::Work { branch, work } if !reached[index] && conflict(&accesses, &work.accesses()) => Some(*branch),
        _ => None,
    })
}
