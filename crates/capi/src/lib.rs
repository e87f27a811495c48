//! The C interface: memory by the number of a device, the handle of a stream, and an address.
//!
//! The names and signatures of `freehold_alloc` and `freehold_free` are those that PyTorch's `CUDAPluggableAllocator` calls.
//! Nothing here links to a CUDA library: the driver is the one that the process has loaded. The comments of the functions
//! are those of the header.

mod last_error;
mod pools;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use freehold::Error;
use freehold::foreign::{self, ForeignPool, PoolId};
use freehold::ledger::{State, WrongRelease};
use freehold_driver::cuda::CUstream as Stream;

use last_error::Failure;
pub use last_error::FreeholdError;

/// What a stream's handle points to is the driver's.
#[derive(Debug)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "it is the driver's name")]
pub struct CUstream_st {
    _private: [u8; 0],
}

/// A stream's handle, as the driver knows it.
pub type CUstream = *mut CUstream_st;

/// As in C.
#[expect(non_camel_case_types, reason = "it is C's name")]
pub type ssize_t = isize;

/// Who has a block.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FreeholdOwner {
    /// The first address of the block.
    pub base: *mut c_void,
    /// How many bytes were asked for.
    pub size: usize,
    /// The number of the device.
    pub device: c_int,
    /// The library's number of the stream that the block is in the order of, never one that was another stream's; 0 where
    /// that is not known any more.
    pub stream: u32,
    /// The id of the process.
    pub process: u32,
    /// Whether somebody has the block. It is released otherwise.
    pub is_live: bool,
}

/// Allocates memory for work in a stream: PyTorch's signature. It is used again in the order of that stream, and needs no
/// wait there.
///
/// Null where there is none, or no byte was asked for: freehold_last_error says why.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_alloc(size: ssize_t, device: c_int, stream: CUstream) -> *mut c_void {
    // SAFETY: the caller vouches for the stream.
    pointer(unsafe { foreign::alloc_kept(size as u64, device, stream_of(stream), alloc_uncached) })
}

/// As freehold_alloc, of zeros, which are written in the order of the stream.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_alloc_zeroed(size: ssize_t, device: c_int, stream: CUstream) -> *mut c_void {
    alloc_slow(size, device, |pool, bytes| pool.alloc_zeroed(bytes, stream_of(stream)))
}

/// As freehold_alloc, counted for a tag until it is released: see freehold_set_tag_budget. This takes a lock, and so does the
/// release.
///
/// A tag is text in UTF-8 that ends with a zero. One with slashes is within those before them: what is live as `model/cache` counts for
/// `model`, too. 4096 tags are counted, with those that they are within; blocks of further ones count for none.
#[unsafe(no_mangle)]
#[expect(clippy::missing_safety_doc, reason = "the comment is the header's, which says what a tag is")]
pub unsafe extern "C" fn freehold_alloc_tagged(
    size: ssize_t,
    device: c_int,
    stream: CUstream,
    tag: *const c_char,
) -> *mut c_void {
    // SAFETY: the caller's promise is this function's.
    match unsafe { c_str("tag", tag) } {
        Ok(tag) => alloc_slow(size, device, |pool, bytes| pool.alloc_tagged(bytes, stream_of(stream), tag)),
        Err(failure) => {
            last_error::set(failure);
            ptr::null_mut()
        }
    }
}

/// Releases a block in the order of a stream: PyTorch's signature. Work that was put into the stream before may still use the
/// block; it is not used again before that work is done. Nothing waits.
///
/// The size is not looked at. Null is nothing. A wrong release changes nothing, and freehold_last_error tells of it.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_free(ptr: *mut c_void, size: ssize_t, device: c_int, stream: CUstream) {
    freehold_try_free(ptr, size, device, stream);
}

