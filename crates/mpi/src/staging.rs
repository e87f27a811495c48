//! Pinned staging buffers, and copies between them and device memory, in streams of their own. Knows nothing about MPI.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use freehold::{Device, Event, Stream};
use freehold_driver::CallError;

use crate::error::Result;
use crate::raw::Span;

/// A device, the streams of its staging copies, and pinned buffers.
#[derive(Debug)]
pub(crate) struct Stager {
    device: Device,
    to_host_stream: Stream,
    to_device_stream: Stream,
    /// Unused buffers, of both lengths.
    buffers: Mutex<Vec<IdleBuffer>>,
}

/// An unused buffer.
#[derive(Debug)]
struct IdleBuffer {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: `start` is not `Send` because it is a pointer; the memory belongs to this value alone.
unsafe impl Send for IdleBuffer {}

/// A pinned buffer, reused after a drop.
#[derive(Debug)]
pub(crate) struct StagingBuffer {
    start: NonNull<u8>,
    bytes: usize,
    copies: Arc<Stager>,
}

// SAFETY: as for `IdleBuffer`.
unsafe impl Send for StagingBuffer {}

/// One part of a copy: its device address, its offset in the buffer, and its length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopySegment {
    pub(crate) device: u64,
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}

/// Memory that two processes have mapped.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SharedAddress {
    /// Device memory.
    Device(u64),
    /// Host memory, registered with the device.
    Host(*mut u8),
}

impl Stager {
    pub(crate) fn new(device: &Device) -> Result<Self> {
        let (outward, inward) = (device.new_stream()?, device.new_stream()?);
        Ok(Self {
            device: device.clone(),
            to_host_stream: outward,
            to_device_stream: inward,
            buffers: Mutex::default(),
        })
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Returns a buffer of exactly `bytes` bytes.
    pub(crate) fn buffer(self: &Arc<Self>, bytes: usize) -> Result<StagingBuffer> {
        let mut buffers = self.buffers();
        let fitting = buffers.iter().rposition(|buffer| buffer.bytes == bytes);
        let idle = fitting.map(|index| buffers.swap_remove(index));
        drop(buffers);
        let start = match idle {
            Some(idle) => idle.start,
            None => self.device.backend().alloc_host(bytes).map_err(freehold::Error::from)?,
        };
        Ok(StagingBuffer { start, bytes, copies: self.clone() })
    }

    /// Copies from the device to a buffer. Returns an event that completes when the data has arrived.
    ///
    /// # Safety
    /// The device memory is lent for reading, and earlier work on it is complete. Both memories stay valid until the
    /// event is complete.
    pub(crate) unsafe fn to_host(&self, buffer: &mut StagingBuffer, moves: &[CopySegment]) -> Result<Event> {
        let backend = self.device.backend();
        self.enqueue(&self.to_host_stream, || {
            moves.iter().try_for_each(|&CopySegment { device, offset: at, bytes }| {
                let to = buffer.at(at, bytes);
                // SAFETY: `to` is pinned memory of the buffer, at least `bytes` long; the caller keeps both.
                unsafe { backend.download(to, device, bytes, self.to_host_stream.raw()) }
            })
        })
    }

    /// Copies from a buffer to the device. Returns an event that completes when the data has arrived.
    ///
    /// # Safety
    /// The device memory is lent for writing, and earlier work on it is complete. Both memories stay valid until the
    /// event is complete.
    pub(crate) unsafe fn to_device(&self, buffer: &StagingBuffer, moves: &[CopySegment]) -> Result<Event> {
        let backend = self.device.backend();
        self.enqueue(&self.to_device_stream, || {
            moves.iter().try_for_each(|&CopySegment { device, offset: at, bytes }| {
                let from = buffer.at(at, bytes).cast_const();
                // SAFETY: `from` is pinned memory of the buffer, at least `bytes` long; the caller keeps both.
                unsafe { backend.upload_by_copy_engine(device, from, bytes, self.to_device_stream.raw()) }
            })
        })
    }

    /// Copies within the device. Returns an event that completes when the data has arrived.
    ///
    /// # Safety
    /// Both memories are lent or belong to this crate, and earlier work on them is complete. Both stay valid until the
    /// event is complete.
    pub(crate) unsafe fn device_to_device(&self, from: u64, to: u64, bytes: usize) -> Result<Event> {
        self.enqueue(&self.to_device_stream, || {
            // SAFETY: both are `bytes` long and lent until the copy is waited for; the stream belongs to this value.
            unsafe { self.device.backend().copy(to, from, bytes, self.to_device_stream.raw()) }
        })
    }

    /// Copies from the device to shared memory. Returns an event that completes when the data has arrived.
    ///
    /// # Safety
    /// The device memory is lent for reading, and earlier work on it is complete. `place` has `bytes` bytes, which
    /// nothing else uses. Both stay valid until the event is complete.
    pub(crate) unsafe fn copy_out(&self, from: u64, place: SharedAddress, bytes: usize) -> Result<Event> {
        match place {
            // SAFETY: the caller's guarantees.
            SharedAddress::Device(to) => unsafe { self.device_to_device(from, to, bytes) },
            SharedAddress::Host(to) => self.enqueue(&self.to_host_stream, || {
                // SAFETY: the caller guarantees both memories until the event is complete.
                unsafe { self.device.backend().download(to, from, bytes, self.to_host_stream.raw()) }
            }),
        }
    }

    /// Copies from shared memory to the device. Returns an event that completes when the data has arrived.
    ///
    /// # Safety
    /// The device memory is lent for writing, and earlier work on it is complete. `place` has `bytes` bytes, which
    /// nothing writes. Both stay valid until the event is complete.
    pub(crate) unsafe fn copy_in(&self, place: SharedAddress, to: u64, bytes: usize) -> Result<Event> {
        match place {
            // SAFETY: the caller's guarantees.
            SharedAddress::Device(from) => unsafe { self.device_to_device(from, to, bytes) },
            SharedAddress::Host(from) => self.enqueue(&self.to_device_stream, || {
                // SAFETY: the caller guarantees both memories until the event is complete.
                unsafe { self.device.backend().upload_by_copy_engine(to, from, bytes, self.to_device_stream.raw()) }
            }),
        }
    }

    fn enqueue(&self, stream: &Stream, work: impl FnOnce() -> std::result::Result<(), CallError>) -> Result<Event> {
        let put = work();
        // Also if only some of the copies were enqueued.
        stream.foreign_work();
        let event = put.map_err(freehold::Error::from).and_then(|()| stream.event());
        // Copies enqueued before a failure must end before their memory is reused.
        Ok(event.or_else(|error| stream.synchronize().and(Err(error)))?)
    }

    /// Polls the driver for errors.
    pub(crate) fn poll_errors(&self) -> Result<()> {
        self.to_device_stream.is_idle()?;
        Ok(())
    }

    /// Waits for all copies. Needed before memory is returned after a failure.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.to_host_stream.synchronize()?;
        Ok(self.to_device_stream.synchronize()?)
    }

