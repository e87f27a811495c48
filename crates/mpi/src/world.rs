//! The ranks, as a program has them: messages between blocks and parts of blocks, in the order of their uses.

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

/// Any rank, or any tag, to receive from.
pub const ANY: Option<i32> = None;

/// The longest message that goes with one call of the library, where it takes device memory. Libraries hand such on before the
/// receiver asks.
const SHORT_BYTES_MAX: usize = 4096;

/// How often a caller asks before it lets others have the processor, and looks who has died.
const ROUNDS: u32 = 64;

/// All ranks of a run, and this one's device. There is one in a process; dropped, it waits for its transfers, and ends MPI.
#[derive(Debug)]
pub struct World {
    /// Before the rest: its thread uses that.
    pub(crate) progress: ProgressThread,
    pub(crate) inner: Arc<WorldInner>,
}

impl World {
    /// Begins MPI, with all ranks, and decides with them which path transfers take.
    ///
    /// # Errors
    /// [`Error::AlreadyInitialized`] where MPI was begun before, [`Error::InsufficientThreadSupport`] where the library does not let threads take
    /// turns, [`Error::Disagreement`] where ranks were told different things.
    pub fn new(device: &Device) -> Result<Self> {
        let settings = Settings::from_environment()?;
        let library = Library::initialise(settings.threads)?;
        let duplicate = || library.duplicate(raw::world());
        let comms =
            Comms { data: duplicate()?, chunks: duplicate()?, answers: duplicate()?, collectives: duplicate()? };
        let node_id = node_id();
        let watch = exchange_process_ids(&library, comms, &settings, node_id)?;
        let mut choice = path::choose(&library, comms.collectives, &settings, device.is_host_visible()?, device)?;
        let copies = Arc::new(Stager::new(device)?);
        let (_, size) = library.rank_and_size(comms.data)?;
        let node_id = (!settings.is_sharing_disabled).then_some(node_id);
        let meet = |ground, slots| NodePeers::exchange(&library, comms.answers, device, node_id, (ground, slots));
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

    /// How many ranks there are.
    pub fn size(&self) -> i32 {
        self.inner.size
    }

    pub fn device(&self) -> &Device {
        self.inner.stager.device()
    }

    /// Which path transfers take, and why.
    pub fn path_choice(&self) -> &PathChoice {
        &self.inner.path_choice
    }

    /// How threads call the library.
    pub fn threads(&self) -> Threads {
        self.inner.library.threads()
    }

    /// Sends a block, or a part of one. Returns when it may be changed, as `MPI_Send` does: this waits for the work that writes it,
    /// and may wait for the receiver.
    ///
    /// # Errors
    /// [`Error::Transfer`] and [`Error::RankDied`], with rank, tag and bytes; the block is as it was.
    #[inline]
    pub fn send<T: Pod>(&self, stream: &Stream, from: &impl Source<T>, to: i32, tag: i32) -> Result<()> {
        let ranks = &*self.inner;
        ranks.check_rank(to)?;
        ranks.check_tag(tag)?;
        // The block is borrowed until this returns: nothing disturbs one that is at rest.
        let Some(range) = stream.at_rest(from)? else {
            return self.finish(Send::new(ranks.data, to, tag, Some(stream.lend(from)?))).map(drop);
        };
        let memory = Span::from_range(range);
        let is_short = memory.bytes <= SHORT_BYTES_MAX && ranks.library.threads() == Threads::Multiple;
        let is_alone = || self.progress.has_none_unposted(MatchOrder::Send { to }) && !ranks.liveness.any_died();
        let work = Send::for_span(ranks.data, to, tag, memory);
        if ranks.is_direct() && is_short && is_alone() {
            // SAFETY: the library takes device memory here, which is at rest.
            let sent = unsafe { ranks.library.send_eager(ranks.data, memory, to, tag) };
            return sent.map_err(|code| transfer_error(work.describe(), code));
        }
        self.finish(work).map(drop)
    }

    /// Sends a block, or a part of one, without waiting: the message goes when the work that writes the block has passed, and work
    /// that writes it later waits on the device until it is gone.
    ///
    /// # Errors
    /// For a rank or a tag that there is not. What goes wrong later, the request tells.
    pub fn isend<T: Pod>(&self, stream: &Stream, from: &impl Source<T>, to: i32, tag: i32) -> Result<Request<()>> {
        self.inner.check_rank(to)?;
        self.inner.check_tag(tag)?;
        let access = stream.lend(from)?;
        Ok(self.submit(Send::new(self.inner.data, to, tag, Some(access))))
    }

    /// Sends a message without bytes.
    pub fn signal(&self, to: i32, tag: i32) -> Result<()> {
        self.inner.check_rank(to)?;
        self.inner.check_tag(tag)?;
        self.finish(Send::new(self.inner.data, to, tag, None)).map(drop)
    }

    /// Receives into a block, or a part of one, from a rank or [`ANY`], with a tag or [`ANY`]. Returns when the message is there. It
    /// may be shorter than the block, whose other elements stay as they are.
    ///
    /// # Errors
    /// [`Error::Truncated`] for a message that is longer than the block, [`Error::Transfer`] and [`Error::RankDied`]; with rank, tag
    /// and bytes. The block is as it was, or refused to readers until it is written whole.
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
            // The block is borrowed until this returns: nothing disturbs one that is at rest.
            let received = self.finish(Receive::for_span(self.inner.data, from, tag, Span::from_range(range)));
            if received.is_err() {
                // Part of it may have come.
                stream.lend_mut(into)?.failed();
            }
            return received;
        }
        let work = self.start_receive(stream, into, from, tag)?;
        self.finish(work)
    }

    /// As [`recv`](Self::recv), without waiting: work that uses the block later waits on the device until the message is there.
    ///
    /// # Errors
    /// For a rank or a tag that there is not. What goes wrong later, the request tells.
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

    /// Sends one block and receives into another at the same time, and waits for both.
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

    /// What failed in transfers whose requests were dropped, since this was asked last.
    pub fn drop_errors(&self) -> Vec<Error> {
        self.inner.take_drop_errors()
    }

    /// Waits for all ranks to come here. Transfers that are under way go on.
    pub fn barrier(&self) -> Result<()> {
        self.finish(crate::collective::Barrier::new()).map(drop)
    }

    /// Waits for the transfers that are under way, and ends MPI with all ranks.
    ///
    /// # Errors
    /// What the library says to that.
    pub fn close(mut self) -> Result<()> {
        self.shutdown()
    }

    fn shutdown(&mut self) -> Result<()> {
        if !self.progress.close() {
            return Ok(());
        }
        self.inner.stager.synchronize()?;
        // With a rank that has died, the library would wait for it for ever.
        let ended = if self.inner.liveness.any_died() { Ok(()) } else { self.inner.library.finalise() };
        // Libraries remember memory that they were given: it is there until they have ended, if they do.
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

    /// Begins work in this thread, unless the engine has some that comes before it, and leaves the rest to the engine: a short message is
    /// often gone at once, and nobody is woken for it.
    fn submit<R>(&self, mut work: impl Operation + 'static) -> Request<R> {
        let is_clear = self.progress.has_none_unposted(work.order());
        let ended = if is_clear { poll(&mut work, &self.inner, self.inner.liveness.any_died()) } else { None };
        match ended {
            Some(ended) => Request::completed(ended, self.inner.clone()),
            None => self.progress.submit(Box::new(work)),
        }
    }

    /// Goes on with work until it is over, in this thread unless the engine has some that comes before it.
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

/// What a rank says of itself to all: its process, whose ids those are, and how it cuts messages.
const HELLO_BYTES: usize = 32;

/// A number for this machine and its processes: those of another, or in a container, have ids of their own.
fn node_id() -> u64 {
    let node_id = fs::metadata("/proc/self/ns/pid").map_or(0, |node_id| node_id.ino());
    let machine = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    machine.bytes().fold(node_id, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)))
}

/// Gets to know the other ranks.
fn exchange_process_ids(library: &Library, comms: Comms, settings: &Settings, node_id: u64) -> Result<Liveness> {
    let (rank, _) = library.rank_and_size(comms.data)?;
    let mut hello = [0; HELLO_BYTES];
    hello[..8].copy_from_slice(&node_id.to_le_bytes());
    hello[8..16].copy_from_slice(&(settings.chunk_bytes as u64).to_le_bytes());
    hello[16..24].copy_from_slice(&(settings.host_slots.bytes as u64).to_le_bytes());
    hello[24..28].copy_from_slice(&std::process::id().to_le_bytes());
    let all = library.allgather(comms.data, &hello)?;
    if all.iter().any(|other| other[8..24] != hello[8..24]) {
        return Err(Error::Disagreement { what: "FREEHOLD_MPI_CHUNK is not the same at all" });
    }
    let own = |(index, other): (usize, &[u8; HELLO_BYTES])| {
        let is_watched = index as i32 != rank && other[..8] == hello[..8];
        is_watched.then(|| u32::from_le_bytes([other[24], other[25], other[26], other[27]]))
    };
    Ok(Liveness::new(all.iter().enumerate().map(own)))
}
