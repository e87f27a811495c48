//! A simulated broker for tests and fuzzing: runs the state with arbitrary requests, kills the broker between any two
//! records, and recovers from arbitrary journals. The input bytes select the steps; a broken invariant panics. Not part
//! of a normal build.

use std::collections::VecDeque;

use crate::daemon::journal::Journal;
use crate::protocol::message::{Frame, Request};
use crate::protocol::scrub::ScrubTarget;
use crate::protocol::types::Id;
use crate::state::tests::{COMPLETE, FakeEnvironment, MemoryJournal, OPERATOR, check, limits};
use crate::state::{Effect, Peer, Resource, State};

/// Decisions, one byte each. The run ends when they are used up.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn word(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*first))
    }

    /// One of several values, if there are any.
    fn of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        let byte = usize::from(self.byte()?);
        (!all.is_empty()).then(|| all[byte % all.len()])
    }

    fn text(&mut self) -> Option<Vec<u8>> {
        let byte = self.byte()?;
        Some(match byte % 8 {
            0..=2 => Vec::new(),
            3..=6 => format!("n/{}", byte / 8 % 4).into_bytes(),
            _ => (0..byte / 8).map(|_| self.byte()).collect::<Option<_>>()?,
        })
    }
}

fn environment(choices: &mut Choices<'_>) -> Option<FakeEnvironment> {
    let byte = choices.byte()?;
    Some(FakeEnvironment { is_full: byte & 1 != 0, is_complete: byte & 2 != 0 })
}

/// A broker without processes.
struct Simulation {
    state: State,
    journal: MemoryJournal,
    creating: VecDeque<Id>,
    scrubbing: VecDeque<ScrubTarget>,
}

impl Simulation {
    fn new() -> Self {
        let (making, cleaning) = (VecDeque::new(), VecDeque::new());
        Self {
            state: State::new(limits(), OPERATOR),
            journal: MemoryJournal::default(),
            creating: making,
            scrubbing: cleaning,
        }
    }

    fn step(&mut self, choices: &mut Choices<'_>) -> Option<()> {
        let tenants: Vec<Id> = self.state.tenants.iter().map(|(id, _)| id).collect();
        match choices.byte()? % 16 {
            0 | 1 => {
                let _ = self.state.connect(Peer { user: u32::from(choices.byte()? % 2), process: 1 });
            }
            2 => self.state.disconnect(choices.of(&tenants)?),
            3 => {
                let tenant = choices.of(&tenants)?;
                let environment = environment(choices)?;
                match choices.byte()? % 4 {
                    0 => self.state.remove_tenant(tenant, &environment),
                    _ => self.state.process_exited(tenant, &environment),
                }
            }
            4 | 5 => {
                let code = choices.byte()?;
                if let Some(segment) = self.creating.pop_front() {
                    self.state.segment_created(segment, if code < 224 { Ok(()) } else { Err(u32::from(code % 4)) });
                }
            }
            6 => {
                let is_clean = choices.byte()? < 224;
                if let Some(what) = self.scrubbing.pop_front() {
                    self.state.scrubbed(what, is_clean);
                }
            }
            7 => self.state.poll_fences(&environment(choices)?),
            8 => self.restart(choices),
            _ => self.request(&tenants, choices)?,
        }
        Some(())
    }

    fn request(&mut self, tenants: &[Id], choices: &mut Choices<'_>) -> Option<()> {
        let from = choices.of(tenants)?;
        let mut slot = [0; 8];
        slot[0] = u64::from(choices.byte()? % 28) | u64::from(choices.byte()?) << 32;
        let odd = choices.byte()?;
        if odd >= 240 {
            slot[0] |= u64::from(odd) << 16;
        } else if odd >= 224 {
            slot[0] |= 1 << 16;
        }
        for word in &mut slot[1..usize::from(2 + odd % 4)] {
            *word = self.word(tenants, choices)?;
        }
        let text = choices.text()?;
        let environment = environment(choices)?;
        if let Ok(asked) = Frame::<Request>::decode(&slot, &text) {
            let number = asked.number;
            self.state.request(from, asked, &environment);
            self.answered(from, number);
        }
        Some(())
    }

    /// A number that may be valid somewhere.
    fn word(&self, tenants: &[Id], choices: &mut Choices<'_>) -> Option<u64> {
        let state = &self.state;
        Some(match choices.byte()? % 10 {
            0 | 1 => 0,
            2 => u64::from(choices.byte()?),
            3 => u64::from(choices.byte()?) << 16,
            4 => choices.of(&state.leases.iter().map(|(id, _)| id).collect::<Vec<_>>())?.0,
            5 => choices.of(&state.segments.iter().map(|(id, _)| id).collect::<Vec<_>>())?.0,
            6 => choices.of(&state.named.iter().map(|(id, _)| id).collect::<Vec<_>>())?.0,
            7 => choices.of(tenants)?.0,
            8 => choices.of(&state.modules.iter().map(|(id, _)| id).collect::<Vec<_>>())?.0,
            _ => choices.word()?,
        })
    }

    /// Checks that a request has one reply, or waits for a segment.
    fn answered(&mut self, from: Id, of: u32) {
        let effects = self.state.take_effects(Vec::new());
        let is_answer = |effect: &&Effect| match **effect {
            Effect::Reply { to, number, .. }
            | Effect::Text { to, number, .. }
            | Effect::SendFd { to, number, .. }
            | Effect::SendFdWith { to, number, .. }
            | Effect::OpenSession { to, number, .. } => (to, number) == (from, of),
            Effect::CreateSegment { .. } => true,
            _ => false,
        };
        assert_eq!(effects.iter().filter(is_answer).count(), 1, "a request has one reply: {effects:?}");
        self.apply_effects(effects);
    }