/// As freehold_free. Returns FREEHOLD_ERROR_NONE or another freehold_error.
#[unsafe(no_mangle)]
#[expect(unused_variables, reason = "the arguments are those of freehold_free, which PyTorch calls")]
pub extern "C" fn freehold_try_free(ptr: *mut c_void, size: ssize_t, device: c_int, stream: CUstream) -> c_int {
    const { assert!(FreeholdError::None as c_int == 0, "that is what a release returns that went well") };
    // SAFETY: the caller vouches for the stream.
    unsafe { foreign::free_kept(ptr as u64, device, stream_of(stream), free_uncached) }
}

/// Gives a block another size, in the order of a stream: where it lies if that can be, and else elsewhere, with the contents
/// copied in the order of the stream. Null is an allocation, size 0 is not a release.
///
/// Null where it cannot be: the block is as it was, and freehold_last_error says why.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_realloc(
    ptr: *mut c_void,
    new_size: ssize_t,
    device: c_int,
    stream: CUstream,
) -> *mut c_void {
    if ptr.is_null() {
        return freehold_alloc(new_size, device, stream);
    }
    let address = ptr as u64;
    alloc_slow(new_size, device, |pool, bytes| pool.realloc(address, bytes, stream_of(stream)))
}

/// Says that work in a stream uses a block of another stream. It is not used again before all work is done that is put into
/// that stream until the block is released. PyTorch's `record_stream`.
///
/// Returns a freehold_error.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_record_use(ptr: *mut c_void, stream: CUstream) -> c_int {
    to_code(|| pool_at(ptr as u64)?.record_use(ptr as u64, stream_of(stream)).map_err(Failure::from))
}

/// Says that a stream is about to be destroyed: its handle may be another stream's afterwards. Call it before
/// cuStreamDestroy, on whatever device the stream is. Its blocks stay as they are.
///
/// Returns a freehold_error: FREEHOLD_ERROR_STREAM_CAPTURED, and the stream is known as before, until its capture is ended.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_stream_retire(stream: CUstream) -> c_int {
    to_code(|| pools::known_pools().try_for_each(|pool| pool.retire(stream_of(stream))).map_err(Failure::from))
}

/// Promises that each stream capture of this process is announced by freehold_pool_begin, of any device, before it begins and in the
/// thread that begins it. Until then each call that names another stream than the legacy default one asks the driver whether the stream is capturing, which costs about
/// 0.1 microseconds.
///
/// Memory that is handed out or freed in a capturing stream belongs to its capture, because each launch of the graph uses it again.
/// It serves nobody else until freehold_pool_release, or freehold_capture_release where the capture was not announced.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_announce_captures() {
    pools::announce_captures();
}

/// Lets captures that this thread begins from now on have their memory from a private pool, until freehold_pool_end. The two numbers
/// are the pool's id, which the caller chooses; captures that use one pool share its memory, so their graphs must not run at the same
/// time. PyTorch's signature of begin_allocate_to_pool, whose third argument is not needed.
///
/// A capture belongs to the pool that its thread began last, before the capture. The library learns of the capture when that thread
/// names one of its streams; from then on other threads that name them take from the pool, too. Where captures are announced, another
/// thread may be the first, if one thread only has pools begun. Any other capture has a pool of its own: see freehold_capture_release.
/// A thread that has begun a pool itself must not be the first to name a stream of another thread's capture.
///
/// A pool serves memory of one device. Call this for each device whose memory the capture takes; what it takes of another device is
/// kept for the capture there, until freehold_capture_release of that device.
///
/// A thread that begins a pool again without freehold_pool_end, after its capture with the pool is over, says that the capture failed
/// and has no graph: both begins count as one.
///
/// Returns a freehold_error.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_pool_begin(device: c_int, first: u64, second: u64) -> c_int {
    to_code(|| pool(device)?.begin_pool(PoolId::Named(first, second)).map_err(Failure::from))
}

