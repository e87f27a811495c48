//! The state under random requests, and under a death between any two records of the journal.

use freehold_testing::Random;

use super::*;

fn one_of<T: Copy>(random: &mut Random, all: &[T]) -> Option<T> {
    (!all.is_empty()).then(|| random.pick(all))
}

/// One random event.
fn step(state: &mut State, random: &mut Random, creating: &mut Vec<Id>, scrubbing: &mut Vec<ScrubTarget>, number: u32) {
    let tenants: Vec<Id> = state.tenants.iter().map(|(id, _)| id).collect();
    let Some(tenant) = one_of(random, &tenants) else {
        state.connect(Peer { user: OPERATOR, process: number }).unwrap();
        return;
    };
    let leases: Vec<Id> = state.tenants.get(tenant).unwrap().leases.iter().copied().collect();
    let others: Vec<Id> = state.leases.iter().map(|(id, _)| id).collect();
    let fence = Fence { tenant: Id(0), semaphore: random.below(600) as u32, value: random.below(3) };
    let name = Name::parse(&format!("n/{}", random.below(5))).unwrap();
    let worker = state.tenants.get(tenant).unwrap().session.map(|session| session.worker);
    let fence = Fence { tenant: worker.filter(|_| random.below(2) == 0).unwrap_or(Id(0)), ..fence };
    let message = match random.below(29) {
        0 => {
            let _ = state.connect(Peer { user: 7 + random.below(2) as u32, process: number });
            return;
        }
        1 => {
            state.disconnect(tenant);
            return;
        }
        2 => {
            state.process_exited(tenant, &FakeEnvironment { is_full: false, is_complete: random.below(2) == 0 });
            return;
        }
        3..=5 => Request::Reserve { bytes: 1 + random.below(5 << 20) },
        6 | 7 => match one_of(random, &leases) {
            Some(lease) => Request::Return { lease, fence },
            None => Request::Return { lease: Id(random.below(1 << 34)), fence },
        },
        8 => match one_of(random, &others) {
            // Mostly another tenant's.
            Some(lease) => Request::Return { lease, fence },
            None => Request::Stats,
        },
        9 | 10 => match (one_of(random, &leases), one_of(random, &tenants)) {
            (Some(lease), Some(to)) => Request::Give { lease, to, fence },
            _ => Request::Stats,
        },
        11 | 12 => match one_of(random, &leases) {
            Some(lease) => {
                let policy = random.pick(&[Policy::Restore, Policy::Drop, Policy::Open]);
                Request::Publish { lease, policy, fence, name }
            }
            None => Request::Find { name },
        },
        13..=15 => {
            let names: Vec<Id> = state.named.iter().map(|(id, _)| id).collect();
            let access = if random.below(2) == 0 { Access::Read } else { Access::Write };
            let bytes = if access == Access::Write { [0, 512, 3 << 20][random.below(3) as usize] } else { 0 };
            Request::Lease { name: one_of(random, &names).unwrap_or(Id(5)), access, bytes }
        }
        16 => Request::Drop { name },
        20 | 21 => Request::OpenSession { label: random.below(3) },
        22..=24 => {
            let held = |(_, lease): &(Id, &Lease)| worker.is_some() && lease.holder == tenant;
            let own: Vec<Id> = state.leases.iter().filter(held).map(|(id, _)| id).collect();
            let lease = one_of(random, &own).or(one_of(random, &others)).unwrap_or(Id(3));
            let message = Request::Borrow { lease, of: tenant };
            let asked = Frame { number, is_retry: false, message };
            state.request(worker.unwrap_or(tenant), asked, &COMPLETE);
            return;
        }
        25 => {
            let (bytes, device_bytes) = (1 + random.below(1 << 20), random.below(3) * random.below(8 << 20));
            Request::PutModule { bytes, device_bytes, hash: [random.below(2); 4], name }
        }
        26 => {
            let modules: Vec<Id> = state.modules.iter().map(|(id, _)| id).collect();
            match one_of(random, &modules) {
                Some(module) if random.below(4) > 0 => {
                    let message = match random.below(4) {
                        0 => Request::Compiled { module },
                        1 => Request::Unload { module },
                        _ => Request::Module { id: module, name: None },
                    };
                    let asked = Frame { number, is_retry: false, message };
                    state.request(worker.unwrap_or(tenant), asked, &COMPLETE);
                    return;
                }
                _ => Request::DropModule { name },
            }
        }
        27 => Request::Bye,
        28 => {
            let message = Request::Drained { tenant };
            let asked = Frame { number, is_retry: false, message };
            state.request(
                worker.unwrap_or(tenant),
                asked,
                &FakeEnvironment { is_full: false, is_complete: random.below(2) == 0 },
            );
            return;
        }
        17 => {
            let segments: Vec<Id> = state.segments.iter().map(|(id, _)| id).collect();
            match one_of(random, &segments) {
                Some(segment) => Request::Attach { segment },
                None => Request::Stats,
            }
        }
        18 => {
            let attached: Vec<Id> = state.tenants.get(tenant).unwrap().attached.keys().copied().collect();
            match one_of(random, &attached) {
                Some(segment) => Request::Detach { segment },
                None => Request::Detach { segment: Id(3) },
            }
        }
        _ => {
            if random.below(3) == 0 {
                state.poll_fences(&COMPLETE);
            } else if let Some(segment) = one_of(random, creating) {
                creating.retain(|&other| other != segment);
                let code = if random.below(8) == 0 { Err(2) } else { Ok(()) };
                state.segment_created(segment, code);
            } else if let Some(what) = one_of(random, scrubbing) {
                scrubbing.retain(|&other| other != what);
                state.scrubbed(what, random.below(8) != 0);
            }
            return;
        }
    };
    let asked = Frame { number, is_retry: false, message };
    state.request(
        tenant,
        asked,
        &FakeEnvironment { is_full: random.below(10) == 0, is_complete: random.below(2) == 0 },
    );
}

