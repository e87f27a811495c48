//! What another process needs to have a block.

use std::os::fd::OwnedFd;

/// What another process needs to have a block: it imports the descriptor with all of the chunk's bytes
/// ([`Device::import`](crate::Device::import), or the driver's own calls), and finds the block at its offset.
///
/// ```
/// use std::os::fd::AsFd;
///
/// let device = freehold::open()?;
/// let stream = device.new_stream()?;
/// let mut block = stream.alloc_shareable::<u8>(3)?;
/// stream.write(&mut block, &[1, 2, 3])?;
/// stream.synchronize()?; // another process does not know this one's streams
/// let exported = block.export()?;
/// // There, when the descriptor has come over a socket:
/// let memory = device.import(exported.descriptor.as_fd(), exported.chunk_bytes, freehold::Permission::Read)?;
/// let part = memory.part::<u8>(&stream, exported.offset_bytes, 3)?;
/// assert_eq!(stream.download(&part)?, [1, 2, 3]);
/// # Ok::<(), freehold::Error>(())
/// ```
#[non_exhaustive]
#[derive(Debug)]
pub struct Exported {
    /// Of the chunk that the block lies in. Other blocks that were asked for with
    /// [`Stream::alloc_shareable`](crate::Stream::alloc_shareable) may lie there too, and whoever imports it can visibility them; no
    /// others do. The chunk's memory lives as long as this does, or a mapping of it, whatever becomes of the block.
    pub descriptor: OwnedFd,
    /// How long the chunk is.
    pub chunk_bytes: u64,
    /// Where the block begins in the chunk.
    pub offset_bytes: u64,
    /// How long the block is.
    pub bytes: u64,
}
