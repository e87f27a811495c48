//! A context of a CUDA driver as a [`Backend`]. This module deals with the thread's current context, with calls that
//! would invalidate a capture, and with the meaning of error codes; nothing above does.

mod capabilities;
mod kernels;

use std::ptr::NonNull;

use super::api::Api;
use super::call;
use super::code::CUerror;
use super::current_context::{with_current, with_current_relaxed};
use super::extension::{self, Extension};
use super::types::{
    CUDA_MEMCPY2D, CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUmemorytype, CUstream, event_flags,
    host_alloc_flags, stream_flags,
};
use super::{context, copy, device, event, fill, host, memory, pointer, primary, stream};
use crate::backend::{
    Backend, BlockAnnotation, BlockChange, BlockLookupFn, Contexts, DeviceMemory, FaultDetails, ForeignStreams,
    HostRegistration, MemoryInfo, Pattern, PeerCopies, PitchedPtr, Sharing, StreamMemOps, Timing, VirtualMemory,
};
use crate::error::CallError;
use crate::handle::{Event, Stream};

type Result<T> = std::result::Result<T, CallError>;

/// The shortest copy from the host that is split to reach a copy engine: two rows that are not adjacent need 4 bytes.
const INLINE_COPY_BYTES_MIN: usize = 4;
const INLINE_COPY_BYTES_MAX: usize = 32 << 10;

/// A context of a device. Its driver is initialized.
#[derive(Debug)]
pub struct Context {
    api: Api,
    device: CUdevice,
    raw: CUcontext,
    origin: Origin,
    has_virtual_memory: bool,
    has_shareable_memory: bool,
    has_stream_mem_ops: bool,
    /// The software driver's extension.
    extension: Option<Extension>,
}

/// Where a context comes from, which decides how it is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// The primary context, retained.
    Primary,
    Created,
    /// Made and destroyed by other code.
    Adopted,
}

impl Context {
    /// Returns the primary context, retained until it is closed.
    pub fn primary(api: Api, device: CUdevice) -> Result<Self> {
        let raw = primary::retain(&api, device)?;
        let primary = Self::new(api, device, raw, Origin::Primary);
        primary.or_else(|error| primary::release(&api, device).map_err(CallError::from).and(Err(error)))
    }

    /// Wraps a context that other code made. That code destroys it, after this value is no longer used.
    pub fn adopt(api: Api, device: CUdevice, raw: CUcontext) -> Result<Self> {
        Self::new(api, device, raw, Origin::Adopted)
    }

    fn new(api: Api, device: CUdevice, raw: CUcontext, origin: Origin) -> Result<Self> {
        let has = |attribute| Ok::<_, CallError>(device::attribute(&api, device, attribute)? != 0);
        let writes_words = has(CUdevice_attribute::CAN_USE_64_BIT_STREAM_MEM_OPS)?;
        let maps = has(CUdevice_attribute::VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)?;
        let shares = maps && has(CUdevice_attribute::HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)?;
        let extension = extension::find(&api);
        Ok(Self {
            api,
            device,
            raw,
            origin,
            has_virtual_memory: maps,
            has_shareable_memory: shares,
            has_stream_mem_ops: writes_words,
            extension,
        })
    }

    /// Calls the driver with the context current.
    fn with_current<R>(&self, call: impl FnOnce(&Api) -> std::result::Result<R, call::DriverError>) -> Result<R> {
        Ok(with_current(&self.api, self.raw, || call(&self.api))?)
    }

    /// Like [`with_current`](Self::with_current), without invalidating a capture of any thread.
    fn with_current_relaxed<R>(
        &self,
        call: impl FnOnce(&Api) -> std::result::Result<R, call::DriverError>,
    ) -> Result<R> {
        Ok(with_current_relaxed(&self.api, self.raw, || call(&self.api))?)
    }

    /// Makes a call that takes a stream. The default streams are those of the current context.
    fn with_stream<R>(
        &self,
        stream: Stream,
        call: impl FnOnce(&Api, CUstream) -> std::result::Result<R, call::DriverError>,
    ) -> Result<R> {
        let stream = CUstream::from(stream);
        if stream.0 <= CUstream::PER_THREAD.0 {
            self.with_current(|api| call(api, stream))
        } else {
            Ok(call(&self.api, stream)?)
        }
    }
}

impl Backend for Context {
    fn name(&self) -> Result<String> {
        Ok(device::name(&self.api, self.device)?)
    }

    fn uuid(&self) -> Result<[u8; 16]> {
        Ok(device::uuid(&self.api, self.device)?.bytes)
    }

    fn memory_info(&self) -> Result<MemoryInfo> {
        let info = self.with_current(memory::info)?;
        Ok(MemoryInfo { free_bytes: info.free_bytes as u64, total_bytes: info.total_bytes as u64 })
    }

    fn synchronize(&self) -> Result<()> {
        self.with_current(context::synchronize)
    }

