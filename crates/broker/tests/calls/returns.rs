//! The return of a lease that calls still use: the broker reuses the memory after them, also if the first attempt to
//! return it failed.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use freehold::{Device, SharedSemaphores};
use freehold_broker::LeaseError;
use freehold_driver::cuda::{Api, CUdeviceptr, CUerror, CUresult, CUstream};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use super::{Tenant, said};
use crate::harness::{self, Harness};
use crate::leases::Outcome;

/// The driver's own functions.
static DRIVER: OnceLock<Api> = OnceLock::new();

/// Whether a stream cannot be made to wait for a word.
static FAILS: AtomicBool = AtomicBool::new(false);

pub(crate) fn act(socket: &Path, task: &str, _: u64) -> Option<Outcome> {
    (task == "call-return-again").then(|| again(socket))
}

unsafe extern "C" fn wait_value(stream: CUstream, address: CUdeviceptr, value: u64, flags: u32) -> CUresult {
    if FAILS.load(Ordering::Relaxed) {
        return Err(CUerror::OUT_OF_MEMORY);
    }
    let driver = DRIVER.get().expect("the device was opened");
    // SAFETY: the arguments are passed on unchanged.
    unsafe { (driver.cuStreamWaitValue64_v2)(stream, address, value, flags) }
}

fn failing_device() -> Result<Device, Box<dyn std::error::Error>> {
    // SAFETY: the table is used to create a device only.
    let opened = unsafe { freehold::open::open(Some(&harness::device())) }?;
    let api = Api { cuStreamWaitValue64_v2: wait_value, ..*DRIVER.get_or_init(|| opened.api) };
    // SAFETY: the table is a driver's, and nothing of the device is destroyed by others.
    Ok(unsafe { Device::new(api, opened.device) }?)
}

/// A closed gate: a stream that waits for its word goes on when the host writes 1.
fn gate(device: &Device) -> Result<SharedSemaphores, Box<dyn std::error::Error>> {
    let file = memfd_create("gate", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, 4096)?;
    fcntl_add_seals(&file, SealFlags::SHRINK)?;
    Ok(device.shared_semaphores(file.as_fd(), 1)?)
}

pub(crate) fn a_lease_whose_return_failed_is_returned_after_its_calls(harness: &Harness) {
    said(harness, "call-return-again");
}

fn again(socket: &Path) -> Outcome {
    let tenant = Tenant::on(&failing_device()?, socket)?;
    let gate = gate(tenant.broker.device())?;
    let mut lease = tenant.words(&[1; 100])?;
    // The worker has borrowed the lease.
    tenant.step(&mut lease, 1, 0)?.wait()?;
    let [worker] = harness::processes(socket, "worker")[..] else { panic!("there is one worker") };
    harness::stop(worker);
    let call = tenant.step(&mut lease, 2, 0)?;
    // Pending work of this process, so that a stream has to wait for it and for the call.
    let mut copy = tenant.stream.alloc::<u32>(100)?;
    tenant.stream.wait_value(&gate, 0, 1)?;
    tenant.stream.copy(&*lease, &mut copy)?;
    FAILS.store(true, Ordering::Relaxed);
    let LeaseError { lease, error } = lease.close().expect_err("the driver refuses");
    FAILS.store(false, Ordering::Relaxed);
    assert!(error.to_string().contains("CUDA_ERROR_OUT_OF_MEMORY"), "{error}");
    gate.write(0, 1);
    tenant.stream.synchronize()?;
    lease.close()?;
    // The tenant's lease, which ends after the call, and the worker's.
    assert_eq!(tenant.broker.stats()?.leases, 2, "the memory is not free while a call uses it");
    harness::resume(worker);
    call.wait()?;
    harness::until("nothing is leased", || (tenant.broker.stats().ok()?.leases == 0).then_some(()));
    Ok(())
}
