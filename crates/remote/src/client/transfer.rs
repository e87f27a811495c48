//! Uploads and downloads: divided among connections, in chunks with checksums, and gone on with where they stood when a connection was
//! lost.

use std::io;
use std::thread;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::line::Waiting;
use super::numbers::Numbers;
use super::{Remote, RemoteBlock, call};
use crate::failure::{CarriedOut, Failure};
use crate::proto::upload_message::Part;
use crate::proto::{Chunk, DownloadChunk, DownloadRequest, ResumeRequest};
use crate::proto::{UploadBegin, UploadEnd, UploadMessage, Uploaded};

const CHUNK_BYTES: u64 = 1 << 20;

/// A connection more is worth it from so many bytes on.
const LANE_BYTES_MIN: u64 = 16 << 20;

/// Chunks that wait for the network.
const QUEUE: usize = 2;

/// A part of a transfer: its connection, and its bytes of the whole.
#[derive(Clone, Copy)]
struct Stretch {
    lane: usize,
    start: u64,
    bytes: u64,
}

/// Why one try of a transfer ended.
enum Ended {
    /// The next try may go well.
    Lost(String),
    Refused(Failure),
}

impl Remote {
    /// Copies bytes into a block, from `offset` on. They are there when this returns.
    pub fn upload(&self, to: &RemoteBlock, offset: u64, bytes: &[u8]) -> Result<(), Failure> {
        self.upload_with(to, offset, bytes.len() as u64, |at, piece| {
            piece.copy_from_slice(&bytes[at as usize..][..piece.len()]);
            Ok(())
        })
    }

    /// As [`upload`](Self::upload), of bytes that `read` brings: those from the given one on, as many as fit. Several threads call
    /// it, and what was lost on the way it is asked for again.
    pub fn upload_with(
        &self,
        to: &RemoteBlock,
        offset: u64,
        bytes: u64,
        read: impl Fn(u64, &mut [u8]) -> io::Result<()> + Sync,
    ) -> Result<(), Failure> {
        self.divide(bytes, |stretch| self.upload_stretch(to, offset, stretch, &read))
    }

    /// Copies bytes of a block out, from `offset` on.
    pub fn download(&self, from: &RemoteBlock, offset: u64, bytes: &mut [u8]) -> Result<(), Failure> {
        let stretches = self.stretches(bytes.len() as u64);
        let mut rest = bytes;
        let mut pieces = Vec::new();
        for stretch in stretches {
            let (piece, behind) = rest.split_at_mut(stretch.bytes as usize);
            pieces.push((stretch, piece));
            rest = behind;
        }
        all(pieces, |(stretch, piece)| {
            let mut write = |at: u64, data: &[u8]| {
                piece[(at - stretch.start) as usize..][..data.len()].copy_from_slice(data);
                Ok(())
            };
            self.download_stretch(from, offset, stretch, &mut write)
        })
    }

    /// As [`download`](Self::download), of bytes that `write` takes: where they belong, and the bytes. Several threads call it, each
    /// in the order of its own bytes.
    pub fn download_with(
        &self,
        from: &RemoteBlock,
        offset: u64,
        bytes: u64,
        write: impl Fn(u64, &[u8]) -> io::Result<()> + Sync,
    ) -> Result<(), Failure> {
        self.divide(bytes, |stretch| self.download_stretch(from, offset, stretch, &mut |at, data| write(at, data)))
    }

    fn divide(&self, bytes: u64, work: impl Fn(Stretch) -> Result<(), Failure> + Sync) -> Result<(), Failure> {
        all(self.stretches(bytes), work)
    }

    fn stretches(&self, bytes: u64) -> Vec<Stretch> {
        let lanes = (bytes / LANE_BYTES_MIN).clamp(1, self.inner.line.lanes() as u64);
        let each = bytes.div_ceil(lanes).next_multiple_of(CHUNK_BYTES);
        let start = |lane: u64| (lane * each).min(bytes);
        (0..lanes)
            .map(|lane| Stretch { lane: lane as usize, start: start(lane), bytes: start(lane + 1) - start(lane) })
            .collect()
    }

