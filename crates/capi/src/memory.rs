//! The memory behind the blocks: what the library has from the driver, descriptors with which other processes map it, and
//! the devices that can access it.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::IntoRawFd;

use freehold::foreign::{ExportedChunk, Segment};

use crate::call::{CUstream, pointer, pool, pool_at, to_code};
use crate::last_error::Failure;
use crate::pools;
use freehold::Error;
use freehold::ledger::WrongRelease;
use freehold_driver::cuda::CUstream as Stream;

/// Memory at consecutive addresses that the library has from the driver.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FreeholdSegment {
    /// Its first address; null for memory that is cached and not mapped.
    pub base: *mut c_void,
    /// Its length.
    pub size: usize,
    /// The stream whose freed blocks it contains.
    pub stream: CUstream,
}

/// Memory in which a block, or a part of one, lies, for another process.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FreeholdChunk {
    /// Where it begins in this process.
    pub base: *mut c_void,
    /// Its length.
    pub size: usize,
    /// A descriptor that the caller closes. cuMemImportFromShareableHandle imports it, in this or another process.
    pub descriptor: c_int,
}

/// Writes the memory that the library has from the driver to `out`, sorted by address, as many segments as fit, and
/// their total number to `count`. `out` may be null if `room` is 0. The sizes add up to freehold_reserved_bytes
/// unless other threads allocate meanwhile.
///
/// Returns a freehold_error.
#[unsafe(no_mangle)]
#[expect(clippy::missing_safety_doc, reason = "the comment is for the C header, and says what is written where")]
pub unsafe extern "C" fn freehold_segments(
    device: c_int,
    out: *mut FreeholdSegment,
    room: usize,
    count: Option<&mut MaybeUninit<usize>>,
) -> c_int {
    to_code(|| {
        let segments = pools::known_pool(device).map_or_else(Vec::new, |pool| pool.segments());
        let segments = segments.into_iter().map(FreeholdSegment::from).collect();
        // SAFETY: the caller has room for that many segments there.
        unsafe { write_all(out, room, count, segments) }
    })
}

/// Makes the memory that the library takes from the driver from now on exportable, on a device. Call it before the first
/// allocation there.
///
/// Returns a freehold_error. FREEHOLD_ERROR_SYSTEM means that the device cannot export memory.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_make_exportable(device: c_int) -> c_int {
    to_code(|| match pool(device)?.make_exportable() {
        true => Ok(()),
        false => Err(Failure::CannotExport { device }),
    })
}

/// Writes the memory in which a block lies to `out`, in the order of the addresses, and the number of chunks to `count`.
/// If there are more than there is room for, writes nothing but the number. The block must not be freed during the call.
/// The same memory may hold other blocks, which the receiver of a descriptor can access too.
///
/// Returns a freehold_error.
#[unsafe(no_mangle)]
#[expect(clippy::missing_safety_doc, reason = "the comment is for the C header, and says what is written where")]
pub unsafe extern "C" fn freehold_export(
    ptr: *const c_void,
    out: *mut FreeholdChunk,
    room: usize,
    count: Option<&mut MaybeUninit<usize>>,
) -> c_int {
    to_code(|| {
        let address = ptr as u64;
        let never = || Error::WrongUse(WrongRelease::NeverAllocated { address });
        let pool = pool_at(address).ok_or_else(never)?;
        // SAFETY: the caller does not free the block during the call.
        let chunks = unsafe { pool.export_block(address) }?;
        if chunks.len() > room {
            count.ok_or(Failure::NullArgument { name: "count" })?.write(chunks.len());
            return Ok(());
        }
        let chunks = chunks.into_iter().map(FreeholdChunk::from).collect();
        // SAFETY: the caller has room for that many chunks there.
        unsafe { write_all(out, room, count, chunks) }
    })
}

/// Lets other devices access the memory that the library has mapped for blocks of a device, and all that it maps from
/// now on. They must be able to access that device's memory: see cuDeviceCanAccessPeer.
///
/// Returns a freehold_error.
#[unsafe(no_mangle)]
#[expect(clippy::missing_safety_doc, reason = "the comment is for the C header; C callers pass as many as they say")]
pub unsafe extern "C" fn freehold_set_peers(device: c_int, peers: *const c_int, count: usize) -> c_int {
    to_code(|| {
        if peers.is_null() && count > 0 {
            return Err(Failure::NullArgument { name: "peers" });
        }
        // SAFETY: the caller passes that many numbers.
        let peers = if count == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(peers, count) } };
        Ok(pool(device)?.permit_peers(peers)?)
    })
}

/// Writes as many items as fit, and their number.
///
/// # Safety
/// `out` has room for `room` items, or is null.
unsafe fn write_all<T>(
    out: *mut T,
    room: usize,
    count: Option<&mut MaybeUninit<usize>>,
    items: Vec<T>,
) -> Result<(), Failure> {
    let count = count.ok_or(Failure::NullArgument { name: "count" })?;
    if out.is_null() && room > 0 {
        return Err(Failure::NullArgument { name: "out" });
    }
    count.write(items.len());
    for (index, item) in items.into_iter().take(room).enumerate() {
        // SAFETY: the caller has room for it.
        let place = unsafe { out.add(index) };
        // SAFETY: as above.
        unsafe { place.write(item) };
    }
    Ok(())
}

impl From<Segment> for FreeholdSegment {
    fn from(segment: Segment) -> Self {
        let stream = Stream::from(segment.stream);
        Self { base: pointer(segment.base), size: segment.bytes as usize, stream: pointer(stream.0 as u64).cast() }
    }
}

impl From<ExportedChunk> for FreeholdChunk {
    fn from(chunk: ExportedChunk) -> Self {
        let descriptor = chunk.descriptor.into_raw_fd();
        Self { base: pointer(chunk.address), size: chunk.bytes as usize, descriptor }
    }
}
