//! A context of OpenCL as a [`Backend`]. This module deals with OpenCL's lifetimes and with the features that OpenCL
//! lacks in comparison with CUDA; nothing above does.
//!
//! A stream is an in-order queue, flushed after each command: otherwise a queue that waits for another's event, or a
//! host that polls one, could wait for work that never starts. An event is the last command that its stream had when it
//! was recorded, so that recording does not give the device any work.

mod address_space;
mod kernels;
mod lock;
mod module_table;
mod streams;

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::Mutex;

pub use address_space::MemoryModel;
pub use streams::Latch;

use self::address_space::AddressSpace;
use self::lock::{Result, locked};
use self::module_table::ModuleTable;
use self::streams::Streams;
use super::discovery::InstalledDevice;
use super::handle::{ContextId, Memory, Queue};
use super::{call, context, event, memory, queue};
use crate::backend::{
    Backend, Contexts, DeviceMemory, ForeignStreams, HostRegistration, MemoryInfo, Pattern, PeerCopies, PitchedPtr,
    Sharing, StreamMemOps, Timing, VirtualMemory,
};
use crate::error::CallError;
use crate::handle::{Event, Stream};

/// An OpenCL context on one device.
#[derive(Debug)]
pub struct Context {
    device: InstalledDevice,
    raw: ContextId,
    /// The queue for work of no stream: mapping host memory.
    service: Queue,
    space: AddressSpace,
    streams: Streams,
    modules: ModuleTable,
    /// The buffers behind pinned host memory, by its address.
    host_buffers: Mutex<HashMap<usize, Memory>>,
}

impl Context {
    /// Creates a context on a device, with this memory model.
    pub fn new(found: InstalledDevice, model: MemoryModel) -> Result<Self> {
        let raw = context::create(found.device)?;
        let service = queue::create(raw, found.device);
        let service = service.or_else(|error| context::release(raw).and(Err(error)))?;
        let space = AddressSpace::new(raw, model, &found.info);
        let streams = Streams::new(raw, found.device);
        Ok(Self {
            device: found,
            raw,
            service,
            space,
            streams,
            modules: ModuleTable::default(),
            host_buffers: Mutex::default(),
        })
    }
}

impl Context {
    /// Makes later work of a stream wait until the host opens the latch.
    pub fn latch(&self, stream: Stream) -> Result<Latch> {
        self.streams.latch(stream)
    }
}

impl Backend for Context {
    fn name(&self) -> Result<String> {
        Ok(self.device.info.name.clone())
    }

    fn uuid(&self) -> Result<[u8; 16]> {
        Ok(self.device.uuid())
    }

    /// Computes the free memory as the part that this context has not allocated, because OpenCL does not report it.
    fn memory_info(&self) -> Result<MemoryInfo> {
        let total_bytes = self.device.info.memory_bytes;
        Ok(MemoryInfo { free_bytes: total_bytes.saturating_sub(self.space.used_bytes()), total_bytes })
    }

    fn synchronize(&self) -> Result<()> {
        self.streams.synchronize()
    }

    unsafe fn close(&self) -> Result<()> {
        self.streams.close()?;
        self.modules.close()?;
        self.space.close()?;
        for (start, buffer) in locked(&self.host_buffers).drain() {
            unmap(self.service, buffer, start)?;
        }
        queue::finish(self.service)?;
        queue::release(self.service)?;
        context::release(self.raw)
    }

    /// The device's alignment for sub-buffers, which shared virtual memory uses too.
    fn alignment_bytes(&self) -> u64 {
        self.device.info.align_bytes
    }

    /// The host may access coarse-grained memory only while it is mapped, and it is never mapped here.
    fn is_host_visible(&self, _address: u64) -> Result<bool> {
        Ok(false)
    }

    fn alloc_host(&self, bytes: usize) -> Result<NonNull<u8>> {
        let buffer = memory::create_host_visible(self.raw, bytes)?;
        match memory::map(self.service, buffer, bytes) {
            Ok(start) => {
                locked(&self.host_buffers).insert(start.addr().get(), buffer);
                Ok(start)
            }
            Err(error) => memory::release(buffer).and(Err(error)),
        }
    }

    unsafe fn free_host(&self, start: NonNull<u8>) -> Result<()> {
        let start = start.addr().get();
        let Some(buffer) = locked(&self.host_buffers).remove(&start) else {
            return Err(call::invalid_value("clReleaseMemObject"));
        };
        unmap(self.service, buffer, start)
    }

    fn create_stream(&self) -> Result<Stream> {
        self.streams.create()
    }

    unsafe fn destroy_stream(&self, stream: Stream) -> Result<()> {
        self.streams.destroy(stream)
    }

