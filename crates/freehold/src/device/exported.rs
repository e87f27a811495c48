//! The data that another process needs to use a block.

use std::os::fd::OwnedFd;

/// The data that another process needs to use a block. It imports the descriptor with the chunk's length
/// ([`Device::import`](crate::Device::import), or the driver's own calls), and finds the block at its offset.
///
/// ```
/// use std::os::fd::AsFd;
///
/// let device = freehold::open()?;
/// let stream = device.new_stream()?;
/// let mut block = stream.alloc_shareable::<u8>(3)?;
/// stream.write(&mut block, &[1, 2, 3])?;
/// stream.synchronize()?; // another process does not see this one's streams
/// let exported = block.export()?;
/// // In the other process, after receiving the descriptor over a socket:
/// let memory = device.import(exported.descriptor.as_fd(), exported.chunk_bytes, freehold::Permission::Read)?;
/// let part = memory.slice::<u8>(&stream, exported.offset_bytes, 3)?;
/// assert_eq!(stream.download(&part)?, [1, 2, 3]);
/// # Ok::<(), freehold::Error>(())
/// ```
#[non_exhaustive]
#[derive(Debug)]
pub struct Exported {
    /// The descriptor of the chunk that the block lies in. Other blocks from
    /// [`Stream::alloc_shareable`](crate::Stream::alloc_shareable) may lie in the same chunk, and a process that
    /// imports it can access them; no other blocks do. The chunk's memory lives as long as this descriptor or a mapping
    /// of it, whatever happens to the block.
    pub descriptor: OwnedFd,
    /// The length of the chunk.
    pub chunk_bytes: u64,
    /// Where the block begins in the chunk.
    pub offset_bytes: u64,
    /// The length of the block.
    pub bytes: u64,
}
