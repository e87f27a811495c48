//! Streams: where work is put. What work uses is ordered here, across streams and contexts.

use std::fmt;
use std::sync::{Arc, RwLockReadGuard};

use freehold_driver::{Backend, CallError, PitchedPtr, handle};
use zerocopy::IntoBytes;

use crate::api::block::{Block, Pod, Source, Target};
use crate::api::event::Event;
use crate::base::sync_point::{self, SyncPoint};
use crate::device::context::Context;
use crate::device::deferred::Deferred;
use crate::device::memory_use::MemoryUse;
use crate::device::stream_inner::StreamInner;
use crate::error::{Closed, Error, Result};
use crate::ledger::{ContextId, Fence, StreamId};
use crate::ordering::access_history::Access;
use crate::ordering::transfer_slot::TransferSlot;
use crate::pool::Visibility;
use freehold_driver::Permission;

/// An upload into an idle stream that is longer than this goes without staging.
const DIRECT_BYTES_MIN: usize = 1 << 20;

/// A stream. It is not `Clone`; threads share it by reference. Dropped with work pending, it goes away at once: the work
/// completes, and the memory that it uses stays.
///
/// ```
/// let device = freehold::open()?;
/// let (stream, other) = (device.stream()?, device.stream()?);
/// let mut x = stream.upload(&[1u32; 1000])?;
/// let mut y = other.zeros::<u32>(500)?;
/// other.copy(&x.view(..500)?, &mut y)?; // waits for the upload, on the device
/// stream.fill(&mut x, 0)?; // and this for the copy
/// assert_eq!(other.download(&y)?, [1; 500]);
/// # Ok::<(), freehold::Error>(())
/// ```
pub struct Stream {
    pub(crate) inner: Arc<StreamInner>,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("id", &self.inner.state.id)
            .field("context", &self.inner.context)
            .finish_non_exhaustive()
    }
}

/// Where the last of some rows ends, in elements, unless they overlap or are too many to count.
fn pitch_end(pitch: usize, row: usize, rows: usize) -> Option<usize> {
    let before_last = if rows == 1 { 0 } else { pitch.checked_mul(rows - 1).filter(|_| pitch >= row)? };
    before_last.checked_add(row)
}

impl Stream {
    pub(crate) fn new(context: Context) -> Result<Self> {
        context.inner.check()?;
        context.inner.device.run_deferred()?;
        let shared = context.inner.enter()?;
        let stream_state = context.inner.device.add_stream(&context.inner.state)?;
        drop(shared);
        Ok(Self { inner: Arc::new(StreamInner::new(stream_state, context)) })
    }

    /// The library's number of it, which no other stream of the process ever has.
    pub fn id(&self) -> StreamId {
        self.inner.state.id
    }

    /// The context that it is of.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// The driver's handle, for other people's code: in CUDA's calls it is a `CUstream`. It is a number; naming it in a call is
    /// `unsafe`, and good while the stream is there. What others put in is not known here: see [`Stream::foreign_work`].
    ///
    /// While others capture the stream, [`Error::StreamCaptured`] refuses all work in it, events, words and waits included, because a
    /// graph would repeat it behind the ledger's back; waits for it on the host, because they would spoil the capture; and work in
    /// other streams, a lending or [`Block::release_now`] that has to wait for what was put in before the capture, because it would join the capture.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.stream()?;
    /// let raw = stream.raw(); // for a call of the driver's, while the stream is there
    /// assert_eq!(raw, stream.raw());
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn raw(&self) -> handle::Stream {
        self.inner.context.inner.device.streams.hand_out(&self.inner.state);
        self.inner.state.raw
    }

    /// Says that other people's code put work into the stream by its handle, so that fences come after it.
    pub fn foreign_work(&self) {
        self.inner.state.count_work();
    }

    /// A block of `len` elements, with whatever the memory holds. It is reused memory where there is some, without a call of
    /// the driver.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.stream()?;
    /// let x = stream.alloc::<f32>(1000)?; // holds anything
    /// assert_eq!(x.len(), 1000);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    #[track_caller]
    #[inline]
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<Block<T>> {
        Block::alloc(self, len, None, std::panic::Location::caller())
    }