    fn chunk_bytes(&self) -> Result<u64, Failure> {
        Ok(self.opened()?.chunk_bytes_max.min(CHUNK_BYTES))
    }

    fn upload_stretch(
        &self,
        to: &RemoteBlock,
        offset: u64,
        stretch: Stretch,
        read: &(impl Fn(u64, &mut [u8]) -> io::Result<()> + Sync),
    ) -> Result<(), Failure> {
        let (session, inner) = (self.opened()?.session.clone(), &self.inner);
        let number = Numbers::take(&inner.numbers);
        let mut sums = Sums { chunk_bytes: self.chunk_bytes()?, behind: Vec::new() };
        let (mut told, mut waiting) = (Uploaded::default(), None);
        loop {
            let begin = UploadBegin {
                call: Some(call(&session, &number)),
                block: to.number,
                offset: offset + stretch.start,
                bytes: stretch.bytes,
                from: told.bytes,
            };
            let why = match self.try_upload(begin, stretch, &mut sums, read) {
                Ok(()) => return Ok(()),
                Err(Ended::Refused(failure)) => return Err(failure),
                Err(Ended::Lost(why)) => why,
            };
            // Since the connection was lost, and not since the upload began.
            let patience = waiting.get_or_insert_with(|| Waiting::new(inner.line.patience));
            if !inner.runtime().block_on(patience.pause()) {
                return Err(inner.line.lost(&why));
            }
            let request = ResumeRequest { session: session.clone(), number: number.value() };
            let resume = inner.line.repeat(stretch.lane, request, |mut client, request| async move {
                client.resume_upload(request).await
            });
            let before = told.bytes;
            told = inner.runtime().block_on(resume).map_err(|failure| failure.with(CarriedOut::Unknown))?;
            if told.complete {
                return Ok(());
            }
            sums.expect(&told)?;
            if told.bytes > before {
                waiting = None;
            }
        }
    }

    /// Sends what is left of an upload over one connection.
    fn try_upload(
        &self,
        begin: UploadBegin,
        stretch: Stretch,
        sums: &mut Sums,
        read: &(impl Fn(u64, &mut [u8]) -> io::Result<()> + Sync),
    ) -> Result<(), Ended> {
        let (inner, mut at) = (&self.inner, begin.from);
        let (queue, waiting) = mpsc::channel(QUEUE);
        let mut client = inner.line.client(stretch.lane);
        let task = inner.runtime().spawn(async move { client.upload(ReceiverStream::new(waiting)).await });
        let send = |part| queue.blocking_send(UploadMessage { part: Some(part) }).is_ok();
        let mut is_heard = send(Part::Begin(begin));
        while is_heard && at < stretch.bytes {
            let mut data = vec![0; (stretch.bytes - at).min(sums.chunk_bytes) as usize];
            if let Err(error) = read(stretch.start + at, &mut data) {
                task.abort();
                return Err(Ended::Refused(Failure::wrong(format!("what was to be uploaded cannot be read: {error}"))));
            }
            let crc32c = sums.add(at, &data);
            let bytes = data.len() as u64;
            is_heard = send(Part::Chunk(Chunk { at, data: Bytes::from(data), crc32c }));
            at += bytes;
        }
        if is_heard {
            send(Part::End(UploadEnd { crc32c: sums.whole() }));
        }
        drop(queue);
        match inner.runtime().block_on(task) {
            Ok(Ok(told)) if told.get_ref().complete => Ok(()),
            Ok(Ok(_)) => Err(Ended::Lost("the gate has not all of it".to_owned())),
            Ok(Err(status)) => Err(self.ended(&status)),
            Err(error) => Err(Ended::Lost(error.to_string())),
        }
    }

