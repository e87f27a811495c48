//! Callers and workers that are killed at any point.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;

use freehold_broker::{CallError, Executed};
use freehold_testing::{at_effort, report_covered, seed};

use super::{Tenant, stepped};
use crate::harness::{self, Harness, Random, stats, until};
use crate::leases::Outcome;

/// How many callers and workers are killed.
fn kills() -> u64 {
    at_effort(8, 40, 200)
}

pub(crate) fn act(socket: &Path, task: &str, seed: u64) -> Option<Outcome> {
    Some(match task {
        "call-idle" => idle(socket),
        "call-storm" => storm(socket),
        "call-killed" => killed(socket, seed),
        _ => return None,
    })
}

/// Calls once, prints a line, and waits.
fn idle(socket: &Path) -> Outcome {
    let tenant = Tenant::new(socket)?;
    let mut lease = tenant.words(&[1; 10])?;
    tenant.step(&mut lease, 1, 0)?.wait()?;
    println!("{}", tenant.broker.tenant().0);
    std::io::stdout().flush()?;
    loop {
        std::thread::park();
    }
}

/// Calls until it is killed, and prints a line each time.
fn storm(socket: &Path) -> Outcome {
    let tenant = Tenant::new(socket)?;
    let mut out = std::io::stdout();
    for round in 0.. {
        let mut lease = tenant.words(&[round; 3000])?;
        writeln!(out, "reserved")?;
        let calls = (0..6).map(|k| tenant.step(&mut lease, k, k % 3)).collect::<Result<Vec<_>, _>>()?;
        writeln!(out, "called")?;
        if round % 2 == 0 {
            calls.iter().try_for_each(freehold_broker::Call::wait)?;
            writeln!(out, "done")?;
        }
    }
    Ok(())
}

pub(crate) fn a_caller_that_is_killed_anywhere_leaves_nothing(harness: &Harness) {
    let mut random = Random::new(seed());
    let mut link = harness.link();
    for _ in 0..kills() {
        let words = ["device".into(), harness.socket().into(), "call-storm".into(), "0".into()];
        let mut caller = harness.start(&words);
        let lines = random.below(12);
        // Read until it is dead: a full pipe would block it before.
        let mut output = BufReader::new(caller.stdout.take().expect("it is piped"));
        let heard = output.by_ref().lines().take(lines as usize).count() as u64;
        assert_eq!(heard, lines, "it runs until it is killed");
        (0..random.below(1 << 16)).for_each(|_| std::hint::spin_loop());
        harness::kill(caller.id());
        caller.wait().unwrap();
    }
    until("dead callers and their workers hold nothing", || {
        let stats = stats(&mut link);
        let is_clean = stats.tenants == 1 && stats.leases == 0 && stats.reclaiming_bytes == 0;
        (is_clean && harness.processes("worker").is_empty()).then_some(())
    });
    report_covered(kills(), "killed callers");
    // The modules of dead callers stay, and serve others.
    super::said(harness, "call-saxpy");
}

pub(crate) fn killed_workers(harness: &Harness) {
    let seed = seed();
    assert_eq!(harness.device("call-killed", seed).as_deref(), Some(""));
    report_covered(kills(), "killed workers");
}

/// Kills its own worker at random, and compares its memory with the reported outcomes of its calls.
fn killed(socket: &Path, seed: u64) -> Outcome {
    let tenant = Tenant::new(socket)?;
    let mut random = Random::new(seed);
    for _ in 0..kills() {
        let mut lease = tenant.words(&[1; 200])?;
        let count = 1 + random.below(12) as u32;
        let calls = (0..count).map(|k| tenant.step(&mut lease, k, 0)).collect::<Result<Vec<_>, _>>()?;
        (0..random.below(1 << 17)).for_each(|_| std::hint::spin_loop());
        harness::kill_role(socket, "worker");
        // Those that were executed, then those that may have been, then those that were not.
        let outcomes: Vec<Result<(), CallError>> = calls.iter().map(freehold_broker::Call::wait).collect();
        let executed = outcomes.iter().take_while(|outcome| outcome.is_ok()).count();
        let maybe = outcomes[executed..].iter();
        let maybe =
            maybe.take_while(|outcome| matches!(outcome, Err(error) if error.executed() == Executed::Maybe)).count();
        for outcome in &outcomes[executed + maybe..] {
            let error = outcome.as_ref().expect_err("a later call is not executed before an earlier one");
            assert_eq!(error.executed(), Executed::No, "{error}");
        }
        let states: Vec<u32> = (0..=count)
            .scan(1, |word, k| {
                let now = *word;
                *word = stepped(now, k);
                Some(now)
            })
            .collect();
        // An interrupted kernel may have stepped only some of the words.
        let words = tenant.read(&lease)?;
        let may_be = &states[executed..=(executed + maybe)];
        assert!(words.iter().all(|word| may_be.contains(word)), "{words:?} is none of {may_be:?}: {outcomes:?}");
    }
    Ok(())
}
