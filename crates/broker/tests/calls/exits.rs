//! Tenants that exit, in different ways, with calls in their rings: the calls are executed.

use std::path::Path;

use freehold::Grid;
use freehold_broker::{Access, Broker, Caller, Launch, Lease, Policy};
use freehold_testing::at_effort;
use rustix::process::{Signal, getpid, kill_process};

use super::{Tenant, said, stepped};
use crate::harness::{self, Harness};
use crate::leases::Outcome;

/// Refused calls, more than a ring has room to report; and calls after them that are executed.
const REFUSED: u32 = 60;
const CARRIED: u32 = 150;

pub(crate) fn act(socket: &Path, task: &str, way: u64) -> Option<Outcome> {
    Some(match task {
        "call-make" => make(socket),
        "call-go" => go(socket, way),
        "call-seen" => seen(socket),
        "call-at-once" => at_once(socket, way),
        "call-counted" => counted(socket, way as u32),
        _ => return None,
    })
}

pub(crate) fn what_was_called_is_carried_out_however_its_process_goes(harness: &Harness) {
    for way in 0..3 {
        said(harness, "call-make");
        // Only a killed tenant prints nothing.
        assert_eq!(harness.device("call-go", way).is_some(), way != 2);
        let [worker] = harness.processes("worker")[..] else { panic!("the tenant still has a worker") };
        let mut link = harness.link();
        assert!(harness::stats(&mut link).leases > 0, "no memory is reused before the calls are executed");
        harness::resume(worker);
        harness::until("the worker is gone", || harness.processes("worker").is_empty().then_some(()));
        harness::until("the tenant is gone", || {
            let stats = harness::stats(&mut link);
            (stats.tenants == 1 && stats.leases == 0).then_some(())
        });
        drop(link);
        said(harness, "call-seen");
    }
}

/// Its worker may not even have been started when it exits.
pub(crate) fn what_is_called_by_a_process_that_goes_at_once_is_carried_out(harness: &Harness) {
    let fdstore = Caller::connect_at(&harness.socket()).unwrap();
    fdstore.put_module("test/kernels", super::TEXT).unwrap();
    said(harness, "call-make");
    let mut calls = 0;
    for round in 0..at_effort(2, 10, 100) {
        for way in 0..3 {
            assert_eq!(harness.device("call-at-once", way).is_some(), way != 2);
            calls += 1;
            let mut link = harness.link();
            harness::until("the tenant is gone", || {
                let stats = harness::stats(&mut link);
                // The tenant that holds the module, its worker, and this one.
                (stats.tenants == 3 && stats.leases == 0).then_some(())
            });
            assert_eq!(harness.device("call-counted", calls).as_deref(), Some(""), "round {round}, way {way}");
        }
    }
}

/// Calls once and exits: with `Bye`, without it, or killed.
fn at_once(socket: &Path, way: u64) -> Outcome {
    let device = freehold::open::device(Some(&harness::device()))?;
    let (stream, broker) = (device.new_stream()?, Broker::connect_at(&device, socket)?);
    let caller = Caller::from_broker(&broker)?;
    // SAFETY: it writes one element of its argument.
    let kernel = unsafe { caller.module("test/kernels")?.kernel("step") }?;
    let mut lease: Lease<u32> = broker.lease(&stream, "words", Access::Write)?;
    let arguments = [lease.argument_mut(0), 1_u32.into(), 100_u32.into()];
    drop(caller.call(&Launch::new(&kernel, Grid::cover(100_u32, 64), &arguments))?);
    match way {
        0 => {}
        1 => std::process::exit(0),
        _ => kill_process(getpid(), Signal::KILL)?,
    }
    Ok(())
}

/// Checks that this many calls were executed.
fn counted(socket: &Path, calls: u32) -> Outcome {
    let device = freehold::open::device(Some(&harness::device()))?;
    let (stream, broker) = (device.new_stream()?, Broker::connect_at(&device, socket)?);
    let lease: Lease<u32> = broker.lease(&stream, "words", Access::Read)?;
    assert_eq!(stream.download(&*lease)?, [(0..calls).fold(1, |word, _| stepped(word, 1)); 100]);
    Ok(())
}

/// Words under a name.
fn make(socket: &Path) -> Outcome {
    let device = freehold::open::device(Some(&harness::device()))?;
    let (stream, broker) = (device.new_stream()?, Broker::connect_at(&device, socket)?);
    broker.publish_copy(&stream, "words", &stream.upload(&[1_u32; 100])?, Policy::Open)?;
    stream.synchronize()?;
    Ok(())
}

/// Calls while its worker is stopped, and exits: with `Bye`, without it, or killed.
fn go(socket: &Path, way: u64) -> Outcome {
    let tenant = Tenant::new(socket)?;
    let mut lease: Lease<u32> = tenant.broker.lease(&tenant.stream, "words", Access::Write)?;
    harness::processes(socket, "worker").into_iter().for_each(harness::stop);
    let kernel = super::test_kernel(&tenant.module, "step")?;
    let outside = [lease.argument_mut(1 << 20), 1_u32.into(), 100_u32.into()];
    for _ in 0..REFUSED {
        drop(tenant.caller.call(&Launch::new(&kernel, Grid::cover(100_u32, 64), &outside))?);
    }
    for call in 0..CARRIED {
        // The same number in both streams: the order of their steps does not matter.
        drop(tenant.step(&mut lease, 7, call % 2 * 3)?);
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
    tenant.broker.drop_name("words")?;
    Ok(())
}
