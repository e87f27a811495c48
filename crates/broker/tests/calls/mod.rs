//! Calls: kernels that a worker runs for a tenant, checked by their results; the messages of refused ones; and that a
//! failing kernel ends only its worker.

mod exits;
mod faults;
mod kills;
mod refusals;
mod returns;
mod suspects;

use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use freehold::{Device, Grid, Stream};
use freehold_broker::{Access, Argument, Broker, Call, CallError, Caller, Gpu, Launch, Lease, Module, Policy};
use freehold_testing::at_effort;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use crate::harness::{self, Harness};
use crate::leases::Outcome;

pub(crate) use self::exits::*;
pub(crate) use self::faults::*;
pub(crate) use self::kills::*;
pub(crate) use self::refusals::*;
pub(crate) use self::returns::*;
pub(crate) use self::suspects::*;

pub(crate) const TEXT: &str = include_str!("kernels.ptx");

/// A tenant with a device that calls kernels.
pub(crate) struct Tenant {
    pub(crate) broker: Broker,
    pub(crate) caller: Caller,

    pub(crate) stream: Stream,
    pub(crate) module: Module,
}

impl Tenant {
    pub(crate) fn new(socket: &Path) -> Result<Self, Box<dyn std::error::Error>> {
        Self::on(&freehold::open::device(Some(&harness::device()))?, socket)
    }

    fn on(device: &Device, socket: &Path) -> Result<Self, Box<dyn std::error::Error>> {
        let stream = device.new_stream()?;
        let broker = Broker::connect_at(device, socket)?;
        let caller = Caller::from_broker(&broker)?;
        let module = caller.put_module("test/kernels", TEXT)?;
        Ok(Self { broker, caller, stream, module })
    }

    /// Leased memory with these words.
    pub(crate) fn words(&self, words: &[u32]) -> Result<Lease<u32>, Box<dyn std::error::Error>> {
        let mut lease = self.broker.reserve::<u32>(&self.stream, words.len())?;
        self.stream.write(&mut lease, words)?;
        self.stream.synchronize()?;
        Ok(lease)
    }

    /// The contents of leased memory.
    pub(crate) fn read(&self, lease: &Lease<u32>) -> Result<Vec<u32>, Box<dyn std::error::Error>> {
        Ok(self.stream.download(&**lease)?)
    }

    /// Calls `step` of the tests' kernels.
    pub(crate) fn step(&self, lease: &mut Lease<u32>, k: u32, stream: u32) -> Result<Call, CallError> {
        let kernel = test_kernel(&self.module, "step")?;
        let len = lease.len() as u32;
        let arguments = [lease.argument_mut(0), k.into(), len.into()];
        self.caller.call(&Launch { stream, ..Launch::new(&kernel, Grid::cover(len, 64), &arguments) })
    }
}

/// A kernel of the tests' text, or of one that is refused.
pub(crate) fn test_kernel(module: &Module, name: &str) -> Result<freehold_broker::Kernel, CallError> {
    // SAFETY: the tests call kernels with counts of elements that the leases have; those that are meant to fault end a
    // worker that the tests started.
    unsafe { module.kernel(name) }
}

/// Arguments of `stray` that make it write far beyond a lease.
fn far(lease: &mut Lease<u32>) -> [Argument<'_>; 2] {
    [lease.argument_mut(0), (1_u64 << 40).into()]
}

/// Like [`test_kernel`], for a GPU.
fn kernel_of(gpu: &Gpu, text: &str, name: &str) -> freehold_broker::GpuResult<freehold_broker::GpuKernel> {
    // SAFETY: the tests launch kernels with counts of elements that the buffers have.
    unsafe { gpu.kernel(text, name) }
}

/// The result of `step` for a word.
pub(crate) fn stepped(word: u32, k: u32) -> u32 {
    word.wrapping_mul(3).wrapping_add(k)
}

/// Runs one task with calls. `None` if it is not one of these.
pub(crate) fn act(socket: &Path, task: &str, seed: u64) -> Option<Outcome> {
    Some(match task {
        "call-saxpy" => saxpy(socket),
        "call-many" => many(socket),
        "call-fences" => fences(socket),
        "call-shared" => shared(socket),
        "call-lifetimes" => lifetimes(socket),
        "call-returns" => returns(socket),
        "call-gpu" => gpus(socket),
        "call-gated" => gated(socket, Duration::from_millis(seed)),
        "call-twice" => twice(socket),
        "call-failures" => failures(socket),
        "misuse-leases" => crate::misuse::leases(socket),
        "misuse-numbers" => crate::misuse::numbers(socket),
        other => {
            let acts = [faults::act, exits::act, kills::act, returns::act, suspects::act];
            return acts.into_iter().find_map(|act| act(socket, other, seed));
        }
    })
}

