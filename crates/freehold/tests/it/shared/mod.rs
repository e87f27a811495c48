//! Memory that processes share, created by a test: device memory behind a descriptor, and words in host memory.

use std::os::fd::OwnedFd;
use std::sync::Once;
use std::{env, process};

use freehold::open::Opened;
use freehold_driver::cuda::{CUmemAllocationHandleType, CUmemAllocationProp, allocation, context, primary};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

/// The least that a device shares.
pub(crate) const CHUNK: u64 = 2 << 20;

/// Memory of a device that the descriptor alone keeps.
pub(crate) fn memory(bytes: u64) -> OwnedFd {
    let Opened { api, device, .. } = crate::own::opened();
    let own = primary::retain(&api, device).unwrap();
    context::push_current(&api, own).unwrap();
    let prop = CUmemAllocationProp::on_device(device, CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR);
    let handle = allocation::create(&api, bytes as usize, &prop).unwrap();
    let descriptor = allocation::export(&api, handle).unwrap();
    allocation::release(&api, handle).unwrap();
    assert_eq!(context::pop_current(&api).unwrap(), own);
    primary::release(&api, device).unwrap();
    descriptor
}

/// A file in memory that is cut to no length below its own.
pub(crate) fn words(bytes: u64) -> OwnedFd {
    let descriptor = unsealed(bytes);
    fcntl_add_seals(&descriptor, SealFlags::SHRINK).unwrap();
    descriptor
}

/// A file in memory that others may cut short.
pub(crate) fn unsealed(bytes: u64) -> OwnedFd {
    let descriptor = memfd_create("words", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&descriptor, bytes).unwrap();
    descriptor
}

/// Gives this process a software machine of its own, unless its starter has named one: what it finds free is then nobody
/// else's to take. Before anything else opens a device.
pub(crate) fn move_in() {
    const VARIABLE: &str = "FREEHOLD_SOFT_MACHINE";
    static MOVED: Once = Once::new();
    MOVED.call_once(|| {
        if env::var_os(VARIABLE).is_none() {
            // SAFETY: nothing in this process reads its environment but the standard library, which guards it by a lock.
            unsafe { env::set_var(VARIABLE, format!("test-{}", process::id())) };
        }
    });
}
