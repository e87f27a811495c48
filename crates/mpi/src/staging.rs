//! Copies between memory that was lent and pinned buffers, in streams of the crate's own, and the buffers. Knows nothing of MPI.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use freehold::{Device, Event, Stream};
use freehold_driver::CallError;

use crate::error::Result;
use crate::raw::Span;

/// A device, the streams in which transfers copy, and pinned buffers.
#[derive(Debug)]
pub(crate) struct Stager {
    device: Device,
    to_host_stream: Stream,
    to_device_stream: Stream,
    /// Buffers that nobody has, of both lengths.
    buffers: Mutex<Vec<IdleBuffer>>,
}

/// A buffer in the list.
#[derive(Debug)]
struct IdleBuffer {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: `start` is not `Send` as a pointer; the memory belongs to this value alone.
unsafe impl Send for IdleBuffer {}

/// Pinned memory of one owner. Dropped, it is used again.
#[derive(Debug)]
pub(crate) struct StagingBuffer {
    start: NonNull<u8>,
    bytes: usize,
    copies: Arc<Stager>,
}

// SAFETY: as for `Idle`.
unsafe impl Send for StagingBuffer {}

/// One piece of a copy: where it lies on the device, where in a buffer, and how long it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopySegment {
    pub(crate) device: u64,
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}