pub(crate) fn said(harness: &Harness, task: &str) {
    assert_eq!(harness.device(task, 0).as_deref(), Some(""), "{task}");
}

pub(crate) fn a_call_computes_what_its_kernel_says(harness: &Harness) {
    said(harness, "call-saxpy");
}

fn saxpy(socket: &Path) -> Outcome {
    let tenant = Tenant::new(socket)?;
    let (n, stream) = (10_000, &tenant.stream);
    let mut y = tenant.broker.reserve::<f32>(stream, n)?;
    let mut x = tenant.broker.reserve::<f32>(stream, n)?;
    stream.write(&mut y, &(0..n).map(|at| at as f32).collect::<Vec<_>>())?;
    stream.write(&mut x, &vec![2.0; n])?;
    stream.synchronize()?;
    let kernel = test_kernel(&tenant.module, "saxpy")?;
    let arguments = [y.argument_mut(0), x.argument(0), 3.0_f32.into(), (n as u32).into()];
    tenant.caller.call(&Launch::new(&kernel, Grid::cover(n as u32, 256), &arguments))?.wait()?;
    let wanted: Vec<f32> = (0..n).map(|at| at as f32 + 6.0).collect();
    assert_eq!(stream.download(&*y)?, wanted);
    // From an element on: the ones before it stay.
    let arguments = [y.argument_mut(10), x.argument(0), 1.0_f32.into(), 5_u32.into()];
    tenant.caller.call(&Launch::new(&kernel, Grid::line(1, 32), &arguments))?.wait()?;
    assert_eq!(stream.download(&y.view(8..17)?)?, [14.0, 15.0, 18.0, 19.0, 20.0, 21.0, 22.0, 21.0, 22.0]);
    let kernel = test_kernel(&tenant.module, "sum")?;
    let mut total = tenant.words(&[0])?;
    let three: Vec<u8> = [1_u32, 20, 300].iter().flat_map(|word| word.to_le_bytes()).collect();
    let arguments = [total.argument_mut(0), Argument::bytes(three)];
    tenant.caller.call(&Launch::new(&kernel, Grid::line(1, 1), &arguments))?.wait()?;
    assert_eq!(tenant.read(&total)?, [321]);
    Ok(())
}

pub(crate) fn calls_of_a_stream_are_carried_out_in_their_order(harness: &Harness) {
    said(harness, "call-many");
}

/// More calls than a ring holds, in streams with memory of their own, and in streams that share some.
fn many(socket: &Path) -> Outcome {
    let tenant = Tenant::new(socket)?;
    let mut leases = (0..4).map(|at| tenant.words(&[at; 100])).collect::<Result<Vec<_>, _>>()?;
    let mut wanted: Vec<u32> = (0..4).collect();
    let mut last = Vec::new();
    for k in 0..300 {
        for (stream, lease) in (0..).zip(&mut leases) {
            last.push(tenant.step(lease, k, stream)?);
            wanted[stream as usize] = stepped(wanted[stream as usize], k);
        }
    }
    for call in last {
        call.wait()?;
    }
    for (lease, wanted) in leases.iter().zip(wanted) {
        assert_eq!(tenant.read(lease)?, [wanted; 100]);
    }
    // Streams that write the same memory are ordered automatically: steps by the same number commute.
    let mut shared = tenant.words(&[1; 50])?;
    let calls = (0..30).map(|at| tenant.step(&mut shared, 7, at % 3)).collect::<Result<Vec<_>, _>>()?;
    calls.iter().try_for_each(Call::wait)?;
    assert_eq!(tenant.read(&shared)?, [(0..30).fold(1, |word, _| stepped(word, 7)); 50]);
    Ok(())
}

pub(crate) fn calls_and_streams_of_a_process_wait_for_each_other_on_the_device(harness: &Harness) {
    said(harness, "call-fences");
}

