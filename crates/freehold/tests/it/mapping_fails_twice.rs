//! Memory that cannot be mapped, and then cannot be unmapped either: it is not lost.

use crate::own;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use freehold::{Error, PoolStats};
use freehold_driver::cuda::{Api, CUdeviceptr, CUerror, CUmemAccessDesc, CUresult};
use own::{Own, opened};

const MIB: usize = 1 << 20;

/// The driver's own functions, for those below.
static PLAIN: OnceLock<Api> = OnceLock::new();

/// How many calls of each of them fail from now on.
static ACCESS: AtomicUsize = AtomicUsize::new(0);
static UNMAP: AtomicUsize = AtomicUsize::new(0);

fn fails(calls: &AtomicUsize) -> bool {
    calls.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}

unsafe extern "C" fn set_access(
    at: CUdeviceptr,
    bytes: usize,
    access: *const CUmemAccessDesc,
    count: usize,
) -> CUresult {
    if fails(&ACCESS) {
        return Err(CUerror::INVALID_VALUE);
    }
    // SAFETY: the arguments are handed on as they came.
    unsafe { (PLAIN.get().unwrap().cuMemSetAccess)(at, bytes, access, count) }
}

unsafe extern "C" fn unmap(at: CUdeviceptr, bytes: usize) -> CUresult {
    if fails(&UNMAP) {
        return Err(CUerror::INVALID_VALUE);
    }
    // SAFETY: as above.
    unsafe { (PLAIN.get().unwrap().cuMemUnmap)(at, bytes) }
}

#[test]
fn memory_that_is_neither_mapped_nor_unmapped_is_used_later_and_comes_back_in_the_end() {
    let opened = opened();
    PLAIN.get_or_init(|| opened.api);
    let own = Own::over(Api { cuMemSetAccess: set_access, cuMemUnmap: unmap, ..opened.api }, &opened);
    let [stream] = own.streams();
    own.device.set_budget(12 * MIB as u64);
    // Three chunks of other streams, which a request needs side by side.
    let others: [_; 3] = own.streams();
    others.iter().for_each(|other| drop(other.alloc::<u8>(4 * MIB).unwrap()));
    ACCESS.store(1, Ordering::Relaxed);
    // They are unmapped where they were, mapped, and unmapped again.
    assert!(matches!(stream.alloc::<u8>(12 * MIB), Err(Error::Call(_))));
    ACCESS.store(1, Ordering::Relaxed);
    UNMAP.store(1, Ordering::Relaxed);
    assert!(matches!(stream.alloc::<u8>(12 * MIB), Err(Error::Call(_))));
    assert_eq!((ACCESS.load(Ordering::Relaxed), UNMAP.load(Ordering::Relaxed)), (0, 0));
    assert_eq!(own.device.stats().reserved_bytes, 12 * MIB as u64);
    drop(stream.zeros::<u8>(12 * MIB).unwrap());
    own.device.synchronize().unwrap();
    own.device.trim().unwrap();
    assert_eq!(own.device.stats(), PoolStats::default());
}