    unsafe fn close(&self) -> Result<()> {
        match self.origin {
            Origin::Primary => Ok(primary::release(&self.api, self.device)?),
            Origin::Created => Ok(context::destroy(&self.api, self.raw)?),
            Origin::Adopted => Ok(()),
        }
    }

    /// Addresses are numbers here, and an element is aligned to its own size.
    fn alignment_bytes(&self) -> u64 {
        1
    }

    fn is_host_visible(&self, address: u64) -> Result<bool> {
        self.with_current(|api| match pointer::host_pointer(api, CUdeviceptr(address)) {
            Ok(seen) => Ok(seen.addr() as u64 == address),
            Err(error) if error.code == CUerror::INVALID_VALUE => Ok(false),
            Err(error) => Err(error),
        })
    }

    fn alloc_host(&self, bytes: usize) -> Result<NonNull<u8>> {
        let start = self.with_current_relaxed(|api| host::alloc_with_flags(api, bytes, host_alloc_flags::PORTABLE))?;
        Ok(NonNull::new(start.cast()).expect("the driver never allocates at null"))
    }

    unsafe fn free_host(&self, start: NonNull<u8>) -> Result<()> {
        self.with_current_relaxed(|api| {
            // SAFETY: the caller guarantees that the memory is no longer used.
            unsafe { host::free(api, start.as_ptr().cast()) }
        })
    }

    fn create_stream(&self) -> Result<Stream> {
        self.with_current(|api| stream::create(api, stream_flags::NON_BLOCKING)).map(Stream::made)
    }

    unsafe fn destroy_stream(&self, stream: Stream) -> Result<()> {
        Ok(stream::destroy(&self.api, stream.into())?)
    }

    unsafe fn is_idle(&self, stream: Stream) -> Result<bool> {
        self.with_current_relaxed(|api| stream::query(api, stream.into()))
    }

    unsafe fn wait_until_idle(&self, stream: Stream) -> Result<()> {
        self.with_current_relaxed(|api| stream::synchronize(api, stream.into()))
    }

    fn create_event(&self) -> Result<Event> {
        self.with_current(|api| event::create(api, event_flags::DISABLE_TIMING)).map(Event::made)
    }

    unsafe fn destroy_event(&self, event: Event) -> Result<()> {
        Ok(event::destroy(&self.api, event.into())?)
    }

    unsafe fn record(&self, event: Event, stream: Stream) -> Result<()> {
        self.with_stream(stream, |api, stream| event::record(api, event.into(), stream))
    }

    unsafe fn is_complete(&self, event: Event) -> Result<bool> {
        self.with_current_relaxed(|api| event::query(api, event.into()))
    }

    unsafe fn wait(&self, event: Event) -> Result<()> {
        self.with_current_relaxed(|api| event::synchronize(api, event.into()))
    }

    unsafe fn stream_wait_event(&self, stream: Stream, event: Event) -> Result<()> {
        self.with_stream(stream, |api, stream| stream::wait_event(api, stream, event.into(), 0))
    }

    // Copies and fills need the context current: without one, the driver rejects memory that spans several chunks.

    unsafe fn upload(&self, to: u64, from: *const u8, bytes: usize, stream: Stream) -> Result<()> {
        self.with_current(|api| {
            // SAFETY: the caller guarantees that `from` is valid until the stream has completed the copy.
            unsafe { copy::host_to_device_async(api, CUdeviceptr(to), from.cast(), bytes, stream.into()) }
        })
    }

    /// Copies two rows that are not adjacent, and then the bytes between them. The driver puts a short copy, and one of
    /// adjacent rows, into the command buffer of the engine that runs kernels (142 µs beside another process on an
    /// H200); rows that are not adjacent use a copy engine (8 µs).
    unsafe fn upload_by_copy_engine(&self, to: u64, from: *const u8, bytes: usize, stream: Stream) -> Result<()> {
        if !(INLINE_COPY_BYTES_MIN..INLINE_COPY_BYTES_MAX).contains(&bytes) {
            // SAFETY: guaranteed by the caller.
            return unsafe { self.upload(to, from, bytes, stream) };
        }
        let pitch = bytes.div_ceil(2);
        // With an odd number of bytes, one is between the rows, and another is copied twice.
        let pitch_between = if bytes.is_multiple_of(2) { pitch } else { 2 };
        let parts = [(0, pitch - 1, pitch), (pitch - 1, 1, pitch_between)];
        self.with_current(|api| {
            parts.iter().try_for_each(|&(start, row_bytes, pitch)| {
                let rows = CUDA_MEMCPY2D {
                    srcMemoryType: CUmemorytype::HOST,
                    srcHost: from.addr() + start,
                    srcPitch: pitch,
                    dstMemoryType: CUmemorytype::DEVICE,
                    dstDevice: CUdeviceptr(to + start as u64),
                    dstPitch: pitch,
                    WidthInBytes: row_bytes,
                    Height: 2,
                    ..CUDA_MEMCPY2D::default()
                };
                // SAFETY: the caller guarantees that `from` is valid until the stream has completed the copy; both rows
                // lie within it.
                unsafe { copy::rectangle_async(api, &rows, stream.into()) }
            })
        })
    }

