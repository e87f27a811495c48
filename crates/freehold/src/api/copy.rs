//! Copies: between the host and blocks, and between blocks.

use freehold_driver::PitchedPtr;
use zerocopy::IntoBytes;

use crate::api::block::Block;
use crate::api::memory::{Pod, Source, Target};
use crate::api::stream::Stream;
use crate::device::memory_use::MemoryUse;
use crate::error::{Error, Result};
use crate::ordering::access_history::Access;

/// Longer uploads into an idle stream bypass staging.
const DIRECT_BYTES_MIN: usize = 1 << 20;

/// Returns where the last row ends, in elements, unless rows overlap or the number overflows.
fn pitch_end(pitch: usize, row: usize, rows: usize) -> Option<usize> {
    let before_last = if rows == 1 { 0 } else { pitch.checked_mul(rows - 1).filter(|_| pitch >= row)? };
    before_last.checked_add(row)
}

impl Stream {
    /// Allocates a block of zeros.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// assert_eq!(stream.download(&stream.zeros::<u16>(3)?)?, [0; 3]);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    #[track_caller]
    pub fn zeros<T: Pod>(&self, len: usize) -> Result<Block<T>> {
        let mut block = Block::alloc(self, len, None, std::panic::Location::caller())?;
        self.fill_bytes(&mut block, 0)?;
        Ok(block)
    }

    /// Allocates a block with a copy of `from`, which may change once the call has returned.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
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

    /// Copies `from` to a block or a part of one, in the order of the stream. `from` may change once the call has
    /// returned.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
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
            // SAFETY: the buffer stays as it is until the copy is complete; its fence is stored with it below.
            unsafe { backend.upload(to.address(), start, length, raw) }
        });
        device.staging.put(buffer, put.as_ref().ok().copied());
        put.map(|_| to.used(Access::Write).note_filled())
    }

    /// Returns the content of a block, or of a part of one. Waits for the work before it in this stream, and for
    /// pending writes of other streams.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let x = stream.upload(&[1u8, 2, 3])?;
    /// assert_eq!(device.new_stream()?.download(&x)?, [1, 2, 3]); // any stream: it waits for the upload
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn download<T: Pod>(&self, from: &impl Source<T>) -> Result<Vec<T>> {
        let mut to = vec![T::new_zeroed(); from.len()];
        self.read(from, &mut to)?;
        Ok(to)
    }

    /// Like [`download`](Self::download), into existing memory.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
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

    /// Copies from block to block, in the order of the stream. `from` may be a block of another device of the same
    /// driver: the copy waits for pending writes there, and later writes there wait for the copy.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
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
        if self.is_other_device(&from.used()) {
            self.copy_from_peer(from.used(), to.used(Access::Write))?;
            to.used(Access::Write).note_filled();
            return Ok(());
        }
        self.put("copy", &[from.used(), to.used(Access::Write)], |backend, raw| {
            // SAFETY: both have that many bytes, which stay until the copy is complete, and the stream is ordered after
            // and before all other work with them.
            unsafe { backend.copy(to.address(), from.address(), bytes, raw) }
        })?;
        to.used(Access::Write).note_filled();
        Ok(())
    }

    /// Copies `rows` rows of `row` elements. In `from` a row begins every `from_pitch` elements, in `to` every
    /// `to_pitch`, counted from the first element: for example, to pack or unpack the edge of a field. Elements between
    /// the rows are not touched.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// // The second column of a field of 3 rows of 4 elements.
    /// let field = stream.upload(&[0u8, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23])?;
    /// let mut column = stream.alloc::<u8>(3)?;
    /// stream.copy_rows(&field.view(1..)?, 4, &mut column, 1, 1, 3)?;
    /// assert_eq!(stream.download(&column)?, [1, 11, 21]);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchRows`] if either has too few elements, or if rows would overlap.
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
        // A single row has no next one; its pitch may be anything.
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
}
