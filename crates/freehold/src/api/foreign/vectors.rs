//! Vectors of foreign code. Their memory is given back after all work of the device, because foreign code does not say which
//! streams use a vector.

use std::sync::{MutexGuard, PoisonError};

use freehold_driver::cuda::CUstream;

use super::ForeignPool;
use super::vector::{ForeignVector, Vectors};
use crate::api::stream::Stream;
use crate::api::vector::DeviceVec;
use crate::error::{Error, Result};

impl ForeignPool {
    /// Makes an empty vector, with addresses for `len_max` bytes, or for as many as the device has memory for if that is 0.
    ///
    /// # Errors
    /// [`Error::CannotMap`] on a device that cannot map memory.
    pub fn new_vector(&self, len_max: usize) -> Result<ForeignVector> {
        self.device.check()?;
        let mut vectors = self.vectors();
        self.drop_freed(&mut vectors)?;
        let stream = self.vector_stream(&mut vectors)?;
        let bytes = if len_max == 0 { DeviceVec::new(stream)? } else { DeviceVec::with_max_len(stream, len_max)? };
        if bytes.grows_in_place() { Ok(ForeignVector { bytes }) } else { Err(Error::CannotMap) }
    }

    /// Changes the size of a vector. The address and the contents stay; nothing waits.
    ///
    /// # Errors
    /// [`Error::VectorFull`], [`Error::OutOfMemory`]. The vector is unchanged.
    pub fn resize_vector(&self, vector: &mut ForeignVector, len: usize) -> Result<()> {
        self.device.check()?;
        let mut vectors = self.vectors();
        self.drop_freed(&mut vectors)?;
        vector.resize(self.vector_stream(&mut vectors)?, len)
    }

    /// Returns memory beyond the size of a vector to the pool, after all work that was submitted to the device before.
    ///
    /// # Errors
    /// [`Error::StreamCaptured`] while a stream is being captured.
    pub fn shrink_vector(&self, vector: &mut ForeignVector) -> Result<()> {
        let mut vectors = self.vectors();
        self.note_all_work(self.vector_stream(&mut vectors)?, [&*vector])?;
        vector.bytes.shrink_to_fit()
    }

    /// Releases a vector after all work that was submitted to the device before. While a stream is being captured, that
    /// is left to a later call for a vector.
    pub fn free_vector(&self, vector: ForeignVector) -> Result<()> {
        let mut vectors = self.vectors();
        vectors.freed.push(vector);
        self.drop_freed(&mut vectors)
    }

    fn drop_freed(&self, vectors: &mut Vectors) -> Result<()> {
        if vectors.freed.is_empty() {
            return Ok(());
        }
        let freed = std::mem::take(&mut vectors.freed);
        let noted = self.vector_stream(vectors).and_then(|stream| self.note_all_work(stream, &freed));
        match noted {
            Ok(()) => {
                drop(freed);
                Ok(())
            }
            Err(error) => {
                vectors.freed = freed;
                if matches!(error, Error::StreamCaptured) { Ok(()) } else { Err(error) }
            }
        }
    }

    /// Makes the stream of the vectors wait for all work, and the memory of these vectors for that stream.
    fn note_all_work<'a>(&self, stream: &Stream, of: impl IntoIterator<Item = &'a ForeignVector>) -> Result<()> {
        self.order_after_all(CUstream::from(stream.raw()))?;
        of.into_iter().for_each(|vector| vector.note_use(stream));
        Ok(())
    }

    fn vector_stream<'a>(&self, vectors: &'a mut Vectors) -> Result<&'a Stream> {
        if vectors.stream.is_none() {
            vectors.stream = Some(self.primary.new_stream()?);
        }
        Ok(vectors.stream.as_ref().expect("it was just made"))
    }

    fn vectors(&self) -> MutexGuard<'_, Vectors> {
        self.vectors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
