//! An upload: how far it has come, whoever sends it. Chunks follow each other without a gap, each with its checksum; a sender that
//! lost its connection is replaced by the next one.

use std::sync::{Arc, Mutex};

use tokio::sync::mpsc;
use tonic::Code;

use super::lock;
use super::pinned::Lane;
use super::session::{Held, Visit};
use crate::CHUNK_BYTES_MAX;
use crate::failure::{CarriedOut, Failure, Fault};
use crate::proto::upload_message::Part;
use crate::proto::{Chunk, UploadBegin, Uploaded};

pub(super) struct Upload {
    held: Arc<Held>,
    /// Where it begins in the block.
    offset: u64,
    bytes: u64,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    received_bytes: u64,
    crc32c: u32,
    /// Which of all senders is listened to.
    sender: u64,
    is_complete: bool,
}

/// Who sends an upload now.
pub(super) struct Sender {
    upload: Arc<Upload>,
    number: u64,
}

impl Upload {
    pub(super) fn new(held: Arc<Held>, begin: &UploadBegin) -> Result<Self, Failure> {
        held.expect_writable()?;
        held.range(begin.offset, begin.bytes)?;
        if begin.bytes == 0 {
            return Err(Failure::wrong("an upload has bytes: say how many"));
        }
        Ok(Self { held, offset: begin.offset, bytes: begin.bytes, progress: Mutex::default() })
    }

    pub(super) fn told(&self) -> Uploaded {
        lock(&self.progress).told()
    }

    /// Listens to nobody until the next one begins: how far it has come.
    pub(super) fn resume(&self) -> Uploaded {
        let mut progress = lock(&self.progress);
        progress.sender += 1;
        progress.told()
    }

    /// Listens to this one from now on, unless all is there.
    pub(super) fn begin(self: &Arc<Self>, begin: &UploadBegin) -> Result<Option<Sender>, Failure> {
        if (begin.block, begin.offset, begin.bytes) != (self.held.number, self.offset, self.bytes) {
            let number = begin.call.as_ref().map_or(0, |call| call.number);
            return Err(Failure::wrong(format!("upload {number} was another before: give each upload its own number")));
        }
        let mut progress = lock(&self.progress);
        if progress.is_complete {
            return Ok(None);
        }
        if begin.from != progress.received_bytes {
            return Err(progress.elsewhere(begin.from));
        }
        progress.sender += 1;
        Ok(Some(Sender { upload: self.clone(), number: progress.sender }))
    }
}

impl Progress {
    fn told(&self) -> Uploaded {
        Uploaded { bytes: self.received_bytes, crc32c: self.crc32c, complete: self.is_complete }
    }

    fn elsewhere(&self, at: u64) -> Failure {
        let has = self.received_bytes;
        let sentence = format!("the gate has {has} bytes of the upload: go on there, not at byte {at}");
        Failure::caller(Code::OutOfRange, sentence).received(has)
    }
}

impl Sender {
    /// Takes what the connection brings, until the upload is complete or nothing comes any more.
    pub(super) fn write_all(
        self,
        visit: &Visit,
        mut lane: Lane,
        mut parts: mpsc::Receiver<Part>,
    ) -> Result<Uploaded, Failure> {
        while let Some(part) = parts.blocking_recv() {
            match part {
                Part::Chunk(chunk) => self.write(visit, &mut lane, &chunk)?,
                Part::End(end) => {
                    lane.settle()?;
                    // What others sent of it before, too.
                    visit.up()?.event()?.synchronize()?;
                    return self.complete(end.crc32c);
                }
                Part::Begin(_) => return Err(Failure::wrong("an upload begins once: send chunks, and then the end")),
            }
        }
        lane.settle()?;
        let told = self.upload.told();
        let sentence = format!("the upload broke off at byte {} of {}: go on there", told.bytes, self.upload.bytes);
        Err(Failure::connection(sentence).received(told.bytes))
    }

    fn write(&self, visit: &Visit, lane: &mut Lane, chunk: &Chunk) -> Result<(), Failure> {
        let Upload { held, offset, bytes, progress } = &*self.upload;
        let length = chunk.data.len() as u64;
        if length == 0 || length > CHUNK_BYTES_MAX as u64 {
            let sentence = format!("a chunk has 1 to {CHUNK_BYTES_MAX} bytes, and this has {length}");
            return Err(Failure::wrong(sentence).received(self.upload.told().bytes));
        }
        let crc32c = crc32c::crc32c(&chunk.data);
        let mut progress = lock(progress);
        self.expect_heard(&progress)?;
        if progress.is_complete || chunk.at != progress.received_bytes {
            return Err(progress.elsewhere(chunk.at));
        }
        if length > bytes - chunk.at {
            let sentence = format!("the upload has {bytes} bytes: {length} from byte {} on are too many", chunk.at);
            return Err(Failure::caller(Code::OutOfRange, sentence).received(chunk.at));
        }
        if crc32c != chunk.crc32c {
            let (at, said) = (chunk.at, chunk.crc32c);
            let sentence =
                format!("the chunk at byte {at} has the checksum {crc32c:08x} and not {said:08x}: send it again");
            return Err(data_loss(sentence).received(at));
        }
        let stream = visit.up()?;
        lane.send(stream, &chunk.data, |part| held.write(stream, offset + chunk.at, part))?;
        progress.crc32c = crc32c::crc32c_combine(progress.crc32c, crc32c, chunk.data.len());
        progress.received_bytes += length;
        Ok(())
    }

    /// All chunks are in the block.
    fn complete(&self, crc32c: u32) -> Result<Uploaded, Failure> {
        let mut progress = lock(&self.upload.progress);
        self.expect_heard(&progress)?;
        if progress.received_bytes != self.upload.bytes {
            return Err(progress.elsewhere(self.upload.bytes));
        }
        if progress.crc32c != crc32c {
            let has = progress.crc32c;
            let sentence = format!(
                "the upload has the checksum {has:08x} and not {crc32c:08x}: its bytes are in the block; upload them again"
            );
            return Err(data_loss(sentence).with(CarriedOut::Yes).received(progress.received_bytes));
        }
        progress.is_complete = true;
        Ok(progress.told())
    }

    fn expect_heard(&self, progress: &Progress) -> Result<(), Failure> {
        if progress.sender == self.number {
            return Ok(());
        }
        let sentence = "the upload goes on over another connection: this one is not listened to any more";
        Err(Failure::caller(Code::Aborted, sentence).received(progress.received_bytes))
    }
}

fn data_loss(sentence: String) -> Failure {
    Failure { fault: Fault::Connection, code: Code::DataLoss, ..Failure::connection(sentence) }
}
