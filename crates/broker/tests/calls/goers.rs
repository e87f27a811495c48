//! Tenants that go with calls in their rings: what was called is carried out, however they go.

use std::path::Path;

use freehold::Grid;
use freehold_broker::wire::Request;
use freehold_broker::{Access, Broker, Launch, Lease, Name, Policy};
use rustix::process::{Pid, Signal, getpid, kill_process};

use super::{Tenant, said, stepped};
use crate::blocks::Outcome;
use crate::stage::{self, Stage};

/// Calls that are refused, more than a ring has room to tell of; and calls behind them that are carried out.
const REFUSED: u32 = 60;
const CARRIED: u32 = 150;

pub(crate) fn act(socket: &Path, task: &str, way: u64) -> Option<Outcome> {
    Some(match task {
        "call-make" => make(socket),
        "call-go" => go(socket, way),
        "call-seen" => seen(socket),
        _ => return None,
    })
}

fn signal(process: u32, signal: Signal) {
    kill_process(Pid::from_raw(process.cast_signed()).expect("a process has a number"), signal).expect("it is ours");
}

pub(crate) fn what_was_called_is_carried_out_however_its_process_goes(stage: &Stage) {
    for way in 0..3 {
        said(stage, "call-make");
        // Only who was killed says nothing.
        assert_eq!(stage.device("call-go", way).is_some(), way != 2);
        let [worker] = stage.processes("worker")[..] else { panic!("it has a worker still") };
        let mut link = stage.link();
        assert!(stage::sums(&mut link).leases > 0, "nothing is anybody else's before it is carried out");
        signal(worker, Signal::CONT);
        stage::until("the worker is gone", || stage.processes("worker").is_empty().then_some(()));
        stage::until("the tenant is gone", || {
            let sums = stage::sums(&mut link);
            (sums.tenants == 1 && sums.leases == 0).then_some(())
        });
        drop(link);
        said(stage, "call-seen");
    }
}

/// Words under a name.
fn make(socket: &Path) -> Outcome {
    let device = freehold::open::device(Some(&stage::device()))?;
    let (stream, broker) = (device.stream()?, Broker::connect_at(&device, socket)?);
    broker.publish_copy(&stream, "words", &stream.upload(&[1_u32; 100])?, Policy::Open)?;
    stream.synchronize()?;
    Ok(())
}

/// Calls while its worker stands still, and goes: with a goodbye, without one, or killed.
fn go(socket: &Path, way: u64) -> Outcome {
    let tenant = Tenant::new(socket)?;
    let lease: Lease<u32> = tenant.broker.lease(&tenant.stream, "words", Access::Write)?;
    stage::processes(socket, "worker").into_iter().for_each(|worker| signal(worker, Signal::STOP));
    let kernel = tenant.module.kernel("step")?;
    let outside = [lease.argument(1 << 20), 1_u32.into(), 100_u32.into()];
    for _ in 0..REFUSED {
        tenant.caller.call(&Launch::new(&kernel, Grid::cover(100_u32, 64), &outside))?;
    }
    for call in 0..CARRIED {
        // The same number in both streams: their steps come to the same in any order.
        tenant.step(&lease, 7, call % 2 * 3)?;
    }
    match way {
        0 => Ok(()),
        1 => std::process::exit(0),
        _ => {
            kill_process(getpid(), Signal::KILL)?;
            Ok(())
        }
    }
}

fn seen(socket: &Path) -> Outcome {
    let tenant = Tenant::new(socket)?;
    let lease: Lease<u32> = tenant.broker.lease(&tenant.stream, "words", Access::Read)?;
    let wanted = (0..CARRIED).fold(1, |word, _| stepped(word, 7));
    assert_eq!(tenant.read(&lease)?, [wanted; 100]);
    drop(lease);
    tenant.broker.link()?.call(Request::Drop { name: Name::parse("words")? })?;
    Ok(())
}