    /// Frees the unused buffers. The driver waits for all work of the context.
    pub(crate) fn free_buffers(&self) -> Result<()> {
        let buffers = std::mem::take(&mut *self.buffers());
        for buffer in buffers {
            // SAFETY: nothing uses the buffer, and all copies from or to it are complete.
            unsafe { self.device.backend().free_host(buffer.start) }.map_err(freehold::Error::from)?;
        }
        Ok(())
    }

    fn buffers(&self) -> MutexGuard<'_, Vec<IdleBuffer>> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StagingBuffer {
    /// Returns the first bytes, for a transfer.
    pub(crate) fn memory(&self, bytes: usize) -> Span {
        let whole = Span { address: self.start.as_ptr().expose_provenance() as u64, bytes: self.bytes };
        whole.slice(0, bytes)
    }

    fn at(&self, at: usize, bytes: usize) -> *mut u8 {
        assert!(at + bytes <= self.bytes, "a copy lies within its buffer");
        // SAFETY: the offset is within the buffer, as just asserted.
        unsafe { self.start.as_ptr().add(at) }
    }

    /// Writes the first bytes. The mutable borrow shows that no transfer or copy uses the buffer.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let to = self.at(0, bytes.len());
        // SAFETY: the buffer has as many bytes, belongs to this value alone, and does not overlap `bytes`.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Reads the first bytes, as a transfer left them.
    pub(crate) fn read<const N: usize>(&self) -> [u8; N] {
        let from = self.at(0, N);
        // SAFETY: the buffer has `N` bytes, which nothing still writes: its transfer is complete.
        unsafe { from.cast::<[u8; N]>().read() }
    }

    /// Never frees or reuses memory that the library may still use.
    pub(crate) fn leak(self) {
        std::mem::forget(self);
    }
}

impl Drop for StagingBuffer {
    fn drop(&mut self) {
        self.copies.buffers().push(IdleBuffer { start: self.start, bytes: self.bytes });
    }
}