    /// [`alloc`](Self::alloc) with a name that the ledger knows the block by.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.stream()?;
    /// let x = stream.alloc_tagged::<f32>(1000, "model/weights")?;
    /// assert_eq!(x.owner().and_then(|owner| owner.tag).as_deref(), Some("model/weights"));
    /// # Ok::<(), freehold::Error>(())
    /// ```
    #[track_caller]
    pub fn alloc_tagged<T: Pod>(&self, len: usize, tag: &str) -> Result<Block<T>> {
        Block::alloc(self, len, Some(tag), std::panic::Location::caller())
    }

    /// [`alloc`](Self::alloc) of memory that other processes can have: see [`Block::export`]. It shares no memory that can be
    /// exported with blocks of the other kinds.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.stream()?;
    /// let x = stream.alloc_shareable::<f32>(1000)?;
    /// assert_eq!(x.export()?.bytes, 4000);
    /// assert!(stream.alloc::<f32>(1000)?.export().is_err()); // not of any block
    /// # Ok::<(), freehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`alloc`](Self::alloc), and [`Error::CannotShare`] where the device cannot share memory.
    #[track_caller]
    pub fn alloc_shareable<T: Pod>(&self, len: usize) -> Result<Block<T>> {
        Block::alloc_within(self, len, Visibility::Shareable, None, std::panic::Location::caller())
    }

    /// A block of zeros.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.stream()?;
    /// assert_eq!(stream.download(&stream.zeros::<u16>(3)?)?, [0; 3]);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    #[track_caller]
    pub fn zeros<T: Pod>(&self, len: usize) -> Result<Block<T>> {
        let mut block = Block::alloc(self, len, None, std::panic::Location::caller())?;
        self.fill_bytes(&mut block, 0)?;
        Ok(block)
    }

    /// A block with a copy of `from`, which may be changed when the call has returned.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.stream()?;
    /// let mut values = vec![1.0f32; 1000];
    /// let x = stream.upload(&values)?;
    /// values.fill(2.0); // the block does not change
    /// assert_eq!(stream.download(&x)?, [1.0; 1000]);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    #[track_caller]
    pub fn upload<T: Pod>(&self, from: &[T]) -> Result<Block<T>> {
        let mut block = Block::alloc(self, from.len(), None, std::panic::Location::caller())?;
        self.write(&mut block, from)?;
        Ok(block)
    }