fn fences(socket: &Path) -> Outcome {
    let tenant = Tenant::new(socket)?;
    let mut lease = tenant.words(&[0; 1000])?;
    let mut wanted = 0;
    for round in 0..50 {
        // The stream writes, the call steps after it, the stream copies after that; the host does not wait.
        tenant.stream.write(&mut lease, &[round; 1000])?;
        let after = [tenant.broker.fence(&tenant.stream)?];
        let kernel = test_kernel(&tenant.module, "step")?;
        let arguments = [lease.argument_mut(0), 5_u32.into(), 1000_u32.into()];
        let launch = Launch { after: &after, ..Launch::new(&kernel, Grid::cover(1000_u32, 128), &arguments) };
        let call = tenant.caller.call(&launch)?;
        tenant.broker.wait_fence(&tenant.stream, call.fence())?;
        wanted = stepped(round, 5);
        if round % 10 == 0 {
            assert_eq!(tenant.read(&lease)?, [wanted; 1000]);
        }
    }
    assert_eq!(tenant.read(&lease)?, [wanted; 1000]);
    Ok(())
}

pub(crate) fn all_callers_of_a_tenant_have_their_calls_carried_out(harness: &Harness) {
    said(harness, "call-twice");
}

fn twice(socket: &Path) -> Outcome {
    let mut tenant = Tenant::new(socket)?;
    let mut lease = tenant.words(&[1; 100])?;
    let mut wanted = 1;
    for k in 0..6 {
        tenant.step(&mut lease, k, 0)?.wait()?;
        wanted = stepped(wanted, k);
        assert_eq!(tenant.read(&lease)?, [wanted; 100]);
        // The previous caller is dropped or kept.
        tenant.caller = Caller::from_broker(&tenant.broker)?;
    }
    Ok(())
}

pub(crate) fn failures_that_are_not_awaited_delay_no_other_call(harness: &Harness) {
    said(harness, "call-failures");
}

fn failures(socket: &Path) -> Outcome {
    let tenant = Tenant::new(socket)?;
    let (mut lease, kernel) = (tenant.words(&[1; 100])?, test_kernel(&tenant.module, "step")?);
    let outside = [lease.argument_mut(1 << 20), 1_u32.into(), 100_u32.into()];
    let failed = (0..500).map(|_| tenant.caller.call(&Launch::new(&kernel, Grid::cover(100_u32, 64), &outside)));
    let failed = failed.collect::<Result<Vec<_>, _>>()?;
    tenant.step(&mut lease, 4, 0)?.wait()?;
    assert_eq!(tenant.read(&lease)?, [stepped(1, 4); 100]);
    let refused = failed.iter().filter(|call| call.wait().is_err()).count();
    assert_eq!(refused, 500, "no failed call is taken for a successful one");
    Ok(())
}

pub(crate) fn processes_that_agree_share_a_worker_and_others_have_their_own(harness: &Harness) {
    said(harness, "call-shared");
}

fn shared(socket: &Path) -> Outcome {
    let one = Tenant::new(socket)?;
    let kernel = test_kernel(&one.module, "empty")?;
    let launch = Launch::new(&kernel, Grid::line(1, 1), &[]);
    let worker = |caller: &Caller| -> Result<_, Box<dyn std::error::Error>> {
        let call = caller.call(&launch)?;
        call.wait()?;
        Ok(call.fence().tenant)
    };
    let [red, other_red, blue] =
        [("red"), ("red"), ("blue")].map(|label| Caller::connect_at(socket).map(|caller| caller.share_worker(label)));
    let (red, other_red, blue) = (red?, other_red?, blue?);
    let workers = [worker(&one.caller)?, worker(&red)?, worker(&other_red)?, worker(&blue)?];
    assert_eq!(workers[1], workers[2]);
    assert!(workers[0] != workers[1] && workers[1] != workers[3] && workers[0] != workers[3]);
    // A tenant that closes ends its worker only if no other uses it.
    drop(red);
    assert_eq!(worker(&other_red)?, workers[2]);
    Ok(())
}

