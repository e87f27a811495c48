//! Copies between memory that was lent and pinned buffers, in streams of the crate's own, and the buffers. Knows nothing of MPI.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use freehold::{Device, Event, Stream};
use freehold_driver::CallError;

use crate::error::Result;
use crate::raw::Memory;

/// A device, the streams in which transfers copy, and pinned buffers.
#[derive(Debug)]
pub(crate) struct Copies {
    device: Device,
    outward: Stream,
    inward: Stream,
    /// Buffers that nobody has, of both lengths.
    buffers: Mutex<Vec<Idle>>,
}

/// A buffer in the list.
#[derive(Debug)]
struct Idle {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: `start` is not `Send` as a pointer; the memory belongs to this value alone.
unsafe impl Send for Idle {}

/// Pinned memory of one owner. Dropped, it is used again.
#[derive(Debug)]
pub(crate) struct Buffer {
    start: NonNull<u8>,
    bytes: usize,
    copies: Arc<Copies>,
}

// SAFETY: as for `Idle`.
unsafe impl Send for Buffer {}

/// One piece of a copy: where it lies on the device, where in a buffer, and how long it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    pub(crate) device: u64,
    pub(crate) at: usize,
    pub(crate) bytes: usize,
}

/// Where a piece of a message lies between two processes: in memory that both have.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// Of the device.
    Device(u64),
    /// Of the host, registered with the device.
    Host(*mut u8),
}

impl Copies {
    pub(crate) fn new(device: &Device) -> Result<Self> {
        let (outward, inward) = (device.stream()?, device.stream()?);
        Ok(Self { device: device.clone(), outward, inward, buffers: Mutex::default() })
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// A buffer of exactly so many bytes.
    pub(crate) fn buffer(self: &Arc<Self>, bytes: usize) -> Result<Buffer> {
        let mut buffers = self.buffers();
        let fitting = buffers.iter().rposition(|buffer| buffer.bytes == bytes);
        let idle = fitting.map(|index| buffers.swap_remove(index));
        drop(buffers);
        let start = match idle {
            Some(idle) => idle.start,
            None => self.device.backend().alloc_host(bytes).map_err(freehold::Error::from)?,
        };
        Ok(Buffer { start, bytes, copies: self.clone() })
    }

    /// Copies from the device to a buffer. The point after which the bytes are there.
    ///
    /// # Safety
    /// The device's memory is lent for reading, and all before that has passed. Both stay until the point has passed.
    pub(crate) unsafe fn to_host(&self, buffer: &mut Buffer, moves: &[Move]) -> Result<Event> {
        let backend = self.device.backend();
        self.put(&self.outward, || {
            moves.iter().try_for_each(|&Move { device, at, bytes }| {
                let to = buffer.at(at, bytes);
                // SAFETY: `to` is pinned memory of the buffer, so long at least; the caller keeps both.
                unsafe { backend.download(to, device, bytes, self.outward.raw()) }
            })
        })
    }

    /// Copies from a buffer to the device. The point after which the bytes are there.
    ///
    /// # Safety
    /// The device's memory is lent for writing, and all before that has passed. Both stay until the point has passed.
    pub(crate) unsafe fn to_device(&self, buffer: &Buffer, moves: &[Move]) -> Result<Event> {
        let backend = self.device.backend();
        self.put(&self.inward, || {
            moves.iter().try_for_each(|&Move { device, at, bytes }| {
                let from = buffer.at(at, bytes).cast_const();
                // SAFETY: `from` is pinned memory of the buffer, so long at least; the caller keeps both.
                unsafe { backend.upload_beside(device, from, bytes, self.inward.raw()) }
            })
        })
    }

    /// Copies within the device. The point after which the bytes are there.
    ///
    /// # Safety
    /// Both memories are lent, or of the crate's own, and all before that has passed. Both stay until the point has passed.
    pub(crate) unsafe fn within(&self, from: u64, to: u64, bytes: usize) -> Result<Event> {
        self.put(&self.inward, || {
            // SAFETY: both have so many bytes, which are lent until the copy is waited for; the stream is this value's own.
            unsafe { self.device.backend().copy(to, from, bytes, self.inward.raw()) }
        })
    }

    /// Copies from the device to a place. The point after which the bytes are there.
    ///
    /// # Safety
    /// The device's memory is lent for reading, and all before that has passed. The place has so many bytes, which nobody else uses. Both
    /// stay until the point has passed.
    pub(crate) unsafe fn put_into(&self, from: u64, place: Place, bytes: usize) -> Result<Event> {
        match place {
            // SAFETY: as the caller says.
            Place::Device(to) => unsafe { self.within(from, to, bytes) },
            Place::Host(to) => self.put(&self.outward, || {
                // SAFETY: the caller vouches for both, until the point has passed.
                unsafe { self.device.backend().download(to, from, bytes, self.outward.raw()) }
            }),
        }
    }

    /// Copies from a place to the device. The point after which the bytes are there.
    ///
    /// # Safety
    /// The device's memory is lent for writing, and all before that has passed. The place has so many bytes, which nobody writes. Both
    /// stay until the point has passed.
    pub(crate) unsafe fn take_from(&self, place: Place, to: u64, bytes: usize) -> Result<Event> {
        match place {
            // SAFETY: as the caller says.
            Place::Device(from) => unsafe { self.within(from, to, bytes) },
            Place::Host(from) => self.put(&self.inward, || {
                // SAFETY: the caller vouches for both, until the point has passed.
                unsafe { self.device.backend().upload_beside(to, from, bytes, self.inward.raw()) }
            }),
        }
    }

    fn put(&self, stream: &Stream, work: impl FnOnce() -> std::result::Result<(), CallError>) -> Result<Event> {
        let put = work();
        // Also where only some of the copies were put in.
        stream.foreign_work();
        let event = put.map_err(freehold::Error::from).and_then(|()| stream.event());
        // What was put in before a failure is over before its memory is used again.
        Ok(event.or_else(|error| stream.synchronize().and(Err(error)))?)
    }

    /// Asks the driver how it is.
    pub(crate) fn ask(&self) -> Result<()> {
        self.inward.is_idle()?;
        Ok(())
    }

    /// Waits for all copies. For who gives memory back after a failure.
    pub(crate) fn settle(&self) -> Result<()> {
        self.outward.synchronize()?;
        Ok(self.inward.synchronize()?)
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

    fn buffers(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Buffer {
    /// The first bytes, for a transfer.
    pub(crate) fn memory(&self, bytes: usize) -> Memory {
        let whole = Memory { address: self.start.as_ptr().expose_provenance() as u64, bytes: self.bytes };
        whole.part(0, bytes)
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
    pub(crate) fn abandon(self) {
        std::mem::forget(self);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.copies.buffers().push(Idle { start: self.start, bytes: self.bytes });
    }
}