/// Ends what freehold_pool_begin began, after the capture. The memory stays the pool's. PyTorch's signature.
///
/// Returns a freehold_error.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_pool_end(device: c_int, first: u64, second: u64) -> c_int {
    to_code(|| pool(device)?.end_pool(PoolId::Named(first, second)).map_err(Failure::from))
}

/// Releases a private pool once for each freehold_pool_begin: the graphs that were captured with it are not launched any more. Its
/// free memory serves others afterwards, its live blocks do when they are freed. Waits for the work on the device, unless a
/// stream is capturing or the driver refuses to wait: then the memory stays until the next call of this kind or freehold_trim.
/// PyTorch's signature.
///
/// Returns a freehold_error: FREEHOLD_ERROR_POOL_OPEN where the pool is begun and not ended. End it first.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_pool_release(device: c_int, first: u64, second: u64) -> c_int {
    to_code(|| pool(device)?.release_pool(PoolId::Named(first, second)).map_err(Failure::from))
}

/// As freehold_pool_release, for what a capture took that was not announced, by the id that cuStreamGetCaptureInfo gives.
///
/// Returns a freehold_error.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_capture_release(device: c_int, capture: u64) -> c_int {
    to_code(|| pool(device)?.release_pool(PoolId::Capture(capture)).map_err(Failure::from))
}

/// Writes the first addresses of the live blocks of a private pool to `out`, as many as there is room for, and how many there are
/// to `count`. With no room `out` may be null.
///
/// Returns a freehold_error.
#[unsafe(no_mangle)]
#[expect(clippy::missing_safety_doc, reason = "the comment is the header's, which says what is written where")]
pub unsafe extern "C" fn freehold_pool_blocks(
    device: c_int,
    first: u64,
    second: u64,
    out: *mut *mut c_void,
    room: usize,
    count: Option<&mut MaybeUninit<usize>>,
) -> c_int {
    to_code(|| {
        let count = count.ok_or(Failure::NullArgument { name: "count" })?;
        if out.is_null() && room > 0 {
            return Err(Failure::NullArgument { name: "out" });
        }
        let blocks = pool(device)?.pool_blocks(PoolId::Named(first, second)).map_err(Failure::from)?;
        for (index, &(base, _)) in blocks.iter().take(room).enumerate() {
            // SAFETY: the caller has room for so many pointers there.
            let place = unsafe { out.add(index) };
            // SAFETY: as above.
            unsafe { place.write(pointer(base)) };
        }
        count.write(blocks.len());
        Ok(())
    })
}

/// The bytes of a device that the library has of the driver: those of live blocks, and those that are kept for others.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_reserved_bytes(device: c_int) -> usize {
    pools::known_pool(device).map_or(0, |pool| pool.reserved_bytes() as usize)
}

/// The bytes that were asked for on a device and not released.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_live_bytes(device: c_int) -> usize {
    pools::known_pool(device).map_or(0, |pool| pool.live_bytes() as usize)
}

/// Gives memory that nobody has, and that no work uses, back to the driver until at most `keep` bytes of the device are
/// reserved. Nothing waits, unless a released private pool is still to be given back: what is still in use stays.
///
/// Returns a freehold_error.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_trim(device: c_int, keep: usize) -> c_int {
    let Some(pool) = pools::known_pool(device) else { return FreeholdError::None as c_int };
    to_code(|| pool.trim(keep as u64).map(|_| ()).map_err(Failure::from))
}

/// Lets the library reserve no more than so many bytes of a device from now on; SIZE_MAX is no limit. What it has already is
/// not given back: see freehold_trim.
///
/// Returns a freehold_error.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_set_budget(device: c_int, bytes: usize) -> c_int {
    to_code(|| {
        pool(device)?.set_budget_bytes(if bytes == usize::MAX { u64::MAX } else { bytes as u64 });
        Ok(())
    })
}

