//! The optional features of a CUDA context.

use std::ffi::c_void;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use super::{Context, Origin, Result};
use crate::backend::{
    Backend, Contexts, ForeignStreams, HostRegistration, PeerContext, PeerCopies, Permission, Sharing, StreamCapture,
    StreamMemOps, Timing, VirtualMemory,
};
use crate::cuda::code::CUerror;
use crate::cuda::graph_types::CUstreamCaptureMode;
use crate::cuda::mapping_types::{CUmemAllocationProp, CUmemGenericAllocationHandle};
use crate::cuda::types::{
    CUcontext, CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType, CUmemLocation,
    CUmemLocationType, CUstreamCaptureStatus, event_flags, host_alloc_flags, host_register_flags, stream_flags,
    wait_value_flags,
};
use crate::cuda::{address, allocation, capture, context, copy, event, graph, host, mapping, stream};
use crate::handle::{Event, Memory, Stream};

impl Context {
    fn create_memory(&self, bytes: u64, handles: CUmemAllocationHandleType) -> Result<Memory> {
        let prop = CUmemAllocationProp::on_device(self.device, handles);
        Ok(Memory(self.with_current_relaxed(|api| allocation::create(api, bytes as usize, &prop))?.0))
    }
}

impl VirtualMemory for Context {
    fn reserve(&self, bytes: u64, alignment_bytes: u64) -> Result<u64> {
        let reserved = self.with_current_relaxed(|api| {
            address::reserve(api, bytes as usize, alignment_bytes as usize, CUdeviceptr::NULL)
        });
        Ok(reserved?.0)
    }

    unsafe fn unreserve(&self, start: u64, bytes: u64) -> Result<()> {
        self.with_current_relaxed(|api| address::free(api, CUdeviceptr(start), bytes as usize))
    }

    fn create(&self, bytes: u64) -> Result<Memory> {
        self.create_memory(bytes, CUmemAllocationHandleType::NONE)
    }

    unsafe fn release(&self, memory: Memory) -> Result<()> {
        self.with_current_relaxed(|api| allocation::release(api, CUmemGenericAllocationHandle(memory.0)))
    }

    unsafe fn map(&self, start: u64, bytes: u64, memory: Memory) -> Result<()> {
        let handle = CUmemGenericAllocationHandle(memory.0);
        self.with_current_relaxed(|api| mapping::map(api, CUdeviceptr(start), bytes as usize, 0, handle))
    }

    unsafe fn set_access(&self, start: u64, bytes: u64, permission: Permission) -> Result<()> {
        let location = CUmemLocation { kind: CUmemLocationType::DEVICE, id: self.device.0 };
        let flags = match permission {
            Permission::Read => CUmemAccess_flags::PROT_READ,
            Permission::ReadWrite => CUmemAccess_flags::PROT_READWRITE,
        };
        let access = [CUmemAccessDesc { location, flags }];
        self.with_current_relaxed(|api| mapping::set_access(api, CUdeviceptr(start), bytes as usize, &access))
    }

    unsafe fn set_peer_access(&self, start: u64, bytes: u64, peers: &[i32]) -> Result<()> {
        let access = |&id: &i32| CUmemAccessDesc {
            location: CUmemLocation { kind: CUmemLocationType::DEVICE, id },
            flags: CUmemAccess_flags::PROT_READWRITE,
        };
        let access: Vec<_> = peers.iter().map(access).collect();
        self.with_current_relaxed(|api| mapping::set_access(api, CUdeviceptr(start), bytes as usize, &access))
    }

    unsafe fn unmap(&self, start: u64, bytes: u64) -> Result<()> {
        self.with_current_relaxed(|api| mapping::unmap(api, CUdeviceptr(start), bytes as usize))
    }
}

impl Sharing for Context {
    fn create_shareable(&self, bytes: u64) -> Result<Memory> {
        self.create_memory(bytes, CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR)
    }

    unsafe fn export(&self, memory: Memory) -> Result<OwnedFd> {
        self.with_current_relaxed(|api| allocation::export(api, CUmemGenericAllocationHandle(memory.0)))
    }

    fn import(&self, descriptor: BorrowedFd<'_>) -> Result<Memory> {
        Ok(Memory(self.with_current_relaxed(|api| allocation::import(api, descriptor))?.0))
    }
}

impl StreamMemOps for Context {
    fn alloc_mapped_host(&self, bytes: usize) -> Result<(NonNull<u8>, u64)> {
        let flags = host_alloc_flags::PORTABLE | host_alloc_flags::DEVICEMAP;
        let (start, address) = self.with_current_relaxed(|api| {
            let start = host::alloc_with_flags(api, bytes, flags)?;
            let address = host::device_address(api, start, 0).or_else(|error| {
                // SAFETY: the memory was allocated above, and nothing else knows its address.
                unsafe { host::free(api, start) }.and(Err(error))
            })?;
            Ok((start, address))
        })?;
        Ok((NonNull::new(start.cast()).expect("the driver never allocates at null"), address.0))
    }

    unsafe fn free_mapped_host(&self, start: NonNull<u8>) -> Result<()> {
        // SAFETY: the caller guarantees that the memory is no longer used; the driver frees all pinned memory alike.
        unsafe { self.free_host(start) }
    }

