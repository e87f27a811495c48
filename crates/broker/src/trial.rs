//! What fuzzing drives: the state under any requests in any order, brokers that die between any two records, and the recovery from
//! any journal. Bytes choose what happens; a broken rule is a panic. The library has none of this otherwise.

use std::collections::VecDeque;

use crate::journal::Journal;
use crate::state::tests::{Coins, OWN, PASSED, Pages, check, limits};
use crate::state::{Dirty, Effect, Peer, State, Thing};
use crate::wire::{Framed, Id, Request};

/// Choices, one byte each. When they are used up, all is over.
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

    /// One of some things, if there are any.
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

fn coins(choices: &mut Choices<'_>) -> Option<Coins> {
    let byte = choices.byte()?;
    Some(Coins { is_full: byte & 1 != 0, has_passed: byte & 2 != 0 })
}

/// A broker without processes.
struct Trial {
    state: State,
    pages: Pages,
    making: VecDeque<Id>,
    cleaning: VecDeque<Dirty>,
}

impl Trial {
    fn new() -> Self {
        let (making, cleaning) = (VecDeque::new(), VecDeque::new());
        Self { state: State::new(limits(), OWN), pages: Pages::default(), making, cleaning }
    }

    fn step(&mut self, choices: &mut Choices<'_>) -> Option<()> {
        let tenants: Vec<Id> = self.state.tenants.iter().map(|(id, _)| id).collect();
        match choices.byte()? % 16 {
            0 | 1 => {
                let _ = self.state.connect(Peer { user: u32::from(choices.byte()? % 2), process: 1 });
            }
            2 => self.state.fence(choices.of(&tenants)?),
            3 => {
                let tenant = choices.of(&tenants)?;
                let coins = coins(choices)?;
                match choices.byte()? % 4 {
                    0 => self.state.end(tenant, &coins),
                    _ => self.state.depart(tenant, &coins),
                }
            }
            4 | 5 => {
                let code = choices.byte()?;
                if let Some(segment) = self.making.pop_front() {
                    self.state.made(segment, if code < 224 { Ok(()) } else { Err(u32::from(code % 4)) });
                }
            }
            6 => {
                let is_clean = choices.byte()? < 224;
                if let Some(what) = self.cleaning.pop_front() {
                    self.state.cleaned(what, is_clean);
                }
            }
            7 => self.state.pass(&coins(choices)?),
            8 => self.die(choices),
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
        let coins = coins(choices)?;
        if let Ok(asked) = Framed::<Request>::decode(&slot, &text) {
            let number = asked.number;
            self.state.request(from, asked, &coins);
            self.answered(from, number);
        }
        Some(())
    }

    /// A number that may mean something.
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

    /// A request has one answer, or waits for memory that is being made.
    fn answered(&mut self, from: Id, of: u32) {
        let effects = self.state.take_effects(Vec::new());
        let is_answer = |effect: &&Effect| match **effect {
            Effect::Reply { to, number, .. }
            | Effect::Text { to, number, .. }
            | Effect::Hand { to, number, .. }
            | Effect::HandWith { to, number, .. }
            | Effect::Hire { to, number, .. } => (to, number) == (from, of),
            Effect::Make { .. } => true,
            _ => false,
        };
        assert_eq!(effects.iter().filter(is_answer).count(), 1, "a request has one answer: {effects:?}");
        self.carry_out(effects);
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Make { segment, .. } => self.making.push_back(segment),
                Effect::Clean { what, .. } => self.cleaning.push_back(what),
                Effect::Part { tenant } => {
                    self.state.end(tenant, &PASSED);
                    let more = self.state.take_effects(Vec::new());
                    self.carry_out(more);
                }
                _ => {}
            }
        }
    }

    /// The broker dies behind some of the records that it was to write, and another begins.
    fn die(&mut self, choices: &mut Choices<'_>) {
        let left = choices.byte().map_or(0, usize::from);
        self.write(left);
        self.state = State::recover(limits(), OWN, |kind| self.pages.records(kind), |_| true);
        self.making.clear();
        self.cleaning.clear();
    }

    fn write(&mut self, records_max: usize) {
        let mut touched = Vec::new();
        self.state.write_touched(|_, one| touched.push(one));
        touched.into_iter().take(records_max).for_each(|one| self.pages.put(&self.state, one));
    }
}