/// Lets no more than so many bytes of a device be live under a tag, and those within it, from now on; SIZE_MAX is no limit.
/// What would be more is refused with FREEHOLD_ERROR_TAG_BUDGET. What is live already stays.
///
/// Returns a freehold_error.
#[unsafe(no_mangle)]
#[expect(clippy::missing_safety_doc, reason = "the comment is the header's, which says what a tag is")]
pub unsafe extern "C" fn freehold_set_tag_budget(device: c_int, tag: *const c_char, bytes: usize) -> c_int {
    to_code(|| {
        // SAFETY: the caller's promise is this function's.
        let tag = unsafe { c_str("tag", tag) }?;
        let bytes = if bytes == usize::MAX { u64::MAX } else { bytes as u64 };
        pool(device)?.set_tag_budget(tag, bytes).map_err(Failure::from)
    })
}

/// The bytes of a device that are live under a tag, and those within it. 0 for a tag that is not text, too.
#[unsafe(no_mangle)]
#[expect(clippy::missing_safety_doc, reason = "the comment is the header's, which says what a tag is")]
pub unsafe extern "C" fn freehold_tag_bytes(device: c_int, tag: *const c_char) -> usize {
    // SAFETY: the caller's promise is this function's.
    match unsafe { c_str("tag", tag) } {
        Ok(tag) => pools::known_pool(device).map_or(0, |pool| pool.tag_bytes(tag) as usize),
        Err(failure) => {
            last_error::set(failure);
            0
        }
    }
}

/// Says who has the block that an address lies in, at its beginning or further in.
///
/// Returns a freehold_error: FREEHOLD_ERROR_NEVER_ALLOCATED where there is no block, and `out` is as it was.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_owner(ptr: *const c_void, out: Option<&mut MaybeUninit<FreeholdOwner>>) -> c_int {
    to_code(|| {
        let out = out.ok_or(Failure::NullArgument { name: "out" })?;
        out.write(owner_of(ptr as u64)?);
        Ok(())
    })
}

/// What this thread's last failed call says of its failure, in one sentence; an empty text where none failed. It stays until
/// this thread's next call. A call that succeeds does not clear it.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_last_error() -> *const c_char {
    catch_unwind(last_error::last_text).unwrap_or(c"".as_ptr())
}

/// The freehold_error of this thread's last failed call.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_last_error_code() -> c_int {
    last_error::last_code() as c_int
}

/// Forgets this thread's last failed call.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_clear_error() {
    last_error::clear();
}

/// The library's version, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn freehold_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// freehold_alloc with the signature of CuPy's CFunctionAllocator, whose `param` is the stream.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_cupy_malloc(stream: *mut c_void, size: usize, device: c_int) -> *mut c_void {
    freehold_alloc(isize::try_from(size).unwrap_or(isize::MAX), device, stream.cast())
}

/// freehold_free with the signature of CuPy's CFunctionAllocator, whose `param` is the stream.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_cupy_free(stream: *mut c_void, ptr: *mut c_void, device: c_int) {
    freehold_try_free(ptr, 0, device, stream.cast());
}

#[inline]
fn stream_of(stream: CUstream) -> Stream {
    Stream(stream as usize as _)
}

/// What a pointer of C's to text says.
///
/// # Safety
/// It is null or points to a text that ends with a zero and outlives `'a`.
unsafe fn c_str<'a>(name: &'static str, at: *const c_char) -> Result<&'a str, Failure> {
    if at.is_null() {
        return Err(Failure::NullArgument { name });
    }
    // SAFETY: it is not null, and the caller vouches for the rest.
    let text = unsafe { CStr::from_ptr(at) };
    text.to_str().map_err(|_| Failure::InvalidUtf8 { name })
}

#[inline]
fn pointer(address: u64) -> *mut c_void {
    ptr::without_provenance_mut(address as usize)
}

fn pool(device: c_int) -> Result<&'static ForeignPool, Failure> {
    match pools::known_pool(device) {
        Some(pool) => Ok(pool),
        None => pools::pool(device).map_err(Failure::from),
    }
}