    fn apply_effects(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::CreateSegment { segment, .. } => self.creating.push_back(segment),
                Effect::Scrub { what, .. } => self.scrubbing.push_back(what),
                Effect::RemoveTenant { tenant } => {
                    self.state.remove_tenant(tenant, &COMPLETE);
                    let more = self.state.take_effects(Vec::new());
                    self.apply_effects(more);
                }
                _ => {}
            }
        }
    }

    /// The broker dies after some of its records, and another recovers.
    fn restart(&mut self, choices: &mut Choices<'_>) {
        let left = choices.byte().map_or(0, usize::from);
        self.write(left);
        self.state = State::recover(limits(), OPERATOR, |kind| self.journal.records(kind), |_| true);
        self.creating.clear();
        self.scrubbing.clear();
    }

    fn write(&mut self, records_max: usize) {
        let mut dirty = Vec::new();
        self.state.write_dirty(|_, one| dirty.push(one));
        dirty.into_iter().take(records_max).for_each(|one| self.journal.put(&self.state, one));
    }
}

/// Runs random requests and deaths, and checks every invariant of the state.
pub fn state(choices: &[u8]) {
    let mut choices = Choices(choices);
    let mut simulation = Simulation::new();
    while !choices.0.is_empty() {
        // A broker may die in any step: then only some of its records are written.
        let is_last = choices.0[0] % 16 == 8;
        if !is_last {
            simulation.write(usize::MAX);
        }
        let _ = simulation.step(&mut choices);
        let effects = simulation.state.take_effects(Vec::new());
        simulation.apply_effects(effects);
        check(&simulation.state);
    }
}

/// The journal of a broker after some requests.
fn written_journal(choices: &mut Choices<'_>) -> Journal {
    let journal = Journal::create(limits()).expect("memfd_create succeeds");
    let mut simulation = Simulation::new();
    while let Some(&next) = choices.0.first() {
        if next % 16 == 8 {
            // No broker dies here.
            choices.byte();
            continue;
        }
        let _ = simulation.step(choices);
        let effects = simulation.state.take_effects(Vec::new());
        simulation.apply_effects(effects);
        journal.write(&mut simulation.state);
    }
    journal
}

/// Changes some words of a journal at random. Recovery must not panic, and every tenant that it finds can be served and
/// removed.
pub fn journal(choices: &[u8]) {
    let (steps, corruptions) = choices.split_at(choices.len() / 2);
    let written = written_journal(&mut Choices(steps));
    let mut choices = Choices(corruptions);
    let has = choices.byte().unwrap_or(0);
    // Only a few words: little is recovered from a journal that is all noise.
    for _ in 0..has / 8 {
        let (Some(table), Some(at), Some(how)) = (choices.byte(), choices.byte(), choices.byte()) else { break };
        let value = match how % 8 {
            0 | 1 => 1 << 32 | u64::from(how / 8),
            2 => 1 << 32 | 1,
            3 => 1 << 32 | 3,
            4 => u64::from(how / 8) << 21,
            5 => u64::from(how / 8) << 9,
            6 => u64::from(how / 8),
            _ => choices.word().unwrap_or(u64::MAX),
        };
        written.corrupt(usize::from(table % 10), usize::from(at), value);
    }
    let file = written.shared().shared_fd();
    let Ok(journal) = Journal::open(file) else { return };
    let has = |resource| match resource {
        Resource::Segment(_) => has & 1 == 0,
        Resource::Semaphores(_) => has & 2 == 0,
        Resource::Host(_) => has & 4 == 0,
        Resource::Module(_) | Resource::CallRing(_) => has & 8 == 0,
    };
    let mut state = State::recover(journal.limits(), OPERATOR, |kind| journal.records(kind), has);
    state.take_effects(Vec::new());
    journal.write(&mut state);
    if let Ok(tenant) = state.connect(Peer { user: 7, process: 1 }) {
        for message in [Request::Stats, Request::Reserve { bytes: 4096 }, Request::List { after: None }] {
            state.request(tenant, Frame { number: 1, is_retry: false, message }, &COMPLETE);
        }
    }
    state.poll_fences(&COMPLETE);
    let tenants: Vec<Id> = state.tenants.iter().map(|(id, _)| id).collect();
    tenants.into_iter().for_each(|tenant| state.remove_tenant(tenant, &COMPLETE));
    journal.write(&mut state);
    assert_eq!(state.leases.iter().count(), 0, "a lease is left without tenants");
}

#[cfg(test)]
mod tests {
    use freehold_testing::{Random, print_seed, report_covered, seeds};

    /// Random bytes from seeds, as many as one run of the fuzzer gets.
    fn run_seeds(what: &str, simulation: fn(&[u8])) {
        let seeds = seeds(100, 700, 20_000);
        report_covered(seeds.end() - seeds.start() + 1, what);
        for seed in seeds {
            let shown = PrintSeedOnPanic(seed);
            let mut random = Random::new(seed);
            let bytes: Vec<u8> = (0..256).flat_map(|_| random.next().to_le_bytes()).collect();
            simulation(&bytes);
            drop(shown);
        }
    }

    /// Prints the seed of a failed run.
    struct PrintSeedOnPanic(u64);

    impl Drop for PrintSeedOnPanic {
        fn drop(&mut self) {
            if std::thread::panicking() {
                print_seed(self.0);
            }
        }
    }

    #[test]
    fn whatever_happens_every_rule_of_the_state_holds() {
        run_seeds("simulated brokers", super::state);
    }

    #[test]
    fn a_journal_of_any_words_is_recovered_from() {
        run_seeds("corrupted journals", super::journal);
    }
}
