//! The data that another process needs to map a chunk of a block.

use std::os::fd::OwnedFd;

/// A chunk that a block lies in, or a part of the block.
#[derive(Debug)]
pub struct ExportedChunk {
    /// Keeps the chunk's memory alive. Other blocks may lie in the chunk: a process that imports it can access them.
    pub descriptor: OwnedFd,
    /// Where the chunk begins in this process.
    pub address: u64,
    /// The length of the chunk.
    pub bytes: u64,
}
