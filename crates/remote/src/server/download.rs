//! A download: chunks of a block, which the device copies while earlier ones are sent. A client that does not read
//! blocks only its own download, and only until the session's timeout.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tonic::{Code, Status};

use super::block::SessionBlock;
use super::pinned_pool::TransferBuffer;
use super::session::SessionGuard;
use crate::error::RemoteError;
use crate::proto::{Chunk, DownloadChunk};

pub(super) type ChunkResult = Result<DownloadChunk, Status>;

/// Chunks that wait for the network.
const QUEUE: usize = 2;

pub(super) struct Download {
    session: SessionGuard,
    block: Arc<SessionBlock>,
    range: Range<u64>,
    chunk_bytes: usize,
    queue: mpsc::Sender<ChunkResult>,
    /// Room to report the error that ends it, whatever is queued before.
    error_slot: mpsc::OwnedPermit<ChunkResult>,
}

impl Download {
    /// A download, and the stream of its chunks.
    pub(super) fn new(
        guard: SessionGuard,
        block: Arc<SessionBlock>,
        range: Range<u64>,
        chunk_bytes: usize,
    ) -> (Self, mpsc::Receiver<ChunkResult>) {
        let (queue, chunks) = mpsc::channel(QUEUE + 1);
        let last = queue.clone().try_reserve_owned().expect("the queue is empty");
        (Self { session: guard, block, range, chunk_bytes, queue, error_slot: last }, chunks)
    }

    /// Runs until everything is sent or the client is gone.
    pub(super) fn run(mut self, buffer: TransferBuffer, runtime: &Handle) {
        if let Err(failure) = self.send_chunks(buffer, runtime) {
            self.error_slot.send(Err(failure.into()));
        }
    }

    fn send_chunks(&mut self, mut buffer: TransferBuffer, runtime: &Handle) -> Result<(), RemoteError> {
        let (mut asked, mut sent, mut so_far) = (self.range.start, self.range.start, 0);
        while sent < self.range.end {
            while asked < self.range.end && !buffer.is_full() {
                let bytes = (self.range.end - asked).min(self.chunk_bytes as u64);
                let stream = self.session.download_stream()?;
                buffer.download(stream, bytes as usize, |part| self.block.read(stream, asked, part))?;
                asked += bytes;
            }
            let data = buffer.take_downloaded()?;
            let (bytes, crc32c) = (data.len(), crc32c::crc32c(&data));
            so_far = crc32c::crc32c_combine(so_far, crc32c, bytes);
            let chunk = Chunk { at: sent - self.range.start, data: Bytes::from(data), crc32c };
            sent += bytes as u64;
            if !self.send(DownloadChunk { chunk: Some(chunk), crc32c_so_far: so_far }, runtime)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Sends a chunk when there is room. Returns whether the client is still there.
    fn send(&self, chunk: DownloadChunk, runtime: &Handle) -> Result<bool, RemoteError> {
        let life = self.session.idle_timeout;
        match runtime.block_on(tokio::time::timeout(life, self.queue.reserve())) {
            Ok(Ok(room)) => {
                room.send(Ok(chunk));
                Ok(true)
            }
            Ok(Err(_)) => Ok(false),
            Err(_) => {
                let message =
                    format!("the download was not read for {} s: request the rest when you read it", life.as_secs());
                Err(RemoteError::caller(Code::DeadlineExceeded, message))
            }
        }
    }
}