    unsafe fn write_value(&self, stream: Stream, address: u64, value: u64) -> Result<()> {
        self.with_stream(stream, |api, stream| stream::write_value_64(api, stream, CUdeviceptr(address), value, 0))
    }

    unsafe fn wait_value(&self, stream: Stream, address: u64, value: u64) -> Result<()> {
        let flags = wait_value_flags::GEQ;
        self.with_stream(stream, |api, stream| stream::wait_value_64(api, stream, CUdeviceptr(address), value, flags))
    }
}

impl HostRegistration for Context {
    unsafe fn register(&self, start: NonNull<c_void>, bytes: usize) -> Result<()> {
        let flags = host_register_flags::PORTABLE | host_register_flags::DEVICEMAP;
        self.with_current_relaxed(|api| {
            // SAFETY: the caller guarantees that the memory stays mapped until it is unregistered.
            unsafe { host::register(api, start.as_ptr(), bytes, flags) }
        })
    }

    fn device_address(&self, start: NonNull<c_void>) -> Result<u64> {
        Ok(self.with_current_relaxed(|api| host::device_address(api, start.as_ptr(), 0))?.0)
    }

    unsafe fn unregister(&self, start: NonNull<c_void>) -> Result<()> {
        self.with_current_relaxed(|api| {
            // SAFETY: the caller guarantees that no work uses the memory, now or later.
            unsafe { host::unregister(api, start.as_ptr()) }
        })
    }
}

impl Contexts for Context {
    fn create_context(&self) -> Result<Arc<dyn Backend>> {
        let raw = context::create(&self.api, self.device, 0)?;
        // Creating a context pushes it onto the thread's stack.
        match context::pop_current(&self.api).or_else(|_| context::pop_current(&self.api)) {
            Ok(_) => Ok(Arc::new(Self { raw, origin: Origin::Created, ..*self })),
            Err(error) => Ok(context::destroy(&self.api, raw).and(Err(error))?),
        }
    }
}

impl Timing for Context {
    fn create_timed_event(&self) -> Result<Event> {
        self.with_current(|api| event::create(api, event_flags::DEFAULT)).map(Event::made)
    }

    unsafe fn elapsed_ms(&self, from: Event, to: Event) -> Result<f64> {
        Ok(f64::from(event::elapsed_ms(&self.api, from.into(), to.into())?))
    }
}

impl ForeignStreams for Context {
    unsafe fn id(&self, stream: Stream) -> Result<u64> {
        self.with_current(|api| stream::id(api, stream.into()))
    }

    unsafe fn can_record(&self, stream: Stream) -> Result<bool> {
        self.with_stream(stream, |api, stream| match stream::capture_status(api, stream) {
            Ok(status) => Ok(status == CUstreamCaptureStatus::NONE),
            // The legacy default stream waits for streams that are captured.
            Err(error) if error.code == CUerror::STREAM_CAPTURE_IMPLICIT => Ok(false),
            Err(error) => Err(error),
        })
    }

    unsafe fn capture_id(&self, stream: Stream) -> Result<Option<StreamCapture>> {
        self.with_stream(stream, |api, stream| match stream::capture_status(api, stream) {
            Ok(CUstreamCaptureStatus::NONE) => Ok(None),
            // The id is written only while the capture is active, not once it is invalidated.
            Ok(_) => capture::info(api, stream).map(|info| match info.status {
                CUstreamCaptureStatus::ACTIVE => Some(StreamCapture::Active(info.id)),
                CUstreamCaptureStatus::NONE => None,
                _ => Some(StreamCapture::Invalidated),
            }),
            // The legacy default stream waits for captured streams, and takes part in no capture.
            Err(error) if error.code == CUerror::STREAM_CAPTURE_IMPLICIT => Ok(None),
            Err(error) => Err(error),
        })
    }

    unsafe fn record_after_all(&self, event: Event) -> Result<bool> {
        match context::record_event(&self.api, self.raw, event.into()) {
            Ok(()) => Ok(true),
            Err(error) if error.code == CUerror::STREAM_CAPTURE_UNSUPPORTED => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Begins and ends an empty capture and returns its id: the driver numbers captures in order, across all threads
    /// and contexts (H200, driver 580).
    fn newest_capture(&self) -> Result<u64> {
        self.with_current_relaxed(|api| {
            let probe = stream::create(api, stream_flags::NON_BLOCKING)?;
            let captured = capture::begin(api, probe, CUstreamCaptureMode::RELAXED).and_then(|()| {
                let info = capture::info(api, probe);
                let ended = capture::end(api, probe).and_then(|made| graph::destroy(api, made));
                ended.and(info)
            });
            stream::destroy(api, probe).and(captured).map(|info| info.id)
        })
    }
}

impl PeerCopies for Context {
    fn peer_context(&self) -> PeerContext {
        PeerContext { driver: self.api.cuMemcpyPeerAsync as usize, raw: self.raw.0 }
    }

    fn is_peer(&self, other: PeerContext) -> bool {
        other.driver == self.peer_context().driver
    }

    unsafe fn copy_from_peer(
        &self,
        to: u64,
        from: u64,
        from_context: PeerContext,
        bytes: usize,
        stream: Stream,
    ) -> Result<()> {
        let (to, from, peer) = (CUdeviceptr(to), CUdeviceptr(from), CUcontext(from_context.raw));
        self.with_current(|api| copy::peer_async(api, to, self.raw, from, peer, bytes, stream.into()))
    }
}
