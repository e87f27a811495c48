//! Writes each finding when it first occurs, and at the end the number of repetitions.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::access::Spot;
use crate::clock::{Epoch, QueueId};
use crate::finding::{Access, Finding, Kind, Location, Position};
use crate::origin::Origin;
use crate::sites::Site;
use crate::tasks::Task;

/// A place in the program: a call, or a line of the kernel that it launched.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Place {
    site: Option<Site>,
    subject: Subject,
    /// Of the kernel's PTX.
    line: u32,
}

/// What tells places apart that have the same site: a call may launch any kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Subject {
    Call,
    /// A kernel, by its name.
    Kernel(Arc<str>),
    /// A kernel, by a number of the caller.
    NumberedKernel(u32),
    /// A call of another process, which has no site here.
    Elsewhere(Arc<Location>),
}

impl Place {
    pub(crate) fn new(origin: &Origin, spot: Spot) -> Self {
        let subject = match (&origin.launch, &origin.elsewhere) {
            (Some(launch), _) => Subject::Kernel(Arc::clone(&launch.kernel.name)),
            (None, Some(call)) => Subject::Elsewhere(Arc::clone(&call.location)),
            (None, None) => Subject::Call,
        };
        Self { site: origin.site, subject, line: spot.line() }
    }

    /// The place of a call. `kernel` is a number of the kernel that it launches, zero for other calls.
    pub(crate) fn of_call(site: Site, kernel: u32) -> Self {
        Self { site: Some(site), subject: Subject::NumberedKernel(kernel), line: 0 }
    }
}

/// Two findings with the same kind and places are one.
type Key = (Kind, Place, Option<Place>);

pub(crate) struct Reporter {
    write: Box<dyn Fn(&Finding) + Send + Sync>,
    written: Mutex<HashMap<Key, Written>>,
    streams: Mutex<Streams>,
}

/// A finding that was written.
#[derive(Debug, Default)]
struct Written {
    /// `None` while a thread describes it.
    finding: Option<Box<Finding>>,
    /// How often it occurred since then.
    more: u64,
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reporter").finish_non_exhaustive()
    }
}

/// The names of streams.
#[derive(Debug, Default)]
struct Streams {
    names: HashMap<QueueId, StreamName>,
    /// Those that have ended: only earlier tasks may still name them.
    ended: HashSet<QueueId>,
    created: u64,
}

#[derive(Debug)]
enum StreamName {
    /// In the order of creation.
    Number(u64),
    /// Of a stream that the program did not create.
    Name(Box<str>),
}

impl Reporter {
    pub(crate) fn new(write: impl Fn(&Finding) + Send + Sync + 'static) -> Self {
        Self { write: Box::new(write), written: Mutex::default(), streams: Mutex::default() }
    }

    /// Writes a finding about one place, or counts it if there was one.
    pub(crate) fn report(&self, kind: Kind, at: Place, finding: impl FnOnce() -> Finding) {
        self.report_once((kind, at, None), finding);
    }

    /// Writes a finding about two places, whichever of them comes first, or counts it if there was one.
    pub(crate) fn report_pair(&self, kind: Kind, mut places: [Place; 2], finding: impl FnOnce() -> Finding) {
        places.sort();
        let [first, second] = places;
        self.report_once((kind, first, Some(second)), finding);
    }

    fn written(&self) -> MutexGuard<'_, HashMap<Key, Written>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report_once(&self, key: Key, finding: impl FnOnce() -> Finding) {
        match self.written().entry(key.clone()) {
            Entry::Occupied(mut known) => return known.get_mut().more += 1,
            Entry::Vacant(new) => _ = new.insert(Written::default()),
        }
        let finding = Box::new(finding());
        (self.write)(&finding);
        self.written().entry(key).or_default().finding = Some(finding);
    }

    /// Writes the findings that have occurred again since they were written, with how often.
    pub(crate) fn report_repeats(&self) {
        let mut repeated = Vec::new();
        for Written { finding, more } in self.written().values_mut() {
            if let Some(finding) = finding.as_deref().filter(|_| *more > 0) {
                repeated.push(Finding { count: std::mem::take(more), ..finding.clone() });
            }
        }
        repeated.iter().for_each(|finding| (self.write)(finding));
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Names a stream by its number.
    pub(crate) fn number_stream(&self, queue: QueueId) {
        let mut streams = self.streams();
        streams.created += 1;
        let number = streams.created;
        streams.names.insert(queue, StreamName::Number(number));
    }

    pub(crate) fn name_stream(&self, queue: QueueId, name: &str) {
        self.streams().names.insert(queue, StreamName::Name(name.into()));
    }

    /// Forgets the name of a stream in which no work was.
    pub(crate) fn forget_stream(&self, queue: QueueId) {
        self.streams().names.remove(&queue);
    }

    /// Notes streams that have ended.
    pub(crate) fn end_streams(&self, ended: impl IntoIterator<Item = QueueId>) {
        self.streams().ended.extend(ended);
    }

    /// Forgets the names of streams that have ended, except those that tasks are in.
    pub(crate) fn forget_ended(&self, are_named: &HashSet<QueueId>) {
        let Streams { names, ended, .. } = &mut *self.streams();
        for queue in ended.extract_if(|queue| !are_named.contains(queue)) {
            names.remove(&queue);
        }
    }

    #[cfg(test)]
    pub(crate) fn stream_count(&self) -> usize {
        self.streams().names.len()
    }

    /// Names where a task runs: `stream 2`.
    pub(crate) fn stream_name(&self, task: &Task) -> String {
        self.queue_name(task.epoch.queue)
    }

    pub(crate) fn queue_name(&self, queue: QueueId) -> String {
        if queue == QueueId::HOST {
            return "the host".to_owned();
        }
        match self.streams().names.get(&queue) {
            Some(StreamName::Number(number)) => format!("stream {number}"),
            Some(StreamName::Name(name)) => name.to_string(),
            None => "a branch of a graph".to_owned(),
        }
    }

    /// Returns the number of a stream in the order of creation, zero for one that the program did not create.
    pub(crate) fn stream_number(&self, queue: QueueId) -> u64 {
        match self.streams().names.get(&queue) {
            Some(StreamName::Number(number)) => *number,
            Some(StreamName::Name(_)) => 0,
            None => queue.0,
        }
    }

    /// Describes what a task does.
    pub(crate) fn access(&self, task: &Task, action: String, spot: Spot) -> Access {
        let Epoch { queue, seq } = task.epoch;
        let stream = self.stream_number(queue);
        let position = (queue != QueueId::HOST).then_some(Position { stream, work: seq });
        Access { action, location: task.origin.location(spot), position }
    }
}