    fn download_stretch(
        &self,
        from: &RemoteBlock,
        offset: u64,
        stretch: Stretch,
        write: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let (session, inner) = (self.opened()?.session.clone(), &self.inner);
        let (mut have, mut waiting) = (0, Waiting::new(inner.line.patience));
        while have < stretch.bytes {
            let request = DownloadRequest {
                session: session.clone(),
                block: from.number,
                offset: offset + stretch.start + have,
                bytes: stretch.bytes - have,
                chunk_bytes: self.chunk_bytes()?,
            };
            let before = have;
            let why = match self.try_download(request, stretch, &mut have, write) {
                Ok(()) => "the download ended early".to_owned(),
                Err(Ended::Refused(failure)) => return Err(failure),
                Err(Ended::Lost(why)) => why,
            };
            if have > before {
                waiting.again();
            }
            if have < stretch.bytes && !inner.runtime().block_on(waiting.pause()) {
                return Err(inner.line.lost(&why));
            }
        }
        Ok(())
    }

    /// Takes what comes over one connection.
    fn try_download(
        &self,
        request: DownloadRequest,
        stretch: Stretch,
        have: &mut u64,
        write: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> Result<(), Ended> {
        let (inner, first, mut so_far) = (&self.inner, *have, 0);
        let mut client = inner.line.client(stretch.lane);
        let begun = inner.runtime().block_on(client.download(request));
        let mut chunks = begun.map_err(|status| self.ended(&status))?.into_inner();
        loop {
            let next = async { tokio::time::timeout(inner.line.patience, chunks.message()).await };
            let next = inner.runtime().block_on(next).map_err(|_| Ended::Lost("nothing came".to_owned()))?;
            let Some(DownloadChunk { chunk, crc32c_so_far }) = next.map_err(|status| self.ended(&status))? else {
                return Ok(());
            };
            let Chunk { at, data, crc32c } = chunk.unwrap_or_default();
            so_far = crc32c::crc32c_combine(so_far, crc32c, data.len());
            let is_whole = crc32c == crc32c::crc32c(&data) && so_far == crc32c_so_far;
            if !is_whole || at != *have - first || data.len() as u64 > stretch.bytes - *have {
                return Err(Ended::Lost(format!("what came for byte {} is not what was sent", stretch.start + *have)));
            }
            let written = write(stretch.start + *have, &data);
            written.map_err(|error| Ended::Refused(Failure::wrong(format!("what came cannot be written: {error}"))))?;
            *have += data.len() as u64;
        }
    }

    /// Whether the next try may go well.
    fn ended(&self, status: &Status) -> Ended {
        match self.inner.line.said(status) {
            Some(failure) if failure.fault == crate::Fault::Connection => Ended::Lost(failure.sentence),
            Some(failure) => Ended::Refused(failure),
            None => Ended::Lost(status.message().to_owned()),
        }
    }
}

/// Checksums of an upload up to the end of each chunk.
struct Sums {
    chunk_bytes: u64,
    behind: Vec<u32>,
}

impl Sums {
    /// The checksum of a chunk.
    fn add(&mut self, at: u64, data: &[u8]) -> u32 {
        let (chunk, crc32c) = ((at / self.chunk_bytes) as usize, crc32c::crc32c(data));
        self.behind.truncate(chunk);
        self.behind.push(crc32c::crc32c_combine(self.whole(), crc32c, data.len()));
        crc32c
    }

    fn whole(&self) -> u32 {
        self.behind.last().copied().unwrap_or(0)
    }

    /// Goes back to where the gate is, which has what was sent.
    fn expect(&mut self, told: &Uploaded) -> Result<(), Failure> {
        self.behind.truncate(told.bytes.div_ceil(self.chunk_bytes) as usize);
        if self.whole() == told.crc32c {
            return Ok(());
        }
        let sentence = "the gate has other bytes than were sent: upload them again".to_owned();
        Err(Failure::connection(sentence).with(CarriedOut::Yes))
    }
}

/// Does all pieces of work at once. The first failure says why.
fn all<P: Send>(pieces: Vec<P>, work: impl Fn(P) -> Result<(), Failure> + Sync) -> Result<(), Failure> {
    thread::scope(|scope| {
        let mut pieces = pieces.into_iter();
        let (first, work) = (pieces.next(), &work);
        let others: Vec<_> = pieces.map(|piece| scope.spawn(move || work(piece))).collect();
        let mut outcome = first.map_or(Ok(()), work);
        for other in others {
            outcome = outcome.and(other.join().expect("a transfer does not panic"));
        }
        outcome
    })
}