    unsafe fn download(&self, to: *mut u8, from: u64, bytes: usize, stream: Stream) -> Result<()> {
        self.with_current(|api| {
            // SAFETY: the caller guarantees that `to` is valid until the stream has completed the copy.
            unsafe { copy::device_to_host_async(api, to.cast(), CUdeviceptr(from), bytes, stream.into()) }
        })
    }

    unsafe fn copy(&self, to: u64, from: u64, bytes: usize, stream: Stream) -> Result<()> {
        self.with_current(|api| {
            copy::device_to_device_async(api, CUdeviceptr(to), CUdeviceptr(from), bytes, stream.into())
        })
    }

    unsafe fn copy_2d(
        &self,
        to: PitchedPtr,
        from: PitchedPtr,
        row_bytes: usize,
        rows: usize,
        stream: Stream,
    ) -> Result<()> {
        let rectangle = CUDA_MEMCPY2D {
            srcMemoryType: CUmemorytype::DEVICE,
            srcDevice: CUdeviceptr(from.start),
            srcPitch: from.pitch_bytes,
            dstMemoryType: CUmemorytype::DEVICE,
            dstDevice: CUdeviceptr(to.start),
            dstPitch: to.pitch_bytes,
            WidthInBytes: row_bytes,
            Height: rows,
            ..CUDA_MEMCPY2D::default()
        };
        self.with_current(|api| {
            // SAFETY: both sides are device memory.
            unsafe { copy::rectangle_async(api, &rectangle, stream.into()) }
        })
    }

    unsafe fn fill(&self, to: u64, pattern: Pattern, bytes: usize, stream: Stream) -> Result<()> {
        let (to, stream) = (CUdeviceptr(to), stream.into());
        self.with_current(|api| match pattern {
            Pattern::U8(byte) => fill::d8_async(api, to, byte, bytes, stream),
            Pattern::U16(pair) => fill::d16_async(api, to, u16::from_ne_bytes(pair), bytes / 2, stream),
            Pattern::U32(four) => fill::d32_async(api, to, u32::from_ne_bytes(four), bytes / 4, stream),
        })
    }

    fn stream_mem_ops(&self) -> Option<&dyn StreamMemOps> {
        self.has_stream_mem_ops.then_some(self as _)
    }

    fn host_registration(&self) -> Option<&dyn HostRegistration> {
        Some(self)
    }

    fn contexts(&self) -> Option<&dyn Contexts> {
        Some(self)
    }

    fn timing(&self) -> Option<&dyn Timing> {
        Some(self)
    }

    fn foreign_streams(&self) -> Option<&dyn ForeignStreams> {
        Some(self)
    }

    fn peer_copies(&self) -> Option<&dyn PeerCopies> {
        Some(self)
    }

    fn fault(&self) -> Option<FaultDetails> {
        self.extension?.fault()
    }

    unsafe fn cuda(&self) -> Option<&Api> {
        Some(&self.api)
    }

    fn is_cuda(&self) -> bool {
        true
    }

    fn is_software(&self) -> bool {
        self.extension.is_some()
    }
}

impl DeviceMemory for Context {
    fn total_bytes(&self) -> Result<u64> {
        Ok(device::total_bytes(&self.api, self.device)? as u64)
    }

    fn alloc(&self, bytes: u64) -> Result<u64> {
        Ok(self.with_current_relaxed(|api| memory::alloc(api, bytes as usize))?.0)
    }

    unsafe fn free(&self, address: u64) -> Result<()> {
        self.with_current_relaxed(|api| memory::free(api, CUdeviceptr(address)))
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        self.has_virtual_memory.then_some(self as _)
    }

    fn sharing(&self) -> Option<&dyn Sharing> {
        self.has_shareable_memory.then_some(self as _)
    }

    fn annotate_blocks(&self, start: u64, bytes: u64, lookup: BlockLookupFn) -> Option<BlockAnnotation> {
        let described = self.extension?.annotate_blocks(start, bytes, lookup).ok()?;
        Some(Box::new(described))
    }

    fn is_checked(&self) -> bool {
        self.extension.is_some_and(Extension::is_checked)
    }

    fn announce(&self, change: BlockChange) {
        if let Some(extension) = self.extension {
            extension.announce(change);
        }
    }
}

macro_rules! converted {
    ($($handle:ident = $raw:ident;)*) => {$(
        impl From<$handle> for $raw {
            fn from(handle: $handle) -> Self {
                Self(handle.0 as usize)
            }
        }

        impl $handle {
            /// Wraps a handle that the driver has just created.
            fn made(raw: $raw) -> Self {
                Self(raw.0 as u64)
            }
        }
    )*};
}

/// Wraps a stream that other code made. Passing it to a call is `unsafe`, as for any handle.
impl From<CUstream> for Stream {
    fn from(raw: CUstream) -> Self {
        Self::made(raw)
    }
}

converted! {
    Stream = CUstream;
    Event = CUevent;
}

use converted;