#[test]
fn random_requests_keep_every_invariant_and_the_journal_tells_all_of_it() {
    let mut random = Random::new(freehold_testing::seed());
    let lives = freehold_testing::at_effort(4, 25, 1000);
    freehold_testing::report_covered(lives * 400, "steps of a broker's state, each cut and recovered");
    for _ in 0..lives {
        let (mut state, mut journal) = (State::new(limits(), OPERATOR), MemoryJournal::default());
        let (mut creating, mut scrubbing) = (Vec::new(), Vec::new());
        for number in 0..400 {
            step(&mut state, &mut random, &mut creating, &mut scrubbing, number);
            check(&state);
            for effect in state.take_effects(Vec::new()) {
                match effect {
                    Effect::CreateSegment { segment, .. } => creating.push(segment),
                    Effect::Scrub { what, .. } => scrubbing.push(what),
                    _ => {}
                }
            }
            let mut dirty = Vec::new();
            state.write_dirty(|_, one| dirty.push(one));
            // The broker dies after some of the records.
            let cut = random.below(dirty.len() as u64 + 1) as usize;
            dirty[..cut].iter().for_each(|&one| journal.put(&state, one));
            let mended = State::recover(limits(), OPERATOR, |kind| journal.records(kind), |_| true);
            check(&mended);
            dirty[cut..].iter().for_each(|&one| journal.put(&state, one));
            let whole = State::recover(limits(), OPERATOR, |kind| journal.records(kind), |_| true);
            check(&whole);
            assert_eq!(
                whole.leases.iter().collect::<Vec<_>>(),
                state.leases.iter().collect::<Vec<_>>(),
                "no lease is lost"
            );
            assert_eq!(
                whole.named.iter().collect::<Vec<_>>(),
                state.named.iter().collect::<Vec<_>>(),
                "no name is lost"
            );
            assert_eq!(
                whole.blocks.iter().filter(|(_, block)| !block.is_scrubbing).collect::<Vec<_>>(),
                state.blocks.iter().filter(|(_, block)| !block.is_scrubbing).collect::<Vec<_>>(),
                "no block is lost"
            );
        }
    }
}