pub(crate) fn a_worker_ends_with_those_that_it_serves(harness: &Harness) {
    let (mut tenant, _) = harness.start_device("call-idle");
    assert_eq!(harness.processes("worker").len(), 1);
    tenant.kill().unwrap();
    tenant.wait().unwrap();
    harness::until("the worker is gone", || harness.processes("worker").is_empty().then_some(()));
    said(harness, "call-saxpy");
    harness::until("the worker is gone", || harness.processes("worker").is_empty().then_some(()));
    let mut link = harness.link();
    harness::until("all memory is free", || {
        let stats = harness::stats(&mut link);
        (stats.tenants == 1 && stats.leases == 0 && stats.reclaiming_bytes == 0).then_some(())
    });
}

pub(crate) fn a_module_stays_when_its_maker_and_the_broker_are_gone(harness: &Harness) {
    said(harness, "call-saxpy");
    harness.kill("broker");
    let caller = Caller::connect_at(&harness.socket()).unwrap();
    let listed = caller.modules().unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].name.as_str(), listed[0].bytes), ("test/kernels", TEXT.len() as u64));
    let module = caller.module("test/kernels").unwrap();
    let names: Vec<&str> = module.kernels().iter().map(|kernel| &*kernel.name).collect();
    assert_eq!(names, ["empty", "saxpy", "step", "spin", "stray", "sum"]);
    // A process without a device calls an existing module.
    let kernel = test_kernel(&module, "empty").unwrap();
    caller.call(&Launch::new(&kernel, Grid::line(3, 32), &[])).unwrap().wait().unwrap();
    caller.drop_module("test/kernels").unwrap();
    assert!(caller.modules().unwrap().is_empty());
}

pub(crate) fn calls_go_on_when_the_broker_dies(harness: &Harness) {
    said(harness, "call-lifetimes");
}

fn lifetimes(socket: &Path) -> Outcome {
    let tenant = Tenant::new(socket)?;
    let mut lease = tenant.words(&[1; 64])?;
    let mut wanted = 1;
    for round in 0..12 {
        if round % 4 == 2 {
            harness::kill_role(socket, "broker");
        }
        tenant.step(&mut lease, round, 0)?.wait()?;
        wanted = stepped(wanted, round);
        // New memory, so that the worker has to borrow it from the current broker.
        let mut other = tenant.words(&[round; 64])?;
        tenant.step(&mut other, 1, 1)?.wait()?;
        assert_eq!(tenant.read(&other)?, [stepped(round, 1); 64]);
    }
    assert_eq!(tenant.read(&lease)?, [wanted; 64]);
    Ok(())
}

pub(crate) fn what_is_returned_with_calls_pending_is_free_when_they_have_passed(harness: &Harness) {
    said(harness, "call-returns");
}

fn returns(socket: &Path) -> Outcome {
    let tenant = Tenant::new(socket)?;
    for round in 0..at_effort(10, 100, 1000) {
        let mut lease = tenant.words(&[round; 5000])?;
        for k in 0..8 {
            drop(tenant.step(&mut lease, k, k % 2)?);
        }
        // The next round gets the same memory: calls that were still running would write there.
        drop(lease);
        let next = tenant.words(&[77; 5000])?;
        assert_eq!(tenant.read(&next)?, [77; 5000]);
    }
    harness::until("nothing is leased", || (tenant.broker.stats().ok()?.leases == 0).then_some(()));
    Ok(())
}

pub(crate) fn one_handle_reads_the_same_here_and_at_the_broker(harness: &Harness) {
    said(harness, "call-gpu");
}

