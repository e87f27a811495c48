//! The ranks of a run, and messages between blocks or views of blocks. Each transfer takes its place in the order of
//! the block's uses.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use freehold::{Device, Pod, Source, Stream, Target};

use crate::error::{Error, Result};
use crate::liveness::Liveness;
use crate::node_peers::{NodePeers, SharedMemoryKind};
use crate::path::{self, PathChoice};
use crate::progress::{PollBackoff, ProgressThread};
use crate::raw::{self, Library, Span, Threads};
use crate::request::Request;
use crate::settings::{Path, Settings};
use crate::staging::Stager;
use crate::transfer::receive::Receive;
use crate::transfer::send::Send;
use crate::transfer::{MatchOrder, Operation, Received, poll, transfer_error};
use crate::world_inner::{Comms, WorldInner};

/// Receives from any rank, or with any tag.
pub const ANY: Option<i32> = None;

/// The longest message sent with a blocking `MPI_Send` of device memory. Libraries send such messages eagerly, without
/// waiting for the receiver.
const SHORT_BYTES_MAX: usize = 4096;

/// How many polls a caller makes before it yields the processor and checks for dead ranks.
const ROUNDS: u32 = 64;

/// All ranks of a run, and this rank's device. A process has at most one. Dropping it waits for its transfers and
/// finalizes MPI.
#[derive(Debug)]
pub struct World {
    /// Declared first, so that its thread stops before the rest is dropped.
    pub(crate) progress: ProgressThread,
    pub(crate) inner: Arc<WorldInner>,
}

impl World {
    /// Initializes MPI together with all ranks, and agrees with them on the path of transfers.
    ///
    /// # Errors
    /// [`Error::AlreadyInitialized`] if MPI is already initialized, [`Error::InsufficientThreadSupport`] if the library
    /// does not let several threads call it, [`Error::Disagreement`] if the settings of the ranks differ.
    pub fn new(device: &Device) -> Result<Self> {
        let settings = Settings::from_environment()?;
        let library = Library::init(settings.threads)?;
        let duplicate = || library.duplicate(raw::world());
        let comms =
            Comms { data: duplicate()?, chunks: duplicate()?, answers: duplicate()?, collectives: duplicate()? };
        let node_id = node_id();
        let watch = exchange_process_ids(&library, comms, &settings, node_id)?;
        let mut choice = path::choose(&library, comms.collectives, &settings, device.is_host_visible()?, device)?;
        let copies = Arc::new(Stager::new(device)?);
        let (_, size) = library.rank_and_size(comms.data)?;
        let node_id = (!settings.is_sharing_disabled).then_some(node_id);
        let meet = |kind, slots| NodePeers::exchange(&library, comms.answers, device, node_id, (kind, slots));
        let (mut here, mut near) = (NodePeers::none(size), NodePeers::none(size));
        if choice.transfers == Path::Shared {
            here = meet(SharedMemoryKind::Device, settings.device_slots)?;
            if !path::any_rank(&library, comms.answers, here.has_any())? {
                choice.transfers = Path::Staged;
            }
        }
        let is_lacking = match choice.transfers {
            Path::Direct => false,
            Path::Shared => path::any_rank(&library, comms.answers, !here.reaches_all())?,
            Path::Staged => true,
        };
        if is_lacking {
            near = meet(SharedMemoryKind::Host, settings.host_slots)?;
        }
        let ranks = Arc::new(WorldInner::new(library, comms, copies, (settings, choice), (watch, (here, near)))?);
        Ok(Self { progress: ProgressThread::start(&ranks)?, inner: ranks })
    }

