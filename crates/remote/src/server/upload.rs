//! The progress of an upload, independent of the connection that sends it. Chunks arrive in order without gaps, each
//! with its checksum; a sender that lost its connection is replaced by the next one.

use std::sync::{Arc, Mutex};

use freehold::Stream;
use tokio::sync::mpsc;
use tonic::Code;

use super::block::SessionBlock;
use super::pinned_pool::TransferBuffer;
use crate::error::{ErrorOrigin, Executed, RemoteError};
use crate::proto::upload_message::Part;
use crate::proto::{Chunk, UploadBegin, Uploaded};
use crate::sync::lock;
use crate::transport::CHUNK_BYTES_MAX;

pub(super) struct Upload {
    block: Arc<SessionBlock>,
    /// Its start in the block.
    offset: u64,
    bytes: u64,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    received_bytes: u64,
    crc32c: u32,
    /// The number of the current sender. Earlier ones are ignored.
    sender: u64,
    is_complete: bool,
}

/// The current sender of an upload.
pub(super) struct UploadSender {
    upload: Arc<Upload>,
    number: u64,
}

impl Upload {
    pub(super) fn new(block: Arc<SessionBlock>, begin: &UploadBegin) -> Result<Self, RemoteError> {
        block.check_writable()?;
        block.range(begin.offset, begin.bytes)?;
        if begin.bytes == 0 {
            return Err(RemoteError::invalid_argument("the upload has 0 bytes: expected at least one"));
        }
        Ok(Self { block, offset: begin.offset, bytes: begin.bytes, progress: Mutex::default() })
    }

    pub(super) fn progress(&self) -> Uploaded {
        lock(&self.progress).to_proto()
    }

    /// Ignores every sender until the next one begins. Returns the progress.
    pub(super) fn resume(&self) -> Uploaded {
        let mut progress = lock(&self.progress);
        progress.sender += 1;
        progress.to_proto()
    }

    /// Makes this the current sender, unless the upload is complete.
    pub(super) fn begin(self: &Arc<Self>, begin: &UploadBegin) -> Result<Option<UploadSender>, RemoteError> {
        if (begin.block, begin.offset, begin.bytes) != (self.block.number, self.offset, self.bytes) {
            let number = begin.call.as_ref().map_or(0, |call| call.number);
            return Err(RemoteError::invalid_argument(format!(
                "upload number {number} was used for a different upload: give each upload its own number"
            )));
        }
        let mut progress = lock(&self.progress);
        if progress.is_complete {
            return Ok(None);
        }
        if begin.from != progress.received_bytes {
            return Err(progress.wrong_offset(begin.from));
        }
        progress.sender += 1;
        Ok(Some(UploadSender { upload: self.clone(), number: progress.sender }))
    }
}

impl Progress {
    fn to_proto(&self) -> Uploaded {
        Uploaded { bytes: self.received_bytes, crc32c: self.crc32c, complete: self.is_complete }
    }

    fn wrong_offset(&self, at: u64) -> RemoteError {
        let has = self.received_bytes;
        let message = format!("the server has {has} bytes of the upload: continue there, not at byte {at}");
        RemoteError::caller(Code::OutOfRange, message).with_received(has)
    }
}

impl UploadSender {
    /// Writes the chunks that the connection receives, until the upload is complete or the connection ends. `stream`
    /// returns the stream of uploads, after all launches so far.
    pub(super) fn write_all<'a>(
        self,
        stream: impl Fn() -> Result<&'a Stream, RemoteError>,
        mut buffer: TransferBuffer,
        mut parts: mpsc::Receiver<Part>,
    ) -> Result<Uploaded, RemoteError> {
        while let Some(part) = parts.blocking_recv() {
            match part {
                Part::Chunk(chunk) => self.write(&stream, &mut buffer, &chunk)?,
                Part::End(end) => {
                    buffer.wait_all()?;
                    // Including what earlier senders sent.
                    stream()?.event()?.synchronize()?;
                    return self.complete(end.crc32c);
                }
                Part::Begin(_) => {
                    return Err(RemoteError::invalid_argument("second begin of an upload: send chunks, then the end"));
                }
            }
        }
        buffer.wait_all()?;
        let told = self.upload.progress();
        let message = format!("the upload stopped at byte {} of {}: resume it there", told.bytes, self.upload.bytes);
        Err(RemoteError::connection(message).with_received(told.bytes))
    }

    fn write<'a>(
        &self,
        stream: impl Fn() -> Result<&'a Stream, RemoteError>,
        buffer: &mut TransferBuffer,
        chunk: &Chunk,
    ) -> Result<(), RemoteError> {
        let Upload { block, offset, bytes, progress } = &*self.upload;
        let length = chunk.data.len() as u64;
        if length == 0 || length > CHUNK_BYTES_MAX as u64 {
            let message = format!("a chunk has 1 to {CHUNK_BYTES_MAX} bytes, this one {length}");
            return Err(RemoteError::invalid_argument(message).with_received(self.upload.progress().bytes));
        }
        let crc32c = crc32c::crc32c(&chunk.data);
        let mut progress = lock(progress);
        self.check_current(&progress)?;
        if progress.is_complete || chunk.at != progress.received_bytes {
            return Err(progress.wrong_offset(chunk.at));
        }
        if length > bytes - chunk.at {
            let message = format!("the upload has {bytes} bytes: {length} from byte {} on are too many", chunk.at);
            return Err(RemoteError::caller(Code::OutOfRange, message).with_received(chunk.at));
        }
        if crc32c != chunk.crc32c {
            let (at, said) = (chunk.at, chunk.crc32c);
            let message =
                format!("the chunk at byte {at} has the checksum {crc32c:08x} and not {said:08x}: send it again");
            return Err(data_loss(message).with_received(at));
        }
        let stream = stream()?;
        buffer.upload(stream, &chunk.data, |part| block.write(stream, offset + chunk.at, part))?;
        progress.crc32c = crc32c::crc32c_combine(progress.crc32c, crc32c, chunk.data.len());
        progress.received_bytes += length;
        Ok(())
    }

    /// All chunks are in the block.
    fn complete(&self, crc32c: u32) -> Result<Uploaded, RemoteError> {
        let mut progress = lock(&self.upload.progress);
        self.check_current(&progress)?;
        if progress.received_bytes != self.upload.bytes {
            return Err(progress.wrong_offset(self.upload.bytes));
        }
        if progress.crc32c != crc32c {
            let has = progress.crc32c;
            let message = format!(
                "the upload has the checksum {has:08x} and not {crc32c:08x}: its bytes are in the block; upload them again"
            );
            return Err(data_loss(message).with_executed(Executed::Yes).with_received(progress.received_bytes));
        }
        progress.is_complete = true;
        Ok(progress.to_proto())
    }

    fn check_current(&self, progress: &Progress) -> Result<(), RemoteError> {
        if progress.sender == self.number {
            return Ok(());
        }
        let message = "the upload continues over another connection: this one is ignored";
        Err(RemoteError::caller(Code::Aborted, message).with_received(progress.received_bytes))
    }
}

fn data_loss(message: String) -> RemoteError {
    RemoteError { origin: ErrorOrigin::Connection, code: Code::DataLoss, ..RemoteError::connection(message) }
}