/// Whatever happens, in whatever order, every rule of the state holds.
pub fn state(choices: &[u8]) {
    let mut choices = Choices(choices);
    let mut trial = Trial::new();
    while !choices.0.is_empty() {
        // A step may be the last thing that a broker did: then not all of its records are written.
        let is_last = choices.0[0] % 16 == 8;
        if !is_last {
            trial.write(usize::MAX);
        }
        let _ = trial.step(&mut choices);
        let effects = trial.state.take_effects(Vec::new());
        trial.carry_out(effects);
        check(&trial.state);
    }
}

/// The journal of a broker to which some things have happened.
fn written(choices: &mut Choices<'_>) -> Journal {
    let journal = Journal::create(limits()).expect("a file in memory");
    let mut trial = Trial::new();
    while let Some(&next) = choices.0.first() {
        if next % 16 == 8 {
            // Nobody dies here.
            choices.byte();
            continue;
        }
        let _ = trial.step(choices);
        let effects = trial.state.take_effects(Vec::new());
        trial.carry_out(effects);
        journal.write(&mut trial.state);
    }
    journal
}

/// The journal of a broker in which any words are changed is recovered from without a panic, and whoever is found in it can be
/// served, and ended.
pub fn journal(choices: &[u8]) {
    let (steps, spoils) = choices.split_at(choices.len() / 2);
    let written = written(&mut Choices(steps));
    let mut choices = Choices(spoils);
    let has = choices.byte().unwrap_or(0);
    // Few are changed: of a journal that is all noise, little is believed.
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
        written.spoil(usize::from(table % 10), usize::from(at), value);
    }
    let file = written.shared().shared_file();
    let Ok(journal) = Journal::open(file) else { return };
    let has = |thing| match thing {
        Thing::Segment(_) => has & 1 == 0,
        Thing::Clock(_) => has & 2 == 0,
        Thing::Host(_) => has & 4 == 0,
        Thing::Module(_) | Thing::Calls(_) => has & 8 == 0,
    };
    let mut state = State::recover(journal.limits(), OWN, |kind| journal.records(kind), has);
    state.take_effects(Vec::new());
    journal.write(&mut state);
    if let Ok(tenant) = state.connect(Peer { user: 7, process: 1 }) {
        for message in [Request::Totals, Request::Reserve { bytes: 4096 }, Request::List { after: None }] {
            state.request(tenant, Framed { number: 1, is_again: false, message }, &PASSED);
        }
    }
    state.pass(&PASSED);
    let tenants: Vec<Id> = state.tenants.iter().map(|(id, _)| id).collect();
    tenants.into_iter().for_each(|tenant| state.end(tenant, &PASSED));
    journal.write(&mut state);
    assert_eq!(state.leases.iter().count(), 0, "nobody is left to hold a lease");
}

#[cfg(test)]
mod tests {
    use freehold_testing::{Random, covered, print_seed, seeds};

    /// Bytes from seeds, as many as a run of the fuzzer gives at a time.
    fn try_often(what: &str, trial: fn(&[u8])) {
        let seeds = seeds(100, 700, 20_000);
        covered(seeds.end() - seeds.start() + 1, what);
        for seed in seeds {
            let shown = ShownOnPanic(seed);
            let mut random = Random(seed);
            let bytes: Vec<u8> = (0..256).flat_map(|_| random.next().to_le_bytes()).collect();
            trial(&bytes);
            drop(shown);
        }
    }

    /// Prints the seed that failed.
    struct ShownOnPanic(u64);

    impl Drop for ShownOnPanic {
        fn drop(&mut self) {
            if std::thread::panicking() {
                print_seed(self.0);
            }
        }
    }

    #[test]
    fn whatever_happens_every_rule_of_the_state_holds() {
        try_often("simulated brokers", super::state);
    }

    #[test]
    fn a_journal_of_any_words_is_recovered_from() {
        try_often("spoiled journals", super::journal);
    }
}
