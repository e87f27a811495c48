//! Windows: blocks that other ranks read and write with one-sided transfers. The progress thread of the rank that owns
//! the block serves them, so its program takes no part during an epoch.

mod service;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use freehold::{Block, Pod, Source, Stream, Target, ViewMut};

use self::service::{RequestCount, RequestSender, UNKNOWN, WindowRequest, WindowServer};
use crate::error::{Error, Result};
use crate::raw::Comm;
use crate::request::Request;
use crate::transfer::Operation;
use crate::transfer::receive::Receive;
use crate::transfer::send::Send;
use crate::world::World;
use crate::world_inner::MessageId;

/// A block of each rank that the others can read and write during an [`Epoch`]. Between epochs its owner uses it as
/// usual.
#[derive(Debug)]
pub struct Window<'w, T> {
    world: &'w World,
    block: Block<T>,
    /// For requests, and for the data.
    requests: Comm,
    data: Comm,
    /// The number of elements in each rank's block.
    lens: Vec<usize>,
}

/// The time in which ranks read and write each other's windows. It ends for all ranks together.
#[derive(Debug)]
#[must_use = "a dropped epoch ends; `World::drop_errors` reports its failure"]
pub struct Epoch<'a, 'w, T> {
    window: &'a mut Window<'w, T>,
    server: Option<Request<()>>,
    expected: Arc<AtomicU64>,
    /// How many requests went to each rank.
    counts: Vec<AtomicU64>,
    in_flight: Mutex<Vec<Request<()>>>,
}

impl World {
    /// Makes a window of a block at each rank; the lengths may differ. All ranks call this.
    ///
    /// # Errors
    /// [`Error::Library`].
    pub fn window<T: Pod>(&self, block: Block<T>) -> Result<Window<'_, T>> {
        let library = &self.inner.library;
        let (requests, data) = (library.duplicate(self.inner.data)?, library.duplicate(self.inner.data)?);
        let lens = library.allgather(requests, &(block.len() as u64).to_le_bytes())?;
        let lens = lens.into_iter().map(|len| u64::from_le_bytes(len) as usize).collect();
        Ok(Window { world: self, block, requests, data, lens })
    }
}

impl<'w, T: Pod> Window<'w, T> {
    pub fn block(&self) -> &Block<T> {
        &self.block
    }

    /// Returns the block for writing between epochs. Its length stays fixed, because the other ranks rely on it.
    pub fn view_mut(&mut self) -> ViewMut<'_, T> {
        self.block.view_mut(..).expect("the full range is within the block")
    }

    /// Opens the window to the other ranks, after earlier work on the block. All ranks call this; it does not wait.
    ///
    /// # Errors
    /// As for [`Stream::lend_mut`].
    pub fn open(&mut self, stream: &Stream) -> Result<Epoch<'_, 'w, T>> {
        let access = stream.lend_mut(&mut self.block)?;
        let expected = Arc::new(AtomicU64::new(UNKNOWN));
        let serving = WindowServer::new(self.requests, self.data, access, expected.clone());
        let serving = Some(self.world.progress.submit(Box::new(serving)));
        let counts = self.lens.iter().map(|_| AtomicU64::new(0)).collect();
        Ok(Epoch { window: self, server: serving, expected, counts, in_flight: Mutex::default() })
    }

    /// Closes the window and returns the block. All ranks call this.
    ///
    /// # Errors
    /// [`Error::Library`].
    pub fn close(self) -> Result<Block<T>> {
        let Self { world, block, requests, data, .. } = self;
        world.inner.library.free(requests)?;
        world.inner.library.free(data)?;
        Ok(block)
    }
}

impl<T: Pod> Epoch<'_, '_, T> {
    /// Writes a block or a view of one to a rank's window, from element `start` on. The data has arrived when the epoch
    /// has ended; later work that changes `from` waits on the device until it has been read.
    ///
    /// # Errors
    /// [`Error::OutOfWindow`]. Closing the epoch returns later errors.
    pub fn put(&self, stream: &Stream, from: &impl Source<T>, rank: i32, start: usize) -> Result<()> {
        let (asked, number) = self.prepare_request(false, rank, start, from.len())?;
        let access = stream.lend(from)?;
        let data = self.window.data;
        let moving: Box<dyn Operation> = Box::new(Send::new(data, rank, asked.tag, Some(access)));
        self.submit_request(rank, (asked, number), moving);
        Ok(())
    }

    /// Reads from a rank's window, from element `start` on, into a block or a view of one. The data has arrived when
    /// the epoch has ended; later work that uses `into` waits for it on the device.
    ///
    /// # Errors
    /// [`Error::OutOfWindow`]. Closing the epoch returns later errors.
    pub fn get(&self, stream: &Stream, into: &mut impl Target<T>, rank: i32, start: usize) -> Result<()> {
        let (asked, number) = self.prepare_request(true, rank, start, into.len())?;
        let access = stream.lend_mut(into)?;
        let data = self.window.data;
        let moving: Box<dyn Operation> = Box::new(Receive::new(data, Some(rank), Some(asked.tag), access));
        self.submit_request(rank, (asked, number), moving);
        Ok(())
    }

    /// Ends the epoch together with all ranks, and waits: all puts and gets are then complete.
    ///
    /// # Errors
    /// The first error at this rank. Reads of memory that was not written fail until it is completely overwritten.
    pub fn close(mut self) -> Result<()> {
        self.finish()
    }

    fn prepare_request(
        &self,
        is_get: bool,
        rank: i32,
        start: usize,
        elements: usize,
    ) -> Result<(WindowRequest, MessageId)> {
        let ranks = &self.window.world.inner;
        ranks.check_rank(rank)?;
        let len = self.window.lens[rank as usize];
        if start.checked_add(elements).is_none_or(|end| end > len) {
            return Err(Error::OutOfWindow { start, elements, rank, len });
        }
        // Puts and gets use separate tags, because each rank numbers its own messages.
        let number = ranks.new_message_id();
        let tag = ranks.tag_of(number.value() << 1 | u32::from(is_get));
        let bytes = size_of::<T>();
        Ok((WindowRequest { is_get, start: (start * bytes) as u64, bytes: (elements * bytes) as u64, tag }, number))
    }

    fn submit_request(&self, rank: i32, asked: (WindowRequest, MessageId), moving: Box<dyn Operation>) {
        let asking = RequestSender::new(self.window.requests, rank, asked, moving);
        self.counts[rank as usize].fetch_add(1, Ordering::Relaxed);
        let request = self.window.world.progress.submit(Box::new(asking));
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner).push(request);
    }
}

impl<T> Epoch<'_, '_, T> {
    fn finish(&mut self) -> Result<()> {
        let Some(serving) = self.server.take() else { return Ok(()) };
        let world = self.window.world;
        let under_way = std::mem::take(self.in_flight.get_mut().unwrap_or_else(PoisonError::into_inner));
        let mut moved = Ok(());
        for request in under_way {
            moved = moved.and(request.wait());
        }
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let counted = world.finish(RequestCount::new(self.window.data, counts, self.expected.clone()));
        if counted.is_err() {
            // Another rank has died: nothing more is served.
            self.expected.store(0, Ordering::Release);
        }
        let served = serving.wait();
        let met = counted.and_then(|_| world.barrier());
        moved.and(served).and(met)
    }
}

impl<T> Drop for Epoch<'_, '_, T> {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            self.window.world.inner.record_drop_error(error);
        }
    }
}