fn gpus(socket: &Path) -> Outcome {
    let device = freehold::open::device(Some(&harness::device()))?;
    for gpu in [Gpu::on(&device)?, Gpu::at_broker_path(&device, socket)?] {
        let step = kernel_of(&gpu, TEXT, "step")?;
        let mut x = gpu.upload(&[1_u32; 300])?;
        let mut wanted = 1;
        for k in 0..100 {
            gpu.launch(&step, Grid::cover(300_u32, 64), &[x.argument(0), k.into(), 300_u32.into()])?;
            wanted = stepped(wanted, k);
        }
        assert_eq!(gpu.download(&x)?, [wanted; 300]);
        gpu.write(&mut x, &[5; 300])?;
        gpu.launch(&step, Grid::cover(10_u32, 64), &[x.argument(290), 2_u32.into(), 10_u32.into()])?;
        gpu.wait()?;
        assert_eq!(gpu.download(&x)?[288..], [5, 5, 17, 17, 17, 17, 17, 17, 17, 17, 17, 17]);
        let mut empty = gpu.upload::<u32>(&[])?;
        gpu.write(&mut empty, &[])?;
        gpu.launch(&step, Grid::cover(0, 64), &[empty.argument(0), 2_u32.into(), 0_u32.into()])?;
        gpu.launch(&step, Grid::line(1, 64), &[empty.argument(0), 2_u32.into(), 0_u32.into()])?;
        assert_eq!(gpu.download(&empty)?, [0; 0]);
        let refused =
            |arguments: &[Argument<'_>]| gpu.launch(&step, Grid::line(1, 1), arguments).unwrap_err().to_string();
        assert_eq!(refused(&[x.argument(0)]), "kernel step takes 3 arguments, 1 were given");
        assert_eq!(refused(&[x.argument(0), 1.0_f32.into(), 1_u32.into()]), "argument 2 of step is u32, f32 was given");
        let unknown = kernel_of(&gpu, TEXT, "stop").unwrap_err().to_string();
        assert_eq!(unknown, "the image has no kernel \"stop\"; it has empty, saxpy, step, spin, stray, sum");
        assert!(kernel_of(&gpu, "nonsense", "stop").is_err());
    }
    // The id in a handle of one GPU means another kernel on another.
    let (one, other) = (Gpu::on(&device)?, Gpu::on(&device)?);
    let (step, empty) = (kernel_of(&one, TEXT, "step")?, kernel_of(&other, TEXT, "empty")?);
    let refused = [one.launch(&empty, Grid::line(1, 1), &[]), other.launch(&step, Grid::line(1, 1), &[])];
    assert_eq!(
        refused.map(|outcome| outcome.unwrap_err().to_string()),
        ["the memory or the kernel belongs to another GPU"; 2]
    );
    Ok(())
}

/// Runs a task with calls that wait or run for a while. It gets the time limit of kernels; at quick effort that is 0,
/// and it waits for nothing: time limits are then only tested in unit tests, with semaphores that the tests control.
fn succeeds_in_time(harness: &Harness, task: &str) {
    match at_effort(0, 6, 20) {
        0 => said(harness, task),
        seconds => {
            let limit = Duration::from_secs(seconds);
            let harness = Harness::with_launches_of(limit);
            assert_eq!(harness.device(task, limit.as_millis() as u64).as_deref(), Some(""), "{task}");
        }
    }
}

/// Expects that a call is not complete after this time.
fn goes_on(call: &Call, time: Duration) {
    let outcome = call.wait_timeout(time);
    assert!(matches!(outcome, Err(CallError::TimedOut { .. })), "{outcome:?}");
}

pub(crate) fn a_call_that_waits_for_a_fence_does_not_count_as_a_hang(harness: &Harness) {
    succeeds_in_time(harness, "call-gated");
}

fn gated(socket: &Path, limit: Duration) -> Outcome {
    let (writer, reader) = (Tenant::new(socket)?, Tenant::new(socket)?);
    // The writer's stream writes when the gate is opened.
    let file = memfd_create("gate", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, 4096)?;
    fcntl_add_seals(&file, SealFlags::SHRINK)?;
    let gate = writer.broker.device().shared_semaphores(file.as_fd(), 1)?;
    let mut lease = writer.broker.reserve::<f32>(&writer.stream, 100)?;
    writer.stream.wait_value(&gate, 0, 1)?;
    writer.stream.write(&mut lease, &[7.0; 100])?;
    writer.broker.publish("gated", lease, Policy::Open)?;
    let mut y = reader.broker.reserve::<f32>(&reader.stream, 100)?;
    let x = reader.caller.lease_named("gated", Access::Read)?;
    let kernel = test_kernel(&reader.module, "saxpy")?;
    let arguments = [y.argument_mut(0), x.argument(0), 1.0_f32.into(), 100_u32.into()];
    let call = reader.caller.call(&Launch::new(&kernel, Grid::cover(100_u32, 64), &arguments))?;
    // Longer than a kernel may run: a waiting kernel does not run.
    let longer = limit * 3 / 2;
    let error = call.wait_timeout(longer).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("saxpy of test/kernels did not finish within {longer:?}: it is still running")
    );
    gate.write(0, 1);
    call.wait()?;
    assert_eq!(reader.stream.download(&*y)?, [7.0; 100]);
    reader.caller.commit(x)?;
    Ok(())
}
