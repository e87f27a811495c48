//! Kernels that fault, hang or write out of bounds: their worker ends, and no other process notices.

use std::path::Path;
use std::time::Duration;

use freehold::Grid;
use freehold_broker::{Access, Argument, Call, CallError, Caller, ErrorOrigin, Executed, Launch, Lease, Policy};
use freehold_testing::at_effort;

use super::suspects::at_once;
use super::{Tenant, far, said, stepped};
use crate::harness::{self, Harness, SHORT_LAUNCH};
use crate::leases::Outcome;

pub(crate) fn act(socket: &Path, task: &str, seed: u64) -> Option<Outcome> {
    Some(match task {
        "call-wrong" => wrong(socket),
        "call-hung" => hung(socket),
        "call-wrong-often" => wrong_often(socket),
        "call-work" => work(socket, seed),
        _ => return None,
    })
}

impl Tenant {
    fn call_with(&self, kernel: &str, arguments: &[Argument<'_>]) -> Result<Call, CallError> {
        let kernel = super::test_kernel(&self.module, kernel)?;
        self.caller.call(&Launch::new(&kernel, Grid::line(1, 1), arguments))
    }
}

pub(crate) fn a_kernel_that_goes_wrong_takes_down_its_worker_alone(harness: &Harness) {
    said(harness, "call-wrong");
}

fn wrong(socket: &Path) -> Outcome {
    let tenant = Tenant::new(socket)?;
    let mut lease = tenant.words(&[5; 100])?;
    let first = tenant.step(&mut lease, 1, 0)?;
    first.wait()?;
    // A fault, with one call before it, and two after it.
    let before = tenant.step(&mut lease, 2, 0)?;
    before.wait()?;
    let [fault, behind @ ..] = at_once(socket, || {
        let fault = tenant.call_with("stray", &far(&mut lease))?;
        Ok([fault, tenant.step(&mut lease, 3, 0)?, tenant.step(&mut lease, 4, 0)?])
    })?;
    let error = fault.wait().unwrap_err();
    let said = error.to_string();
    let start = "kernel stray of test/kernels ended its worker: CUDA_ERROR_ILLEGAL_ADDRESS (700)";
    let end = "; it may have been executed, as a whole or in part";
    let cause = said.strip_prefix(start).and_then(|rest| rest.strip_suffix(end)).unwrap_or_else(|| panic!("{said}"));
    // A GPU does not say what its kernel did.
    assert_eq!(cause.starts_with(", PTX line "), harness::is_soft(), "{said}");
    assert_eq!(cause.contains(" bytes of global memory at 0x"), harness::is_soft(), "{said}");
    assert_eq!((error.origin(), error.executed()), (ErrorOrigin::Kernel, Executed::Maybe));
    first.wait()?;
    before.wait()?;
    for call in behind {
        // Calls that share a signal with the failed one cannot be told apart from it.
        let error = call.wait().unwrap_err();
        assert_eq!(error.origin(), ErrorOrigin::Kernel, "{error}");
    }
    // The lease stays valid, with its contents, and the next call gets another worker.
    let again = tenant.step(&mut lease, 7, 0)?;
    again.wait()?;
    assert_ne!(again.fence().tenant, first.fence().tenant);
    assert_eq!(tenant.read(&lease)?, [stepped(stepped(stepped(5, 1), 2), 7); 100]);
    // Memory that is leased for reading is not written.
    let wanted = stepped(stepped(stepped(5, 1), 2), 7);
    tenant.broker.publish("words", lease, Policy::Restore)?;
    let mut read: Lease<u32> = tenant.broker.lease(&tenant.stream, "words", Access::Read)?;
    let error = tenant.step(&mut read, 9, 0)?.wait().unwrap_err();
    assert!(matches!(error, CallError::Faulted { .. }), "{error}");
    assert_eq!(tenant.read(&read)?, [wanted; 100]);
    Ok(())
}

pub(crate) fn a_kernel_that_does_not_end_is_ended(_: &Harness) {
    said(&Harness::with_launches_of(SHORT_LAUNCH), "call-hung");
}

fn hung(socket: &Path) -> Outcome {
    let tenant = Tenant::new(socket)?;
    let mut lease = tenant.words(&[5; 100])?;
    let error = tenant.call_with("spin", &[lease.argument_mut(0)])?.wait().unwrap_err();
    assert_eq!(
        error.to_string(),
        "kernel spin of test/kernels ran for more than 2 s and was ended; it may have been executed, as a whole or in part"
    );
    assert_eq!((error.origin(), error.executed()), (ErrorOrigin::Kernel, Executed::Maybe));
    assert_eq!(tenant.read(&lease)?, [5; 100]);
    Ok(())
}

pub(crate) fn a_worker_that_is_stopped_is_ended_and_replaced(_: &Harness) {
    let harness = Harness::with_launches_of(SHORT_LAUNCH);
    let caller = Caller::connect_at(&harness.socket()).unwrap();
    let kernel = super::test_kernel(&caller.put_module("test/kernels", super::TEXT).unwrap(), "empty").unwrap();
    let launch = Launch::new(&kernel, Grid::line(1, 1), &[]);
    let first = caller.call(&launch).unwrap();
    first.wait().unwrap();
    let [worker] = harness.processes("worker")[..] else { panic!("there is one worker") };
    harness::stop(worker);
    let error = caller.call(&launch).unwrap().wait().unwrap_err();
    assert_eq!(error.to_string(), "the worker of empty of test/kernels was ended from outside; it was not executed");
    assert_eq!((error.origin(), error.executed()), (ErrorOrigin::Connection, Executed::No));
    first.wait().unwrap();
    caller.call(&launch).unwrap().wait().unwrap();
}

pub(crate) fn a_module_that_exhausts_memory_is_refused_and_its_worker_goes_on(harness: &Harness) {
    let caller = Caller::connect_at(&harness.socket()).unwrap();
    let kernel = super::test_kernel(&caller.put_module("test/kernels", super::TEXT).unwrap(), "empty").unwrap();
    let huge = super::TEXT.replace("// Nothing.", ".visible .global .align 8 .b8 huge[549755813888];");
    let error = caller.put_module("huge", &huge).unwrap_err();
    assert_eq!(
        error.to_string(),
        "huge: the user's quota is 256 MiB with 0 bytes in use, 512 GiB requested: drop a name, or raise the quota with \
         `freehold quota SIZE`"
    );
    caller.call(&Launch::new(&kernel, Grid::line(1, 1), &[])).unwrap().wait().unwrap();
}

pub(crate) fn eight_others_work_while_kernels_fault_hang_and_write_out_of_bounds(harness: &Harness) {
    let socket = harness.socket();
    let others: Vec<_> = (1..=8_u64)
        .map(|seed| {
            let words = ["device".into(), socket.clone().into(), "call-work".into(), seed.to_string().into()];
            harness.start(&words)
        })
        .collect();
    said(harness, "call-wrong-often");
    for mut other in others {
        let output = other.stdin.take().map(drop).map(|()| other.wait_with_output().unwrap()).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

/// Faults and stray writes, one after the other, while a kernel of another tenant does not end.
fn wrong_often(socket: &Path) -> Outcome {
    let (tenant, hanging) = (Tenant::new(socket)?, Tenant::new(socket)?);
    let mut held = hanging.words(&[0; 100])?;
    let spin = hanging.call_with("spin", &[held.argument_mut(0)])?;
    let mut lease = tenant.words(&[5; 100])?;
    for round in 0..6_u64 {
        let call = match round % 3 {
            0 => tenant.call_with("stray", &[lease.argument_mut(0), (1_u64 << 40).into()])?,
            // Within the mapping: its own segment.
            1 => tenant.call_with("stray", &[lease.argument_mut(0), (1_u64 << 20).into()])?,
            _ => tenant.call_with("stray", &[lease.argument_mut(0), (1_u64 << 41).into()])?,
        };
        match call.wait() {
            Ok(()) => assert_eq!(round % 3, 1),
            Err(error) => assert_eq!((error.origin(), round % 3 == 1), (ErrorOrigin::Kernel, false), "{error}"),
        }
    }
    assert_eq!(tenant.read(&lease)?, [5; 100]);
    super::goes_on(&spin, Duration::ZERO);
    // This is what it waits for.
    hanging.stream.write(&mut held, &[u32::MAX; 100])?;
    spin.wait()?;
    Ok(())
}

/// Works for a while, and checks the results.
fn work(socket: &Path, seed: u64) -> Outcome {
    let tenant = Tenant::new(socket)?;
    let seed = seed as u32;
    for round in 0..at_effort(4, 20, 100) {
        let mut lease = tenant.words(&[seed; 2000])?;
        let mut wanted = seed;
        let mut calls = Vec::new();
        for k in 0..5 {
            calls.push(tenant.step(&mut lease, k + round, k % 2)?);
            wanted = stepped(wanted, k + round);
        }
        calls.iter().try_for_each(Call::wait)?;
        assert_eq!(tenant.read(&lease)?, [wanted; 2000]);
    }
    Ok(())
}
