//! What the tests here share: a driver with the primary context current, streams as other people's code makes them, and gates
//! that hold them up.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use freehold_capi::*;
use freehold_driver::cuda::{
    Api, CUdevice, CUdeviceptr, context, copy, host, host_alloc_flags, primary, stream, stream_flags, wait_value_flags,
};

/// One test at a time: they share one device, and look at how much of it is live.
static TURN: Mutex<()> = Mutex::new(());

pub(crate) const NONE: c_int = FreeholdError::None as c_int;

pub(crate) struct World {
    pub(crate) api: Api,
    _turn: MutexGuard<'static, ()>,
}

impl World {
    pub(crate) fn new() -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the tests call of the driver what names streams and memory that they made.
        let opened = unsafe { freehold::open::open(None) }.unwrap();
        let world = Self { api: opened.api, _turn: turn };
        world.enter();
        freehold_clear_error();
        world
    }

    /// Makes the primary context current in this thread.
    pub(crate) fn enter(&self) {
        let context = primary::retain(&self.api, CUdevice(0)).unwrap();
        context::set_current(&self.api, context).unwrap();
    }

    pub(crate) fn stream(&self) -> CUstream {
        handle(stream::create(&self.api, stream_flags::NON_BLOCKING).unwrap().0)
    }

    /// Destroys a stream as a program does that tells the library.
    pub(crate) fn end(&self, stream: CUstream) {
        assert_eq!(freehold_stream_retire(stream), NONE);
        self.destroy(stream);
    }

    pub(crate) fn destroy(&self, stream: CUstream) {
        stream::destroy(&self.api, raw(stream)).unwrap();
    }

    pub(crate) fn synchronize(&self, stream: CUstream) {
        stream::synchronize(&self.api, raw(stream)).unwrap();
    }

    /// Waits for all work, of streams that are gone too, and gives everything back that nobody has: what is still reserved.
    pub(crate) fn left_bytes(&self) -> usize {
        context::synchronize(&self.api).unwrap();
        assert_eq!(freehold_trim(0, 0), NONE, "{}", last_error());
        freehold_reserved_bytes(0)
    }

    /// Lets the work that is put into a stream from now on wait at a gate.
    pub(crate) fn hold(&self, stream: CUstream, gate: &Gate) {
        stream::wait_value_64(&self.api, raw(stream), gate.address, 1, wait_value_flags::GEQ).unwrap();
    }

    pub(crate) fn gate(&self) -> Gate {
        let start = host::alloc_with_flags(&self.api, 4096, host_alloc_flags::DEVICEMAP).unwrap();
        let address = host::device_address(&self.api, start, 0).unwrap();
        let gate = Gate { word: NonNull::new(start.cast()).unwrap(), address };
        gate.word().store(0, Ordering::Release);
        gate
    }

    /// Writes, and waits until all streams would see it.
    pub(crate) fn write(&self, to: *mut c_void, bytes: &[u8]) {
        copy::host_to_device(&self.api, CUdeviceptr(to as u64), bytes).unwrap();
        context::synchronize(&self.api).unwrap();
    }

    pub(crate) fn read(&self, from: *mut c_void, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        copy::device_to_host(&self.api, &mut bytes, CUdeviceptr(from as u64)).unwrap();
        bytes
    }
}

/// A word of pinned memory that streams wait for. It is opened when it goes, so that a test that fails ends, and its memory is
/// left: freeing it would wait for all work.
pub(crate) struct Gate {
    word: NonNull<AtomicU64>,
    address: CUdeviceptr,
}

impl Gate {
    pub(crate) fn open(&self) {
        self.word().store(1, Ordering::Release);
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: the word is the beginning of pinned memory that is never freed.
        unsafe { self.word.as_ref() }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

pub(crate) fn handle(stream: usize) -> CUstream {
    std::ptr::without_provenance_mut(stream)
}

fn raw(stream: CUstream) -> freehold_driver::cuda::CUstream {
    freehold_driver::cuda::CUstream(stream as usize)
}

/// Allocates on the first device.
pub(crate) fn alloc(bytes: usize, stream: CUstream) -> *mut c_void {
    let block = freehold_alloc(bytes as isize, 0, stream);
    assert!(!block.is_null(), "{}", last_error());
    block
}

/// Frees on the first device.
pub(crate) fn free(block: *mut c_void, stream: CUstream) {
    assert_eq!(freehold_try_free(block, 0, 0, stream), NONE, "{}", last_error());
}

pub(crate) fn last_error() -> String {
    // SAFETY: the text is there until this thread's next call, and is copied before.
    unsafe { CStr::from_ptr(freehold_last_error()) }.to_str().unwrap().to_owned()
}
