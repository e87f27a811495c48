//! Fills: set every element of a block to one value, with one driver call if the driver has one for the value's
//! pattern, otherwise with copies.

use freehold_driver::Pattern;

use crate::api::memory::{Pod, Target};
use crate::api::stream::Stream;
use crate::device::memory_use::MemoryUse;
use crate::error::Result;
use crate::ordering::access_history::Access;

/// About how many bytes of a pattern are uploaded. Copies on the device do the rest.
const PATTERN_BYTES: usize = 4096;

impl Stream {
    /// Sets every element of a block, or of a part of one.
    ///
    /// A value whose bytes repeat after one, two or four takes one driver call. Other values are uploaded, and then
    /// copied, doubling the filled part until all of it is set.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let mut x = stream.alloc::<f32>(1000)?;
    /// stream.fill(&mut x, 0.5)?;
    /// assert_eq!(stream.download(&x)?, [0.5; 1000]);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of the driver. The content of the elements is then unspecified.
    pub fn fill<T: Pod>(&self, to: &mut impl Target<T>, value: T) -> Result<()> {
        let bytes = to.len() * size_of::<T>();
        if bytes == 0 {
            return self.inner.context.inner.check();
        }
        let (address, used) = (to.address(), to.used(Access::Write));
        match Pattern::new(value.as_bytes(), address) {
            Some(pattern) => self.put("fill", &[used], |backend, raw| {
                // SAFETY: there are that many bytes, which stay until the fill is complete; the stream is ordered after
                // other work with them.
                unsafe { backend.fill(address, pattern, bytes, raw) }
            })?,
            None => self.fill_by_copies(address, used, value.as_bytes(), bytes)?,
        }
        used.note_filled();
        Ok(())
    }

    fn fill_by_copies(&self, address: u64, used: MemoryUse<'_>, value: &[u8], bytes: usize) -> Result<()> {
        self.inner.context.inner.check()?;
        self.order(&[used])?;
        let device = &self.inner.context.inner.device;
        let first = value.repeat((PATTERN_BYTES / value.len()).clamp(1, bytes / value.len()));
        let mut buffer = device.take_staging(first.len())?;
        let start = buffer.fill(&first).as_ptr();
        let put = self.put_ordered("fill", &[used], |backend, raw| {
            // SAFETY: the buffer stays as it is until the copy is complete; its fence is stored with it below.
            unsafe { backend.upload(address, start, first.len(), raw) }
        });
        device.staging.put(buffer, put.as_ref().ok().copied());
        put?;
        let mut done = first.len();
        while done < bytes {
            let more = done.min(bytes - done);
            // Each copy is recorded separately: what was submitted is waited for, even if the next one fails.
            self.put_ordered("fill", &[used], |backend, raw| {
                // SAFETY: both lie within the bytes, side by side, and the stream is ordered after other work with
                // them.
                unsafe { backend.copy(address + done as u64, address, more, raw) }
            })?;
            done += more;
        }
        Ok(())
    }

    /// Sets every byte of a block, or of a part of one.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let mut x = stream.alloc::<u32>(2)?;
    /// stream.fill_bytes(&mut x, 0xff)?;
    /// assert_eq!(stream.download(&x)?, [u32::MAX; 2]);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn fill_bytes<T: Pod>(&self, to: &mut impl Target<T>, byte: u8) -> Result<()> {
        let bytes = to.len() * size_of::<T>();
        if bytes == 0 {
            return self.inner.context.inner.check();
        }
        self.put("fill", &[to.used(Access::Write)], |backend, raw| {
            // SAFETY: there are that many bytes, which stay until the fill is complete; the stream is ordered after
            // other work with them.
            unsafe { backend.fill(to.address(), Pattern::U8(byte), bytes, raw) }
        })?;
        to.used(Access::Write).note_filled();
        Ok(())
    }
}