/// Where a piece of a message lies between two processes: in memory that both have.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SharedAddress {
    /// Of the device.
    Device(u64),
    /// Of the host, registered with the device.
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

    /// A buffer of exactly so many bytes.
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

    /// Copies from the device to a buffer. The point after which the bytes are there.
    ///
    /// # Safety
    /// The device's memory is lent for reading, and all before that has passed. Both stay until the point has passed.
    pub(crate) unsafe fn to_host(&self, buffer: &mut StagingBuffer, moves: &[CopySegment]) -> Result<Event> {
        let backend = self.device.backend();
        self.enqueue(&self.to_host_stream, || {
            moves.iter().try_for_each(|&CopySegment { device, offset: at, bytes }| {
                let to = buffer.at(at, bytes);
                // SAFETY: `to` is pinned memory of the buffer, so long at least; the caller keeps both.
                unsafe { backend.download(to, device, bytes, self.to_host_stream.raw()) }
            })
        })
    }

    /// Copies from a buffer to the device. The point after which the bytes are there.
    ///
    /// # Safety
    /// The device's memory is lent for writing, and all before that has passed. Both stay until the point has passed.
    pub(crate) unsafe fn to_device(&self, buffer: &StagingBuffer, moves: &[CopySegment]) -> Result<Event> {
        let backend = self.device.backend();
        self.enqueue(&self.to_device_stream, || {
            moves.iter().try_for_each(|&CopySegment { device, offset: at, bytes }| {
                let from = buffer.at(at, bytes).cast_const();
                // SAFETY: `from` is pinned memory of the buffer, so long at least; the caller keeps both.
                unsafe { backend.upload_by_copy_engine(device, from, bytes, self.to_device_stream.raw()) }
            })
        })
    }

    /// Copies within the device. The point after which the bytes are there.
    ///
    /// # Safety
    /// Both memories are lent, or of the crate's own, and all before that has passed. Both stay until the point has passed.
    pub(crate) unsafe fn device_to_device(&self, from: u64, to: u64, bytes: usize) -> Result<Event> {
        self.enqueue(&self.to_device_stream, || {
            // SAFETY: both have so many bytes, which are lent until the copy is waited for; the stream is this value's own.
            unsafe { self.device.backend().copy(to, from, bytes, self.to_device_stream.raw()) }
        })
    }

    /// Copies from the device to a place. The point after which the bytes are there.
    ///
    /// # Safety
    /// The device's memory is lent for reading, and all before that has passed. The place has so many bytes, which nobody else uses. Both
    /// stay until the point has passed.
    pub(crate) unsafe fn copy_out(&self, from: u64, place: SharedAddress, bytes: usize) -> Result<Event> {
        match place {
            // SAFETY: as the caller says.
            SharedAddress::Device(to) => unsafe { self.device_to_device(from, to, bytes) },
            SharedAddress::Host(to) => self.enqueue(&self.to_host_stream, || {
                // SAFETY: the caller vouches for both, until the point has passed.
                unsafe { self.device.backend().download(to, from, bytes, self.to_host_stream.raw()) }
            }),
        }
    }

    /// Copies from a place to the device. The point after which the bytes are there.
    ///
    /// # Safety
    /// The device's memory is lent for writing, and all before that has passed. The place has so many bytes, which nobody writes. Both
    /// stay until the point has passed.
    pub(crate) unsafe fn copy_in(&self, place: SharedAddress, to: u64, bytes: usize) -> Result<Event> {
        match place {
            // SAFETY: as the caller says.
            SharedAddress::Device(from) => unsafe { self.device_to_device(from, to, bytes) },
            SharedAddress::Host(from) => self.enqueue(&self.to_device_stream, || {
                // SAFETY: the caller vouches for both, until the point has passed.
                unsafe { self.device.backend().upload_by_copy_engine(to, from, bytes, self.to_device_stream.raw()) }
            }),
        }
    }

    fn enqueue(&self, stream: &Stream, work: impl FnOnce() -> std::result::Result<(), CallError>) -> Result<Event> {
        let put = work();
        // Also where only some of the copies were put in.
        stream.foreign_work();
        let event = put.map_err(freehold::Error::from).and_then(|()| stream.event());
        // What was put in before a failure is over before its memory is used again.
        Ok(event.or_else(|error| stream.synchronize().and(Err(error)))?)
    }

    /// Asks the driver how it is.
    pub(crate) fn poll_errors(&self) -> Result<()> {
        self.to_device_stream.is_idle()?;
        Ok(())
    }

    /// Waits for all copies. For who gives memory back after a failure.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.to_host_stream.synchronize()?;
        Ok(self.to_device_stream.synchronize()?)
    }

    /// Frees the buffers that nobody has. The driver waits for all work of the context.
    pub(crate) fn free_buffers(&self) -> Result<()> {
        let buffers = std::mem::take(&mut *self.buffers());
        for buffer in buffers {
            // SAFETY: the buffer is in nobody's hands, and what copied from it or to it has passed.
            unsafe { self.device.backend().free_host(buffer.start) }.map_err(freehold::Error::from)?;
        }
        Ok(())
    }

    fn buffers(&self) -> MutexGuard<'_, Vec<IdleBuffer>> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StagingBuffer {
    /// The first bytes, for a transfer.
    pub(crate) fn memory(&self, bytes: usize) -> Span {
        let whole = Span { address: self.start.as_ptr().expose_provenance() as u64, bytes: self.bytes };
        whole.slice(0, bytes)
    }

    fn at(&self, at: usize, bytes: usize) -> *mut u8 {
        assert!(at + bytes <= self.bytes, "a copy lies within its buffer");
        // SAFETY: the place lies within the buffer, as was just seen.
        unsafe { self.start.as_ptr().add(at) }
    }

    /// Writes the first bytes. No transfer or copy has the buffer: it is borrowed mutably.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let to = self.at(0, bytes.len());
        // SAFETY: the buffer has so many bytes, is this value's alone, and is no part of `bytes`.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// The first bytes, as a transfer left them.
    pub(crate) fn read<const N: usize>(&self) -> [u8; N] {
        let from = self.at(0, N);
        // SAFETY: the buffer has so many bytes, which nothing writes any more: its transfer is complete.
        unsafe { from.cast::<[u8; N]>().read() }
    }

    /// Lets go of memory that the library may still use, for good.
    pub(crate) fn leak(self) {
        std::mem::forget(self);
    }
}

impl Drop for StagingBuffer {
    fn drop(&mut self) {
        self.copies.buffers().push(IdleBuffer { start: self.start, bytes: self.bytes });
    }
}