    /// Copies `from` to a block or to a part of one, in the order of the stream. `from` may be changed when the call has
    /// returned.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.stream()?;
    /// let mut x = stream.zeros::<u32>(4)?;
    /// stream.write(&mut x.view_mut(1..3)?, &[7, 8])?;
    /// assert_eq!(stream.download(&x)?, [0, 7, 8, 0]);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn write<T: Pod>(&self, to: &mut impl Target<T>, from: &[T]) -> Result<()> {
        if from.len() != to.len() {
            return Err(Error::LengthsDiffer { from_elements: from.len(), to_elements: to.len() });
        }
        let (device, bytes) = (&self.inner.context.inner.device, from.as_bytes());
        self.inner.context.inner.check()?;
        if bytes.is_empty() {
            return Ok(());
        }
        let was_idle = self.inner.state.is_idle();
        let waits = self.order(&[to.used(Access::Write)])?;
        if was_idle && !waits && bytes.len() >= DIRECT_BYTES_MIN {
            // The driver reads `from` before it returns, unless it is pinned; then the host waits for the copy alone.
            let put = self.put_and_wait("upload", &[to.used(Access::Write)], waits, |backend, raw| {
                // SAFETY: `from` outlives the call, and the wait for the copy that follows it.
                unsafe { backend.upload(to.address(), bytes.as_ptr(), bytes.len(), raw) }
            });
            return put.map(|()| to.used(Access::Write).note_filled());
        }
        let mut buffer = device.take_staging(bytes.len())?;
        let staged = buffer.fill(bytes);
        let (start, length) = (staged.as_ptr(), staged.len());
        let put = self.put_ordered("upload", &[to.used(Access::Write)], |backend, raw| {
            // SAFETY: the buffer stays as it is until the stream has passed the copy, whose fence goes with it below.
            unsafe { backend.upload(to.address(), start, length, raw) }
        });
        device.staging.put(buffer, put.as_ref().ok().copied());
        put.map(|_| to.used(Access::Write).note_filled())
    }

    /// What a block, or a part of one, holds. This waits: for the work before it in this stream, and for what other streams
    /// still write.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.stream()?;
    /// let x = stream.upload(&[1u8, 2, 3])?;
    /// assert_eq!(device.stream()?.download(&x)?, [1, 2, 3]); // any stream: it waits for the upload
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn download<T: Pod>(&self, from: &impl Source<T>) -> Result<Vec<T>> {
        let mut to = vec![T::new_zeroed(); from.len()];
        self.read(from, &mut to)?;
        Ok(to)
    }

    /// [`download`](Self::download) into memory that is there.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.stream()?;
    /// let mut to = [0u8; 2];
    /// stream.read(&stream.upload(&[1u8, 2, 3])?.view(1..)?, &mut to)?;
    /// assert_eq!(to, [2, 3]);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn read<T: Pod>(&self, from: &impl Source<T>, to: &mut [T]) -> Result<()> {
        if from.len() != to.len() {
            return Err(Error::LengthsDiffer { from_elements: from.len(), to_elements: to.len() });
        }
        self.inner.context.inner.check()?;
        if to.is_empty() {
            return Ok(());
        }
        let used = [from.used()];
        let waits = self.order(&used)?;
        let bytes = to.as_mut_bytes();
        self.put_and_wait("download", &used, waits, |backend, raw| {
            // SAFETY: `to` is borrowed until the wait for the copy is over.
            unsafe { backend.download(bytes.as_mut_ptr(), from.address(), bytes.len(), raw) }
        })
    }

    /// Copies from block to block, in the order of the stream.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.stream()?;
    /// let from = stream.upload(&[1u8, 2, 3])?;
    /// let mut to = stream.alloc::<u8>(3)?;
    /// stream.copy(&from, &mut to)?;
    /// assert_eq!(stream.download(&to)?, [1, 2, 3]);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn copy<T: Pod>(&self, from: &impl Source<T>, to: &mut impl Target<T>) -> Result<()> {
        if from.len() != to.len() {
            return Err(Error::LengthsDiffer { from_elements: from.len(), to_elements: to.len() });
        }
        let bytes = from.len() * size_of::<T>();
        if bytes == 0 {
            return self.inner.context.inner.check();
        }
        self.put("copy", &[from.used(), to.used(Access::Write)], |backend, raw| {
            // SAFETY: both have so many bytes, which stay until the stream has passed the copy, and the stream is ordered behind and
            // before all other work with them.
            unsafe { backend.copy(to.address(), from.address(), bytes, raw) }
        })?;
        to.used(Access::Write).note_filled();
        Ok(())
    }

    /// Copies `rows` rows of `row` elements. In `from` a row begins every `from_pitch` elements, in `to` every `to_pitch`, each
    /// from the first element on: so the edge of a field is packed, and unpacked. What lies between the rows is not touched.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.stream()?;
    /// // The second column of a field of 3 rows of 4 elements.
    /// let field = stream.upload(&[0u8, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23])?;
    /// let mut column = stream.alloc::<u8>(3)?;
    /// stream.copy_rows(&field.view(1..)?, 4, &mut column, 1, 1, 3)?;
    /// assert_eq!(stream.download(&column)?, [1, 11, 21]);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchRows`] where either has not the elements, or rows would overlap.
    pub fn copy_rows<T: Pod>(
        &self,
        from: &impl Source<T>,
        from_pitch: usize,
        to: &mut impl Target<T>,
        to_pitch: usize,
        row: usize,
        rows: usize,
    ) -> Result<()> {
        self.inner.context.inner.check()?;
        if row == 0 || rows == 0 {
            return Ok(());
        }
        let rows_in = |elements, pitch| {
            let end = pitch_end(pitch, row, rows).filter(|&end| end <= elements);
            let (row_elements, pitch_elements) = (row, pitch);
            end.ok_or(Error::NoSuchRows { rows, row_elements, pitch_elements, elements })
        };
        rows_in(from.len(), from_pitch)?;
        let end = rows_in(to.len(), to_pitch)?;
        // One row has no next one; its pitch may be anything.
        let pitch_bytes = |pitch| if rows == 1 { row } else { pitch } * size_of::<T>();
        let from_rows = PitchedPtr { start: from.address(), pitch_bytes: pitch_bytes(from_pitch) };
        let to_rows = PitchedPtr { start: to.address(), pitch_bytes: pitch_bytes(to_pitch) };
        let written = to.used(Access::Write);
        self.put("copy rows", &[from.used(), written], |backend, raw| {
            // SAFETY: as for `copy`; both have all rows.
            unsafe { backend.copy_2d(to_rows, from_rows, row * size_of::<T>(), rows, raw) }
        })?;
        if end == row * rows {
            MemoryUse { bytes: (end * size_of::<T>()) as u64, ..written }.note_filled();
        }
        Ok(())
    }

    /// Waits until all work of the stream is done.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.stream()?;
    /// let x = stream.zeros::<u8>(1 << 20)?;
    /// stream.synchronize()?;
    /// assert!(stream.is_idle()?);
    /// # drop(x);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn synchronize(&self) -> Result<()> {
        self.inner.context.inner.check()?;
        self.check_uncaptured()?;
        let device = &self.inner.context.inner.device;
        self.inner.state.synchronize().map_err(|error| device.failed(error))?;
        device.run_deferred()
    }

    /// Whether all work of the stream is done. This asks the driver.
    pub fn is_idle(&self) -> Result<bool> {
        self.inner.context.inner.check()?;
        self.check_uncaptured()?;
        let _shared = self.inner.context.inner.enter()?;
        let device = &self.inner.context.inner.device;
        let now = self.inner.state.current_fence().seq;
        // SAFETY: the stream is not destroyed while it is held here, nor its context while it is shared.
        let is_idle = unsafe { self.inner.context.inner.state.backend.is_idle(self.inner.state.raw) };
        let is_idle = is_idle.map_err(|error| device.failed(error))?;
        if is_idle {
            self.inner.state.note_complete(now);
        }
        Ok(is_idle)
    }

    /// The point behind all work that was put in so far.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.stream()?;
    /// let x = stream.zeros::<u8>(1 << 20)?;
    /// let filled = stream.event()?;
    /// filled.synchronize()?; // for the zeros, and for nothing that comes later
    /// # drop(x);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn event(&self) -> Result<Event> {
        Event::record(self)
    }

    /// Lets the work that is put in from now on wait, on the device, until the event has passed.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.stream()?;
    /// let other = device.stream()?;
    /// other.wait(&stream.event()?)?; // on the device: the host goes on
    /// other.synchronize()?;
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn wait(&self, event: &Event) -> Result<()> {
        self.inner.context.inner.check()?;
        event.check_device(&self.inner.context.inner.device)?;
        self.order_after(&[event.fence])?;
        Ok(())
    }

    /// Destroys the stream. Its work completes, and nobody waits for it.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.stream()?;
    /// let x = stream.zeros::<u8>(1 << 20)?;
    /// stream.close().map_err(|(_stream, error)| error)?; // the zeros come all the same
    /// assert_eq!(device.stream()?.download(&x.view(..3)?)?, [0; 3]);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn close(self) -> Closed<Self> {
        if let Err(error) = self.inner.context.inner.check().and_then(|()| self.check_uncaptured()) {
            return Err((self, error));
        }
        let device = self.inner.context.inner.device.clone();
        match self.inner.state.retire() {
            Ok(()) => Ok(()),
            Err(error) => Err((self, device.failed(error))),
        }
    }

    /// Puts work in that uses these blocks: after what it has to wait for, and noted for what comes later.
    pub(crate) fn put(
        &self,
        name: &str,
        used: &[MemoryUse<'_>],
        work: impl FnOnce(&dyn Backend, handle::Stream) -> std::result::Result<(), CallError>,
    ) -> Result<()> {
        self.inner.context.inner.check()?;
        self.order(used)?;
        self.put_ordered(name, used, work).map(drop)
    }

    /// [`put`](Self::put) behind an [`order`](Self::order).
    #[inline]
    pub(crate) fn put_ordered(
        &self,
        name: &str,
        used: &[MemoryUse<'_>],
        work: impl FnOnce(&dyn Backend, handle::Stream) -> std::result::Result<(), CallError>,
    ) -> Result<Fence> {
        let inner = &self.inner.context.inner;
        let _shared = inner.enter()?;
        let _others = self.enter_others(used)?;
        if inner.device.timeline.is_on() {
            self.put_timed(name, used, work)
        } else {
            work(&*inner.state.backend, self.inner.state.raw)
        }
        .map_err(|error| inner.device.failed(error))?;
        let fence = Fence { stream: self.inner.state.id, seq: self.inner.state.count_work() };
        for used in used {
            if used.is_ordered {
                let is_before = |other: Fence| {
                    self.inner.state.has_waited(other.stream, other.seq) || inner.device.streams.is_complete(other)
                };
                used.uses.note(fence, used.access, is_before);
            } else {
                used.uses.note_unordered(fence, used.access);
            }
        }
        Ok(fence)
    }

    /// Keeps the contexts of blocks that are of another than the stream's until the work is noted. They may have been closed
    /// since the blocks were looked at.
    #[inline]
    fn enter_others<'a>(&self, used: &[MemoryUse<'a>]) -> Result<Vec<RwLockReadGuard<'a, ()>>> {
        let others =
            used.iter().map(|used| &used.context.inner).filter(|other| !Arc::ptr_eq(other, &self.inner.context.inner));
        let mut guards = Vec::new();
        for other in others {
            guards.push(other.enter()?);
        }
        Ok(guards)
    }

    /// Puts work between two events that tell when it began and ended.
    #[cold]
    fn put_timed(
        &self,
        name: &str,
        used: &[MemoryUse<'_>],
        work: impl FnOnce(&dyn Backend, handle::Stream) -> std::result::Result<(), CallError>,
    ) -> std::result::Result<(), CallError> {
        let inner = &self.inner.context.inner;
        let (device, timeline) = (&inner.device, &inner.device.timeline);
        let begun = timeline.begin_use(&inner.state, &self.inner.state, device.now());
        let begun = begun.map_err(|error| device.note_refusal(error)).ok().flatten();
        let put = work(&*inner.state.backend, self.inner.state.raw);
        match (begun, put.is_ok()) {
            (Some(begun), true) => {
                let (returned, blocks) = (device.now(), used.iter().map(|used| used.base).collect::<Vec<_>>());
                let ended = timeline.end_use(&*device.backend, begun, &self.inner.state, (name, &blocks), returned);
                ended.unwrap_or_else(|error| device.note_refusal(error));
            }
            (Some(begun), false) => timeline.cancel_use(begun, self.inner.state.context),
            (None, _) => {}
        }
        put
    }

    /// Puts a copy from or to memory of the caller's in, and waits for it. The memory is used by nobody when this returns. `waits` says
    /// whether the stream was just told to wait for something.
    ///
    /// Such memory is seldom pinned. Then the driver waits within its call until the stream comes to the copy, and keeps other threads out
    /// of the context meanwhile: also the one that the stream waits for. So the host waits before that call, where nobody is kept out,
    /// and other threads have the stream wait for nothing until the copy is over.
    pub(crate) fn put_and_wait(
        &self,
        name: &str,
        used: &[MemoryUse<'_>],
        waits: bool,
        work: impl FnOnce(&dyn Backend, handle::Stream) -> std::result::Result<(), CallError>,
    ) -> Result<()> {
        let device = &self.inner.context.inner.device;
        let stream_state = &self.inner.state;
        let mut waits = waits;
        let _no_waits = loop {
            let before = *stream_state.waits();
            if waits || !stream_state.is_idle() {
                stream_state.wait_until_idle().map_err(|error| device.failed(error))?;
            }
            sync_point::reach(SyncPoint::Copy);
            let now = stream_state.waits();
            if *now == before {
                break now;
            }
            // Another thread has had the stream wait for something since it was at rest.
            waits = true;
        };
        self.put_ordered(name, used, work)?;
        // A wait that fails once leaves the copy on its way.
        let waited = stream_state.synchronize().or_else(|_| stream_state.synchronize());
        waited.map_err(|error| device.lost(error))
    }

    /// Lets the next work wait for what it must not overtake. Whether it has to wait for anything.
    #[inline]
    pub(crate) fn order(&self, used: &[MemoryUse<'_>]) -> Result<bool> {
        self.check_used(used)?;
        let mut fences = Vec::new();
        for used in used.iter().filter(|used| used.is_ordered) {
            used.uses.before(self.inner.state.id, used.access, |fence| fences.push(fence));
        }
        self.order_after(&fences)
    }

    /// Refuses work while others capture the stream, which they can only where they were told its handle.
    #[inline]
    pub(crate) fn check_uncaptured(&self) -> Result<()> {
        if !self.inner.state.is_handed_out() {
            return Ok(());
        }
        let takes_work =
            self.inner.state.can_record_fence().map_err(|error| self.inner.context.inner.device.failed(error))?;
        if takes_work { Ok(()) } else { Err(Error::StreamCaptured) }
    }

    /// Refuses what must not be used so. All are looked at before the driver hears of any.
    #[inline]
    pub(crate) fn check_used(&self, used: &[MemoryUse<'_>]) -> Result<()> {
        for used in used {
            let context = &used.context.inner;
            if context.is_closed() {
                return Err(Error::ContextClosed { context: context.state.id });
            }
            if !Arc::ptr_eq(&context.device, &self.inner.context.inner.device) {
                return Err(Error::OtherDevice { what: "a block" });
            }
            if used.access == Access::Write && used.permission == Permission::Read {
                return Err(Error::ReadOnly { base: used.base });
            }
            if used.access == Access::Read {
                used.check_defined()?;
            }
        }
        Ok(())
    }

    /// Lets the next work wait for these. Whether it has to wait for any. All are looked at before the driver is told of one.
    #[inline]
    pub(crate) fn order_after(&self, fences: &[Fence]) -> Result<bool> {
        self.check_uncaptured()?;
        if fences.is_empty() { Ok(false) } else { self.order_after_some(fences) }
    }

    fn order_after_some(&self, fences: &[Fence]) -> Result<bool> {
        let device = &self.inner.context.inner.device;
        let has_waited = |fence: &Fence| self.inner.state.has_waited(fence.stream, fence.seq);
        for fence in fences.iter().filter(|fence| !has_waited(fence)) {
            device.check_uncaptured(*fence)?;
        }
        let mut waits = false;
        for fence in fences {
            if has_waited(fence) {
                continue;
            }
            if TransferSlot::is_transfer(fence.stream) {
                let waited = self.inner.state.wait_for_transfer(&device.streams.transfer_slots, *fence);
                waits |= waited.map_err(|error| device.failed(error))?;
                continue;
            }
            // A stream_state that is gone has passed all of its work.
            if let Some(other) = device.streams.get(fence.stream) {
                let waited = self.inner.state.wait_for(&other, fence.seq);
                waits |= waited.map_err(|error| device.failed(error))?;
            }
        }
        Ok(waits)
    }

    pub(crate) fn context_id(&self) -> ContextId {
        self.inner.context.id()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.inner.reclaim_refs();
        let inner = &self.inner.context.inner;
        if self.inner.state.is_retired() || inner.is_closed() || !inner.device.is_good() {
            return;
        }
        // One that others capture goes when their capture is over.
        match self.inner.state.retire_uncaptured() {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => inner.device.note_drop_error(inner.device.failed(error)),
        }
        inner.device.defer(Deferred::Retire { stream_state: self.inner.state.clone() });
    }
}