    pub fn rank(&self) -> i32 {
        self.inner.rank
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> i32 {
        self.inner.size
    }

    pub fn device(&self) -> &Device {
        self.inner.stager.device()
    }

    /// Returns the path of transfers, and the reason for it.
    pub fn path_choice(&self) -> &PathChoice {
        &self.inner.path_choice
    }

    /// Returns how threads call the library.
    pub fn threads(&self) -> Threads {
        self.inner.library.threads()
    }

    /// Sends a block or a view of one. Returns when the block may be changed, as `MPI_Send` does: this waits for the
    /// work that writes the block, and may wait for the receiver.
    ///
    /// # Errors
    /// [`Error::Transfer`] and [`Error::RankDied`], with rank, tag and bytes. The block is unchanged.
    #[inline]
    pub fn send<T: Pod>(&self, stream: &Stream, from: &impl Source<T>, to: i32, tag: i32) -> Result<()> {
        let ranks = &*self.inner;
        ranks.check_rank(to)?;
        ranks.check_tag(tag)?;
        // The block is borrowed until this returns, so no new work can use it.
        let Some(range) = stream.at_rest(from)? else {
            return self.finish(Send::new(ranks.data, to, tag, Some(stream.lend(from)?))).map(drop);
        };
        let memory = Span::from_range(range);
        let is_short = memory.bytes <= SHORT_BYTES_MAX && ranks.library.threads() == Threads::Multiple;
        let is_alone = || self.progress.has_none_unposted(MatchOrder::Send { to }) && !ranks.liveness.any_died();
        let work = Send::for_span(ranks.data, to, tag, memory);
        if ranks.is_direct() && is_short && is_alone() {
            // SAFETY: the library accepts device memory on this path, and no pending work writes the block.
            let sent = unsafe { ranks.library.send_eager(ranks.data, memory, to, tag) };
            return sent.map_err(|code| transfer_error(work.describe(), code));
        }
        self.finish(work).map(drop)
    }

    /// Sends a block or a view of one without waiting. The message is sent when earlier work on the block is complete;
    /// later work that writes the block waits on the device until the message is sent.
    ///
    /// # Errors
    /// Invalid ranks and tags. The request returns later errors.
    pub fn isend<T: Pod>(&self, stream: &Stream, from: &impl Source<T>, to: i32, tag: i32) -> Result<Request<()>> {
        self.inner.check_rank(to)?;
        self.inner.check_tag(tag)?;
        let access = stream.lend(from)?;
        Ok(self.submit(Send::new(self.inner.data, to, tag, Some(access))))
    }

    /// Sends an empty message.
    pub fn signal(&self, to: i32, tag: i32) -> Result<()> {
        self.inner.check_rank(to)?;
        self.inner.check_tag(tag)?;
        self.finish(Send::new(self.inner.data, to, tag, None)).map(drop)
    }

    /// Receives into a block or a view of one, from a rank or [`ANY`], with a tag or [`ANY`]. Returns when the message
    /// has arrived. A message may be shorter than the block; the other elements keep their values.
    ///
    /// # Errors
    /// [`Error::Truncated`] if the message is longer than the block, [`Error::Transfer`] and [`Error::RankDied`], with
    /// rank, tag and bytes. The block is unchanged, or reads of it fail until it is completely overwritten.
    pub fn recv<T: Pod>(
        &self,
        stream: &Stream,
        into: &mut impl Target<T>,
        from: impl Into<Option<i32>>,
        tag: impl Into<Option<i32>>,
    ) -> Result<Received> {
        let (from, tag) = (from.into(), tag.into());
        if self.inner.is_direct()
            && let Some(range) = stream.at_rest_mut(into)?
        {
            self.check_pattern(from, tag)?;
            // The block is borrowed until this returns, so no new work can use it.
            let received = self.finish(Receive::for_span(self.inner.data, from, tag, Span::from_range(range)));
            if received.is_err() {
                // Some of the message may have arrived.
                stream.lend_mut(into)?.failed();
            }
            return received;
        }
        let work = self.start_receive(stream, into, from, tag)?;
        self.finish(work)
    }

    /// Receives like [`recv`](Self::recv), without waiting: later work on the block waits on the device until the
    /// message has arrived.
    ///
    /// # Errors
    /// Invalid ranks and tags. The request returns later errors.
    pub fn irecv<T: Pod>(
        &self,
        stream: &Stream,
        into: &mut impl Target<T>,
        from: impl Into<Option<i32>>,
        tag: impl Into<Option<i32>>,
    ) -> Result<Request<Received>> {
        let work = self.start_receive(stream, into, from.into(), tag.into())?;
        Ok(self.submit(work))
    }

    /// Sends one block while receiving into another, and waits for both.
    ///
    /// # Errors
    /// As for [`send`](Self::send) and [`recv`](Self::recv).
    pub fn sendrecv<T: Pod, U: Pod>(
        &self,
        stream: &Stream,
        (from, to, send_tag): (&impl Source<T>, i32, i32),
        (into, source, receive_tag): (&mut impl Target<U>, Option<i32>, Option<i32>),
    ) -> Result<Received> {
        self.inner.check_rank(to)?;
        self.inner.check_tag(send_tag)?;
        let receipt = self.start_receive(stream, into, source, receive_tag)?;
        let access = stream.lend(from)?;
        let receipt: Request<Received> = self.submit(receipt);
        let sent = self.finish(Send::new(self.inner.data, to, send_tag, Some(access)));
        let received = receipt.wait();
        sent.and(received)
    }

    /// Returns the errors of transfers whose requests were dropped, since the last call.
    pub fn drop_errors(&self) -> Vec<Error> {
        self.inner.take_drop_errors()
    }

    /// Waits until all ranks have called this. Pending transfers continue.
    pub fn barrier(&self) -> Result<()> {
        self.finish(crate::collective::Barrier::new()).map(drop)
    }

    /// Waits for pending transfers, and finalizes MPI together with all ranks.
    ///
    /// # Errors
    /// The error of the library.
    pub fn close(mut self) -> Result<()> {
        self.shutdown()
    }

    fn shutdown(&mut self) -> Result<()> {
        if !self.progress.close() {
            return Ok(());
        }
        self.inner.stager.synchronize()?;
        // The library would wait forever for a rank that has died.
        let ended = if self.inner.liveness.any_died() { Ok(()) } else { self.inner.library.finalize() };
        // Libraries may cache memory that they were given, so it is freed only after they have finalized.
        ended.and(self.inner.stager.free_buffers())
    }

    fn start_receive<T: Pod>(
        &self,
        stream: &Stream,
        into: &mut impl Target<T>,
        from: Option<i32>,
        tag: Option<i32>,
    ) -> Result<Receive> {
        self.check_pattern(from, tag)?;
        let access = stream.lend_mut(into)?;
        Ok(Receive::new(self.inner.data, from, tag, access))
    }

    fn check_pattern(&self, from: Option<i32>, tag: Option<i32>) -> Result<()> {
        from.map_or(Ok(()), |from| self.inner.check_rank(from))?;
        tag.map_or(Ok(()), |tag| self.inner.check_tag(tag))
    }

    /// Starts an operation in this thread, unless the progress thread has one that must be posted first, and leaves the
    /// rest to the progress thread. A short message is often complete at once, and then wakes no thread.
    fn submit<R>(&self, mut work: impl Operation + 'static) -> Request<R> {
        let is_clear = self.progress.has_none_unposted(work.order());
        let ended = if is_clear { poll(&mut work, &self.inner, self.inner.liveness.any_died()) } else { None };
        match ended {
            Some(ended) => Request::completed(ended, self.inner.clone()),
            None => self.progress.submit(Box::new(work)),
        }
    }

    /// Polls an operation until it is complete: in this thread, unless the progress thread has one that must be posted
    /// first.
    pub(crate) fn finish(&self, mut work: impl Operation + 'static) -> Result<Received> {
        if !self.progress.has_none_unposted(work.order()) {
            return self.progress.submit::<Received>(Box::new(work)).wait();
        }
        let (mut backoff, mut rounds) = (None, ROUNDS);
        loop {
            for _ in 0..rounds {
                if let Some(ended) = poll(&mut work, &self.inner, self.inner.liveness.any_died()) {
                    return ended;
                }
            }
            self.inner.liveness.poll();
            let is_long = backoff.get_or_insert_with(PollBackoff::new).back_off(&self.inner);
            rounds = if is_long { 1 } else { ROUNDS };
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Err(error) = self.shutdown() {
            self.inner.record_drop_error(error);
        }
    }
}

/// A rank's first message to all ranks: machine and process namespace, lengths of chunks and slots, process id.
const HELLO_BYTES: usize = 32;

/// Identifies this machine and process namespace: process ids of another machine or container mean other processes.
fn node_id() -> u64 {
    let node_id = fs::metadata("/proc/self/ns/pid").map_or(0, |node_id| node_id.ino());
    let machine = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    machine.bytes().fold(node_id, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)))
}

/// Exchanges process ids with the other ranks.
fn exchange_process_ids(library: &Library, comms: Comms, settings: &Settings, node_id: u64) -> Result<Liveness> {
    let (rank, _) = library.rank_and_size(comms.data)?;
    let mut hello = [0; HELLO_BYTES];
    hello[..8].copy_from_slice(&node_id.to_le_bytes());
    hello[8..16].copy_from_slice(&(settings.chunk_bytes as u64).to_le_bytes());
    hello[16..24].copy_from_slice(&(settings.host_slots.bytes as u64).to_le_bytes());
    hello[24..28].copy_from_slice(&std::process::id().to_le_bytes());
    let all = library.allgather(comms.data, &hello)?;
    if all.iter().any(|other| other[8..24] != hello[8..24]) {
        return Err(Error::Disagreement { what: "FREEHOLD_MPI_CHUNK must have the same value at all ranks" });
    }
    let own = |(index, other): (usize, &[u8; HELLO_BYTES])| {
        let is_watched = index as i32 != rank && other[..8] == hello[..8];
        is_watched.then(|| u32::from_le_bytes([other[24], other[25], other[26], other[27]]))
    };
    Ok(Liveness::new(all.iter().enumerate().map(own)))
}