    unsafe fn is_idle(&self, stream: Stream) -> Result<bool> {
        self.streams.is_idle(stream)
    }

    unsafe fn wait_until_idle(&self, stream: Stream) -> Result<()> {
        self.streams.wait_until_idle(stream)
    }

    fn create_event(&self) -> Result<Event> {
        Ok(self.streams.create_event())
    }

    unsafe fn destroy_event(&self, event: Event) -> Result<()> {
        self.streams.destroy_event(event)
    }

    unsafe fn record(&self, event: Event, stream: Stream) -> Result<()> {
        self.streams.record(event, stream)
    }

    unsafe fn is_complete(&self, event: Event) -> Result<bool> {
        self.streams.is_complete(event)
    }

    unsafe fn wait(&self, event: Event) -> Result<()> {
        self.streams.wait(event)
    }

    unsafe fn stream_wait_event(&self, stream: Stream, event: Event) -> Result<()> {
        self.streams.stream_wait_event(stream, event)
    }

    unsafe fn upload(&self, to: u64, from: *const u8, bytes: usize, stream: Stream) -> Result<()> {
        self.streams.enqueue(stream, |queue| {
            // SAFETY: the caller guarantees that `from` is valid until the stream has completed the copy.
            unsafe { self.space.upload(queue, to, from, bytes) }
        })
    }

    unsafe fn download(&self, to: *mut u8, from: u64, bytes: usize, stream: Stream) -> Result<()> {
        self.streams.enqueue(stream, |queue| {
            // SAFETY: the caller guarantees that `to` is valid until the stream has completed the copy.
            unsafe { self.space.download(queue, to, from, bytes) }
        })
    }

    unsafe fn copy(&self, to: u64, from: u64, bytes: usize, stream: Stream) -> Result<()> {
        self.streams.enqueue(stream, |queue| self.space.copy(queue, to, from, bytes))
    }

    /// Enqueues a copy for each row: OpenCL copies rectangles of buffers, but not of shared virtual memory.
    unsafe fn copy_2d(
        &self,
        to: PitchedPtr,
        from: PitchedPtr,
        row_bytes: usize,
        rows: usize,
        stream: Stream,
    ) -> Result<()> {
        (0..rows).try_for_each(|row| {
            let at = |rows: PitchedPtr| rows.start + (row * rows.pitch_bytes) as u64;
            // SAFETY: the caller guarantees it for each row.
            unsafe { self.copy(at(to), at(from), row_bytes, stream) }
        })
    }

    unsafe fn fill(&self, to: u64, pattern: Pattern, bytes: usize, stream: Stream) -> Result<()> {
        self.streams.enqueue(stream, |queue| self.space.fill(queue, to, pattern.as_bytes(), bytes))
    }

    fn stream_mem_ops(&self) -> Option<&dyn StreamMemOps> {
        None
    }

    fn host_registration(&self) -> Option<&dyn HostRegistration> {
        None
    }

    /// An OpenCL context does not share memory or events with another.
    fn contexts(&self) -> Option<&dyn Contexts> {
        None
    }

    fn timing(&self) -> Option<&dyn Timing> {
        Some(self)
    }

    fn foreign_streams(&self) -> Option<&dyn ForeignStreams> {
        None
    }

    fn peer_copies(&self) -> Option<&dyn PeerCopies> {
        None
    }
}

impl DeviceMemory for Context {
    fn total_bytes(&self) -> Result<u64> {
        Ok(self.device.info.memory_bytes)
    }

    fn alloc(&self, bytes: u64) -> Result<u64> {
        self.space.alloc(bytes)
    }

    unsafe fn free(&self, address: u64) -> Result<()> {
        self.space.free(address)
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory> {
        None
    }

    fn sharing(&self) -> Option<&dyn Sharing> {
        None
    }
}

impl Timing for Context {
    fn create_timed_event(&self) -> Result<Event> {
        Ok(self.streams.create_timed_event())
    }

    unsafe fn elapsed_ms(&self, from: Event, to: Event) -> Result<f64> {
        let passed_ns = |event| {
            let point = self.streams.timed_event(event)?;
            Ok::<_, CallError>(event::times_ns(point.event())?.1)
        };
        let (from_ns, to_ns) = (passed_ns(from)?, passed_ns(to)?);
        Ok((to_ns as f64 - from_ns as f64) / 1e6)
    }
}

/// Frees pinned host memory, by unmapping it.
fn unmap(service: Queue, buffer: Memory, start: usize) -> Result<()> {
    memory::unmap(service, buffer, start)?;
    queue::flush(service)?;
    memory::release(buffer)
}
