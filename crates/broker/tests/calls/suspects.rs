//! Which kernel has failed, and how long one may run: a waiting kernel does not run.

use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use freehold::{Grid, SharedSemaphores};
use freehold_broker::{Argument, Broker, Call, CallError, Caller, Executed, Launch, Lease, Module};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use super::{TEXT, Tenant, far, goes_on, said, stepped, succeeds_in_time};
use crate::harness::{self, Harness};
use crate::leases::Outcome;

const HOLD: &str = include_str!("hold.ptx");

/// More than half of the time limit of a launch, and enough less that a busy machine does not look like a hang.
fn most(limit: Duration) -> Duration {
    limit * 11 / 20
}

pub(crate) fn act(socket: &Path, task: &str, limit_ms: u64) -> Option<Outcome> {
    let limit = Duration::from_millis(limit_ms);
    Some(match task {
        "call-beside" => beside(socket),
        "call-burst" => burst(socket),
        "call-neighbours" => neighbours(socket),
        "call-behind-stream" => behind_stream(socket, limit),
        "call-batch" => batch(socket, limit),
        "call-flight" => flight(socket),
        _ => return None,
    })
}

fn call(
    caller: &Caller,
    module: &Module,
    kernel: &str,
    stream: u32,
    arguments: &[Argument<'_>],
) -> Result<Call, CallError> {
    let kernel = super::test_kernel(module, kernel)?;
    caller.call(&Launch { stream, ..Launch::new(&kernel, Grid::line(1, 1), arguments) })
}

/// Waits until the worker has taken all calls of this process so far: it takes them in order, and this one, in a stream
/// of its own, is complete.
fn until_taken(tenant: &Tenant) -> Result<(), CallError> {
    call(&tenant.caller, &tenant.module, "empty", 9, &[])?.wait()
}

/// Stops the worker of a process while calls are submitted, so that it takes all of them at once.
pub(super) fn at_once<T>(
    socket: &Path,
    put: impl FnOnce() -> Result<T, CallError>,
) -> Result<T, Box<dyn std::error::Error>> {
    let [worker] = harness::processes(socket, "worker")[..] else { panic!("there is one worker") };
    harness::stop(worker);
    let calls = put();
    harness::resume(worker);
    Ok(calls?)
}

pub(crate) fn of_kernels_that_ran_beside_each_other_one_has_failed(harness: &Harness) {
    said(harness, "call-beside");
}

fn beside(socket: &Path) -> Outcome {
    let tenant = Tenant::new(socket)?;
    let (caller, module) = (&tenant.caller, &tenant.module);
    let (mut one, mut other) = (tenant.words(&[5; 10])?, tenant.words(&[5; 10])?);
    let spin = call(caller, module, "spin", 1, &[one.argument_mut(0)])?;
    until_taken(&tenant)?;
    let stray = call(caller, module, "stray", 0, &[other.argument_mut(0), (1_u64 << 40).into()])?;
    let of = |kernel: &str| {
        format!(
            "one of these kernels ended their worker: stray, spin; CUDA_ERROR_ILLEGAL_ADDRESS (700); of {kernel} of \
             test/kernels: it may have been executed, as a whole or in part"
        )
    };
    assert_eq!(stray.wait().unwrap_err().to_string(), of("stray"));
    assert_eq!(spin.wait().unwrap_err().to_string(), of("spin"));
    Ok(())
}

pub(crate) fn of_a_burst_the_first_is_known_and_of_the_rest_one_has_failed(harness: &Harness) {
    said(harness, "call-burst");
}

fn burst(socket: &Path) -> Outcome {
    let tenant = Tenant::new(socket)?;
    let mut lease = tenant.words(&[5; 10])?;
    let calls = at_once(socket, || {
        let first = tenant.step(&mut lease, 1, 0)?;
        let stray = call(&tenant.caller, &tenant.module, "stray", 0, &far(&mut lease))?;
        Ok([first, stray, tenant.step(&mut lease, 2, 0)?])
    })?;
    calls[0].wait()?;
    for (call, kernel) in calls[1..].iter().zip(["stray", "step"]) {
        let wanted = format!(
            "one of these kernels ended their worker: stray, step; CUDA_ERROR_ILLEGAL_ADDRESS (700); of {kernel} of \
             test/kernels: it may have been executed, as a whole or in part"
        );
        assert_eq!(call.wait().unwrap_err().to_string(), wanted);
    }
    tenant.step(&mut lease, 3, 0)?.wait()?;
    assert_eq!(tenant.read(&lease)?, [stepped(stepped(5, 1), 3); 10]);
    Ok(())
}

pub(crate) fn tenants_that_share_a_worker_learn_whose_kernel_ended_it(harness: &Harness) {
    said(harness, "call-neighbours");
}

pub(crate) fn a_worker_takes_no_more_launches_than_its_limit(harness: &Harness) {
    said(harness, "call-flight");
}

fn flight(socket: &Path) -> Outcome {
    let tenant = Tenant::new(socket)?;
    let mut lease = tenant.words(&[5; 10])?;
    let spin = call(&tenant.caller, &tenant.module, "spin", 0, &[lease.argument_mut(0)])?;
    let mut steps = |count| (0..count).map(|_| tenant.step(&mut lease, 1, 0)).collect::<Result<Vec<_>, _>>();
    let mut calls = steps(harness::LAUNCHES - 2)?;
    until_taken(&tenant)?;
    calls.extend(steps(50)?);
    // Time in which a worker that takes too many would take them.
    goes_on(&spin, Duration::from_millis(200));
    harness::kill_role(socket, "worker");
    let is_taken = |call: &&Call| call.wait().is_err_and(|error| error.executed() == Executed::Maybe);
    let taken = 1 + calls.iter().filter(is_taken).count() as u64;
    assert!((harness::LAUNCHES - 1..=harness::LAUNCHES).contains(&taken), "{taken} were taken");
    Ok(())
}

/// A process that shares its worker.
fn sharing(socket: &Path) -> Result<Tenant, Box<dyn std::error::Error>> {
    let device = freehold::open::device(Some(&harness::device()))?;
    let (stream, broker) = (device.new_stream()?, Broker::connect_at(&device, socket)?);
    let caller = Caller::from_broker(&broker)?.share_worker("red");
    let module = caller.put_module("test/kernels", TEXT)?;
    Ok(Tenant { broker, caller, stream, module })
}

fn gate(tenant: &Tenant) -> Result<SharedSemaphores, Box<dyn std::error::Error>> {
    let file = memfd_create("gate", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, 4096)?;
    fcntl_add_seals(&file, SealFlags::SHRINK)?;
    Ok(tenant.broker.device().shared_semaphores(file.as_fd(), 1)?)
}

fn neighbours(socket: &Path) -> Outcome {
    let [one, other] = [sharing(socket)?, sharing(socket)?];
    let (mut lease, mut others) = (one.words(&[5; 10])?, other.words(&[5; 10])?);
    // A kernel that waits for a process is known not to have run.
    let gate = gate(&one)?;
    one.stream.wait_value(&gate, 0, 1)?;
    let (kernel, after) = (super::test_kernel(&one.module, "step")?, [one.broker.fence(&one.stream)?]);
    let arguments = [lease.argument_mut(0), 1_u32.into(), 10_u32.into()];
    let waiting = one.caller.call(&Launch { after: &after, ..Launch::new(&kernel, Grid::line(1, 32), &arguments) })?;
    until_taken(&one)?;
    goes_on(&waiting, Duration::ZERO);
    let stray = call(&other.caller, &other.module, "stray", 0, &far(&mut others))?;
    let said = stray.wait().unwrap_err().to_string();
    let start = "kernel stray of test/kernels ended its worker: CUDA_ERROR_ILLEGAL_ADDRESS (700)";
    assert!(said.starts_with(start), "{said}");
    assert!(said.ends_with("; it may have been executed, as a whole or in part"), "{said}");
    assert_eq!(
        waiting.wait().unwrap_err().to_string(),
        "a kernel of another process ended the worker of step of test/kernels, which they share; it may have been executed, \
         as a whole or in part"
    );
    gate.write(0, 1);
    let spin = call(&one.caller, &one.module, "spin", 0, &[lease.argument_mut(0)])?;
    until_taken(&one)?;
    let stray = call(&other.caller, &other.module, "stray", 0, &far(&mut others))?;
    for (call, kernel) in [(stray, "stray"), (spin, "spin")] {
        let wanted = format!(
            "one of these kernels ended their worker: {kernel}, and 1 of other processes; CUDA_ERROR_ILLEGAL_ADDRESS (700); \
             of {kernel} of test/kernels: it may have been executed, as a whole or in part"
        );
        assert_eq!(call.wait().unwrap_err().to_string(), wanted);
    }
    Ok(())
}

pub(crate) fn a_call_that_waits_for_another_stream_does_not_run(harness: &Harness) {
    succeeds_in_time(harness, "call-behind-stream");
}

fn behind_stream(socket: &Path, limit: Duration) -> Outcome {
    let tenant = Tenant::new(socket)?;
    let module = tenant.caller.put_module("test/hold", HOLD)?;
    let (mut x, mut y) = (tenant.words(&[0; 10])?, tenant.words(&[0; 10])?);
    // `hold` reads its arguments.
    let hold = |stream, y: &Lease<u32>| call(&tenant.caller, &module, "hold", stream, &[x.argument(0), y.argument(0)]);
    let [first, second] = [hold(0, &x)?, hold(1, &y)?];
    goes_on(&first, most(limit));
    tenant.stream.write(&mut x, &[u32::MAX; 10])?;
    first.wait()?;
    goes_on(&second, most(limit));
    tenant.stream.write(&mut y, &[u32::MAX; 10])?;
    second.wait()?;
    Ok(())
}

pub(crate) fn each_kernel_of_a_burst_may_run_for_as_long_as_one_may(harness: &Harness) {
    succeeds_in_time(harness, "call-batch");
}

fn batch(socket: &Path, limit: Duration) -> Outcome {
    let tenant = Tenant::new(socket)?;
    let module = tenant.caller.put_module("test/hold", HOLD)?;
    let (mut x, mut y) = (tenant.words(&[0; 10])?, tenant.words(&[0; 10])?);
    let [_, first, second] = at_once(socket, || {
        let hold =
            |lease: &Lease<u32>| call(&tenant.caller, &module, "hold", 0, &[lease.argument(0), lease.argument(0)]);
        Ok([call(&tenant.caller, &tenant.module, "empty", 0, &[])?, hold(&x)?, hold(&y)?])
    })?;
    goes_on(&first, most(limit));
    tenant.stream.write(&mut x, &[u32::MAX; 10])?;
    goes_on(&second, most(limit));
    tenant.stream.write(&mut y, &[u32::MAX; 10])?;
    first.wait()?;
    second.wait()?;
    Ok(())
}