/// The pool on whose device an address lies.
fn pool_at(address: u64) -> Result<&'static ForeignPool, Failure> {
    let never = || Failure::from(Error::from(WrongRelease::NeverAllocated { address }));
    let has = pools::known_pools().find(|pool| pool.has(address));
    has.or_else(|| pools::known_pools().find(|pool| pool.had(address))).ok_or_else(never)
}

fn owner_of(address: u64) -> Result<FreeholdOwner, Failure> {
    let pool = pool_at(address)?;
    let device = pool.ordinal();
    if let Some(owner) = pool.owner_of(address) {
        return Ok(FreeholdOwner {
            base: pointer(owner.base),
            size: owner.bytes as usize,
            device,
            stream: owner.stream.map_or(0, |stream| stream.0),
            process: owner.process,
            is_live: owner.state == State::Owned,
        });
    }
    match pool.wrong_release(address) {
        WrongRelease::AlreadyReleased { base, bytes, .. } => Ok(FreeholdOwner {
            base: pointer(base),
            size: bytes as usize,
            device,
            stream: 0,
            process: std::process::id(),
            is_live: false,
        }),
        wrong => Err(Error::from(wrong).into()),
    }
}

/// freehold_alloc where its thread keeps nothing.
#[cold]
extern "C" fn alloc_uncached(size: u64, device: c_int, stream: Stream) -> u64 {
    alloc_slow(size as isize, device, |pool, bytes| pool.alloc_unkept(bytes, stream)).addr() as u64
}

/// What asks for memory and is not served at once.
#[cold]
fn alloc_slow(
    size: isize,
    device: c_int,
    alloc: impl FnOnce(&ForeignPool, u64) -> freehold::Result<u64>,
) -> *mut c_void {
    let allocated = catch_panic(|| {
        let bytes = u64::try_from(size).map_err(|_| Failure::NegativeSize { bytes: size })?;
        let told = |error| Failure::Library { device: Some(device), error };
        alloc(pool(device)?, bytes).map_err(told).map_err(|failure| or_wrong_device(failure, device))
    });
    match allocated {
        Ok(address) => pointer(address),
        Err(failure) => {
            last_error::set(failure);
            ptr::null_mut()
        }
    }
}

#[cold]
extern "C" fn free_uncached(address: u64, device: c_int, stream: Stream) -> c_int {
    if address == 0 {
        return FreeholdError::None as c_int;
    }
    let Some(pool) = pools::known_pool(device) else { return free_unknown(address, device) };
    to_code(|| {
        let freed = pool.free_unkept(address, stream);
        freed.map_err(|error| or_wrong_device(error.into(), pool.ordinal()))
    })
}

/// A release on a device of which nothing was asked yet.
fn free_unknown(address: u64, device: c_int) -> c_int {
    to_code(|| {
        let never = Error::from(WrongRelease::NeverAllocated { address });
        Err(or_wrong_device(never.into(), device))
    })
}

/// The failure, or that the address is another device's.
fn or_wrong_device(failure: Failure, asked: c_int) -> Failure {
    let Failure::Library { error: Error::WrongRelease(WrongRelease::NeverAllocated { address }), .. } = failure else {
        return failure;
    };
    match pools::known_pools().find(|pool| pool.has(address)) {
        Some(pool) if pool.ordinal() != asked => Failure::WrongDevice { address, asked, of: pool.ordinal() },
        _ => failure,
    }
}

/// Calls what may fail, and remembers how it did.
fn to_code(call: impl FnOnce() -> Result<(), Failure>) -> c_int {
    match catch_panic(call) {
        Ok(()) => FreeholdError::None as c_int,
        Err(failure) => last_error::set(failure) as c_int,
    }
}

/// Calls what may fail. No panic leaves for C; all locks that it may leave behind are taken as they are.
fn catch_panic<R>(call: impl FnOnce() -> Result<R, Failure>) -> Result<R, Failure> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| Err(Failure::from_panic(panic)))
}
