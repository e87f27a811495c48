//! What happens before what in a program, by the rules of CUDA: a graph of accesses and points of order.
//!
//! There are two readings of the rules. `Promised` has the orders that every driver keeps. `Possible` adds those that a program may
//! get without a promise, such as the end of a stream that a query happened to see, and what a host function tells the host.

use super::program::{
    Action, DEVICE_WORDS, EVENTS, Effect, GraphStep, Home, Program, Range, Step, StreamKind, Work, conflict,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    Promised,
    Possible,
}

/// Where an access is in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    Step(usize),
    HostFunction(usize),
}

/// What a point does to memory.
#[derive(Clone, Debug)]
pub(crate) enum Deed {
    None,
    Work(Work),
    Allocate(usize),
    Free(usize),
    Read(Range),
    Write(Range, u32),
}

/// The points before one.
#[derive(Clone, Copy, Debug, Default)]
struct Set([u64; POINTS_MAX / 64]);

const POINTS_MAX: usize = 768;

impl Set {
    fn has(&self, point: usize) -> bool {
        self.0[point / 64] >> (point % 64) & 1 != 0
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Point {
    pub(crate) place: Place,
    /// `None` for the host.
    pub(crate) stream: Option<usize>,
    pub(crate) deed: Deed,
    pub(crate) accesses: Vec<(Range, Effect)>,
    before: Set,
}

impl Point {
    pub(crate) fn is_after(&self, point: usize) -> bool {
        self.before.has(point)
    }

    /// Returns whether the host makes its accesses.
    pub(crate) fn is_of_host(&self) -> bool {
        matches!(self.deed, Deed::Read(_) | Deed::Write(..) | Deed::Work(Work::Host { .. }))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Order {
    reading: Reading,
    pub(crate) points: Vec<Point>,
    host: Option<usize>,
    /// The last point of each stream, and its last work.
    last: Vec<Option<usize>>,
    last_work: Vec<Option<usize>>,
    pub(crate) events: Vec<Option<usize>>,
    launches: Vec<Option<usize>>,
}

impl Order {
    pub(crate) fn new(program: &Program, reading: Reading) -> Self {
        let streams = program.streams.len();
        Self {
            reading,
            points: Vec::new(),
            host: None,
            last: vec![None; streams],
            last_work: vec![None; streams],
            events: vec![None; EVENTS],
            launches: vec![None; program.graphs.len()],
        }
    }

    /// Returns the order of all steps.
    pub(crate) fn of(program: &Program, reading: Reading) -> Self {
        let mut order = Self::new(program, reading);
        program.steps.iter().for_each(|step| order.apply(program, step));
        order
    }

    fn add(&mut self, place: Place, stream: Option<usize>, deed: Deed, after: &[Option<usize>]) -> usize {
        let mut before = Set::default();
        for &point in after.iter().flatten() {
            before.0[point / 64] |= 1 << (point % 64);
            let earlier = self.points[point].before;
            before.0.iter_mut().zip(earlier.0).for_each(|(word, earlier)| *word |= earlier);
        }
        let accesses = match &deed {
            Deed::None => Vec::new(),
            Deed::Work(work) => work.accesses(),
            Deed::Allocate(buffer) | Deed::Free(buffer) => {
                let effect = if matches!(deed, Deed::Free(_)) { Effect::Free } else { Effect::Allocate };
                vec![(Range { buffer: *buffer, start: 0, end: DEVICE_WORDS }, effect)]
            }
            Deed::Read(from) => vec![(*from, Effect::Read)],
            Deed::Write(to, _) => vec![(*to, Effect::Write)],
        };
        self.points.push(Point { place, stream, deed, accesses, before });
        assert!(self.points.len() <= POINTS_MAX, "a program has too many points");
        self.points.len() - 1
    }

    /// Returns the points that the work of a stream follows because of the legacy default stream.
    fn implicit(&self, program: &Program, stream: usize, is_work: bool) -> Vec<Option<usize>> {
        let last = match self.reading {
            Reading::Promised if !is_work => return Vec::new(),
            Reading::Promised => &self.last_work,
            Reading::Possible => &self.last,
        };
        let is_followed = |other: StreamKind| match program.streams[stream] {
            StreamKind::Legacy => other.is_blocking(),
            kind => kind.is_blocking() && other == StreamKind::Legacy,
        };
        let others = program.streams.iter().zip(last).filter(|&(&other, _)| is_followed(other));
        others.map(|(_, last)| *last).collect()
    }

    /// Adds a point to a stream. `is_work`: not only a point of order.
    fn submit(&mut self, program: &Program, step: &Step, stream: usize, deed: Deed, is_work: bool) -> usize {
        let call = self.call(step, Deed::None);
        let mut after = self.implicit(program, stream, is_work);
        after.extend([Some(call), self.last[stream]]);
        let place = place(step, &deed);
        let point = self.add(place, Some(stream), deed, &after);
        self.last[stream] = Some(point);
        if is_work {
            self.last_work[stream] = Some(point);
        }
        point
    }

    /// Adds a point to the host.
    fn call(&mut self, step: &Step, deed: Deed) -> usize {
        let point = self.add(Place::Step(step.number), None, deed, &[self.host]);
        self.host = Some(point);
        point
    }

    /// The host has waited for points.
    fn wait(&mut self, step: &Step, points: &[Option<usize>]) {
        let mut after = points.to_vec();
        after.push(self.host);
        self.host = Some(self.add(Place::Step(step.number), None, Deed::None, &after));
    }

    fn wait_for_stream(&mut self, program: &Program, step: &Step, stream: usize) {
        let mut points = vec![self.last[stream]];
        if self.reading == Reading::Possible && program.streams[stream] == StreamKind::Legacy {
            points.extend(self.implicit(program, stream, true));
        }
        self.wait(step, &points);
    }

    pub(crate) fn apply(&mut self, program: &Program, step: &Step) {
        let is_possible = self.reading == Reading::Possible;
        match step.action {
            Action::Work { stream, ref work } => self.work(program, step, stream, work),
            Action::Allocate { stream, buffer } => {
                self.submit(program, step, stream, Deed::Allocate(buffer), false);
            }
            Action::Free { stream, buffer } => {
                self.submit(program, step, stream, Deed::Free(buffer), false);
            }
            Action::Launch { stream, graph } => self.launch(program, step, stream, graph),
            Action::Record { stream, event } => {
                self.events[event] = Some(self.submit(program, step, stream, Deed::None, false));
            }
            Action::Wait { stream, event } => {
                let recorded = self.events[event];
                let after = [self.last[stream], recorded];
                self.last[stream] = Some(self.add(Place::Step(step.number), Some(stream), Deed::None, &after));
                self.submit(program, step, stream, Deed::None, false);
            }
            Action::SyncStream(stream) | Action::PollStream(stream) => self.wait_for_stream(program, step, stream),
            Action::SyncEvent(event) | Action::PollEvent(event) => self.wait(step, &[self.events[event]]),
            Action::SyncContext => self.wait(step, &self.last.clone()),
            Action::AskStream(stream) if is_possible => self.wait_for_stream(program, step, stream),
            Action::AskStream(_) => {}
            Action::Read { from } => drop(self.call(step, Deed::Read(from))),
            Action::Write { to, value } => drop(self.call(step, Deed::Write(to, value))),
        }
    }

    fn work(&mut self, program: &Program, step: &Step, stream: usize, work: &Work) {
        let is_possible = self.reading == Reading::Possible;
        if is_possible && matches!(work, Work::UploadNow { .. }) {
            self.wait_for_stream(program, step, stream);
        }
        let point = self.submit(program, step, stream, Deed::Work(work.clone()), true);
        let is_pinned = |range: Range| program.buffers[range.buffer] == Home::Pinned;
        let is_waited_for = match *work {
            Work::Download { .. } => true,
            Work::CopyNow { to, from } => is_pinned(to) || is_pinned(from),
            // The host copies.
            Work::Copy { to, from } => is_possible && is_pinned(to) && is_pinned(from),
            Work::Host { .. } => is_possible,
            _ => false,
        };
        if is_waited_for {
            self.wait(step, &[Some(point)]);
        }
    }

    fn launch(&mut self, program: &Program, step: &Step, stream: usize, graph: usize) {
        let previous = self.launches[graph];
        let after = [self.last[stream], previous];
        self.last[stream] = Some(self.add(Place::Step(step.number), Some(stream), Deed::None, &after));
        let start = self.submit(program, step, stream, Deed::None, true);
        let (before, ends) = program.graphs[graph].predecessors();
        let mut points = vec![None; before.len()];
        for (index, inner) in program.graphs[graph].steps.iter().enumerate() {
            let GraphStep::Work { work, .. } = inner else { continue };
            let mut after: Vec<Option<usize>> = before[index].iter().map(|&from| points[from]).collect();
            after.push(Some(start));
            let deed = Deed::Work(work.clone());
            points[index] = Some(self.add(place(step, &deed), Some(stream), deed, &after));
            if self.reading == Reading::Possible && matches!(work, Work::Host { .. }) {
                self.wait(step, &[points[index]]);
            }
        }
        let ends: Vec<Option<usize>> = ends.iter().map(|&end| points[end]).chain([Some(start)]).collect();
        let end = self.add(Place::Step(step.number), Some(stream), Deed::None, &ends);
        (self.last[stream], self.last_work[stream], self.launches[graph]) = (Some(end), Some(end), Some(end));
    }

    /// Returns the pairs of accesses from `first` on that conflict, and that nothing orders.
    pub(crate) fn races(&self, first: usize) -> Vec<(usize, usize)> {
        let mut pairs = Vec::new();
        for later in first..self.points.len() {
            if self.points[later].accesses.is_empty() {
                continue;
            }
            let is_race = |&earlier: &usize| {
                let (one, other) = (&self.points[earlier], &self.points[later]);
                !other.is_after(earlier) && conflict(&one.accesses, &other.accesses)
            };
            pairs.extend((0..later).filter(is_race).map(|earlier| (earlier, later)));
        }
        pairs
    }
}

fn place(step: &Step, deed: &Deed) -> Place {
    match deed {
        Deed::Work(Work::Host { slot, .. }) => Place::HostFunction(*slot),
        _ => Place::Step(step.number),
    }
}
