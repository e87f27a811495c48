//! Uploads and downloads: divided among connections, in chunks with checksums, and resumed after a lost connection.

use std::io;
use std::thread;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::call_numbers::CallNumbers;
use super::connection::RetryDelay;
use super::remote::{Remote, RemoteBlock, proto_call};
use crate::error::{ErrorOrigin, Executed, RemoteError};
use crate::proto::upload_message::Part;
use crate::proto::{Chunk, DownloadChunk, DownloadRequest, ResumeRequest};
use crate::proto::{UploadBegin, UploadEnd, UploadMessage, Uploaded};

const CHUNK_BYTES: u64 = 1 << 20;

/// One more connection is used for each of this many bytes.
const CHANNEL_BYTES_MIN: u64 = 16 << 20;

/// Chunks that wait for the network.
const QUEUE: usize = 2;

/// A part of a transfer: its connection and its byte range.
#[derive(Clone, Copy)]
struct TransferRange {
    channel: usize,
    start: u64,
    bytes: u64,
}

/// Why a try of a transfer ended.
enum TransferError {
    /// The next try may succeed.
    Retryable(String),
    Fatal(RemoteError),
}

impl Remote {
    /// Copies bytes to a block, from `offset` on. They are there when this returns.
    pub fn upload(&self, to: &RemoteBlock, offset: u64, bytes: &[u8]) -> Result<(), RemoteError> {
        self.upload_with(to, offset, bytes.len() as u64, |at, piece| {
            piece.copy_from_slice(&bytes[at as usize..][..piece.len()]);
            Ok(())
        })
    }

    /// Like [`upload`](Self::upload), with bytes from `read`, which fills a buffer from the given position on. Several
    /// threads call it, and bytes that were lost are read again.
    pub fn upload_with(
        &self,
        to: &RemoteBlock,
        offset: u64,
        bytes: u64,
        read: impl Fn(u64, &mut [u8]) -> io::Result<()> + Sync,
    ) -> Result<(), RemoteError> {
        self.for_each_range(bytes, |range| self.upload_range(to, offset, range, &read))
    }

    /// Copies bytes from a block, from `offset` on.
    pub fn download(&self, from: &RemoteBlock, offset: u64, bytes: &mut [u8]) -> Result<(), RemoteError> {
        let ranges = self.ranges(bytes.len() as u64);
        let mut rest = bytes;
        let mut pieces = Vec::new();
        for range in ranges {
            let (piece, behind) = rest.split_at_mut(range.bytes as usize);
            pieces.push((range, piece));
            rest = behind;
        }
        run_parallel(pieces, |(range, piece)| {
            let mut write = |at: u64, data: &[u8]| {
                piece[(at - range.start) as usize..][..data.len()].copy_from_slice(data);
                Ok(())
            };
            self.download_range(from, offset, range, &mut write)
        })
    }

    /// Like [`download`](Self::download), with bytes passed to `write` together with their position. Several threads
    /// call it, each in the order of its own bytes.
    pub fn download_with(
        &self,
        from: &RemoteBlock,
        offset: u64,
        bytes: u64,
        write: impl Fn(u64, &[u8]) -> io::Result<()> + Sync,
    ) -> Result<(), RemoteError> {
        self.for_each_range(bytes, |range| self.download_range(from, offset, range, &mut |at, data| write(at, data)))
    }

    fn for_each_range(
        &self,
        bytes: u64,
        work: impl Fn(TransferRange) -> Result<(), RemoteError> + Sync,
    ) -> Result<(), RemoteError> {
        run_parallel(self.ranges(bytes), work)
    }

    fn ranges(&self, bytes: u64) -> Vec<TransferRange> {
        let channels = (bytes / CHANNEL_BYTES_MIN).clamp(1, self.inner.connection.channel_count() as u64);
        let each = bytes.div_ceil(channels).next_multiple_of(CHUNK_BYTES);
        let start = |channel: u64| (channel * each).min(bytes);
        (0..channels)
            .map(|channel| TransferRange {
                channel: channel as usize,
                start: start(channel),
                bytes: start(channel + 1) - start(channel),
            })
            .collect()
    }

    fn chunk_bytes(&self) -> Result<u64, RemoteError> {
        Ok(self.session()?.chunk_bytes_max.min(CHUNK_BYTES))
    }

    fn upload_range(
        &self,
        to: &RemoteBlock,
        offset: u64,
        range: TransferRange,
        read: &(impl Fn(u64, &mut [u8]) -> io::Result<()> + Sync),
    ) -> Result<(), RemoteError> {
        let (session, inner) = (self.session()?.key.clone(), &self.inner);
        let number = CallNumbers::next(&inner.call_numbers);
        let mut checksums = Checksums { chunk_bytes: self.chunk_bytes()?, prefixes: Vec::new() };
        let (mut told, mut waiting) = (Uploaded::default(), None);
        loop {
            let begin = UploadBegin {
                call: Some(proto_call(&session, &number)),
                block: to.number,
                offset: offset + range.start,
                bytes: range.bytes,
                from: told.bytes,
            };
            let why = match self.try_upload(begin, range, &mut checksums, read) {
                Ok(()) => return Ok(()),
                Err(TransferError::Fatal(failure)) => return Err(failure),
                Err(TransferError::Retryable(why)) => why,
            };
            // Counted from the loss of the connection, not from the start of the upload.
            let retry_delay = waiting.get_or_insert_with(|| RetryDelay::new(inner.connection.retry_timeout));
            if !inner.block_on(retry_delay.wait()) {
                return Err(inner.connection.lost_error(&why));
            }
            let request = ResumeRequest { session: session.clone(), number: number.value() };
            let resume = inner.connection.call(range.channel, &request);
            let before = told.bytes;
            told = inner.block_on(resume).map_err(|failure| failure.with_executed(Executed::Unknown))?;
            if told.complete {
                return Ok(());
            }
            checksums.rewind_to(&told)?;
            if told.bytes > before {
                waiting = None;
            }
        }
    }

    /// Sends the rest of an upload over one connection.
    fn try_upload(
        &self,
        begin: UploadBegin,
        range: TransferRange,
        checksums: &mut Checksums,
        read: &(impl Fn(u64, &mut [u8]) -> io::Result<()> + Sync),
    ) -> Result<(), TransferError> {
        let (inner, mut at) = (&self.inner, begin.from);
        let (queue, waiting) = mpsc::channel(QUEUE);
        let mut client = inner.connection.client(range.channel);
        let task = inner.runtime().spawn(async move { client.upload(ReceiverStream::new(waiting)).await });
        let send = |part| queue.blocking_send(UploadMessage { part: Some(part) }).is_ok();
        let mut is_heard = send(Part::Begin(begin));
        while is_heard && at < range.bytes {
            let mut data = vec![0; (range.bytes - at).min(checksums.chunk_bytes) as usize];
            if let Err(error) = read(range.start + at, &mut data) {
                task.abort();
                return Err(TransferError::Fatal(RemoteError::invalid_argument(format!(
                    "cannot read the data to upload: {error}"
                ))));
            }
            let crc32c = checksums.add(at, &data);
            let bytes = data.len() as u64;
            is_heard = send(Part::Chunk(Chunk { at, data: Bytes::from(data), crc32c }));
            at += bytes;
        }
        if is_heard {
            send(Part::End(UploadEnd { crc32c: checksums.total() }));
        }
        drop(queue);
        match inner.block_on(task) {
            Ok(Ok(told)) if told.complete => Ok(()),
            Ok(Ok(_)) => Err(TransferError::Retryable("the server does not have all of it".to_owned())),
            Ok(Err(status)) => Err(self.transfer_error(&status)),
            Err(error) => Err(TransferError::Retryable(error.to_string())),
        }
    }

    fn download_range(
        &self,
        from: &RemoteBlock,
        offset: u64,
        range: TransferRange,
        write: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> Result<(), RemoteError> {
        let (session, inner) = (self.session()?.key.clone(), &self.inner);
        let (mut have, mut waiting) = (0, RetryDelay::new(inner.connection.retry_timeout));
        while have < range.bytes {
            let request = DownloadRequest {
                session: session.clone(),
                block: from.number,
                offset: offset + range.start + have,
                bytes: range.bytes - have,
                chunk_bytes: self.chunk_bytes()?,
            };
            let before = have;
            let why = match self.try_download(request, range, &mut have, write) {
                Ok(()) => "the download ended early".to_owned(),
                Err(TransferError::Fatal(failure)) => return Err(failure),
                Err(TransferError::Retryable(why)) => why,
            };
            if have > before {
                waiting.reset();
            }
            if have < range.bytes && !inner.block_on(waiting.wait()) {
                return Err(inner.connection.lost_error(&why));
            }
        }
        Ok(())
    }

    /// Receives the rest of a download over one connection.
    fn try_download(
        &self,
        request: DownloadRequest,
        range: TransferRange,
        have: &mut u64,
        write: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> Result<(), TransferError> {
        let (inner, first, mut so_far) = (&self.inner, *have, 0);
        let mut client = inner.connection.client(range.channel);
        let begun = inner.block_on(client.download(request));
        let mut chunks = begun.map_err(|status| self.transfer_error(&status))?;
        loop {
            let next = async { tokio::time::timeout(inner.connection.retry_timeout, chunks.message()).await };
            let next = inner.block_on(next).map_err(|_| TransferError::Retryable("no answer".to_owned()))?;
            let Some(DownloadChunk { chunk, crc32c_so_far }) = next.map_err(|status| self.transfer_error(&status))?
            else {
                return Ok(());
            };
            let Chunk { at, data, crc32c } = chunk.unwrap_or_default();
            so_far = crc32c::crc32c_combine(so_far, crc32c, data.len());
            let is_whole = crc32c == crc32c::crc32c(&data) && so_far == crc32c_so_far;
            if !is_whole || at != *have - first || data.len() as u64 > range.bytes - *have {
                return Err(TransferError::Retryable(format!("wrong checksum at byte {}", range.start + *have)));
            }
            let written = write(range.start + *have, &data);
            written.map_err(|error| {
                TransferError::Fatal(RemoteError::invalid_argument(format!(
                    "cannot write the downloaded data: {error}"
                )))
            })?;
            *have += data.len() as u64;
        }
    }

    /// Whether the next try may succeed.
    fn transfer_error(&self, status: &Status) -> TransferError {
        match self.inner.connection.server_error(status) {
            Some(failure) if failure.origin == ErrorOrigin::Connection => TransferError::Retryable(failure.message),
            Some(failure) => TransferError::Fatal(failure),
            None => TransferError::Retryable(status.message().to_owned()),
        }
    }
}

/// Checksums of an upload up to the end of each chunk.
struct Checksums {
    chunk_bytes: u64,
    prefixes: Vec<u32>,
}

impl Checksums {
    /// Adds a chunk and returns its checksum.
    fn add(&mut self, at: u64, data: &[u8]) -> u32 {
        let (chunk, crc32c) = ((at / self.chunk_bytes) as usize, crc32c::crc32c(data));
        self.prefixes.truncate(chunk);
        self.prefixes.push(crc32c::crc32c_combine(self.total(), crc32c, data.len()));
        crc32c
    }

    fn total(&self) -> u32 {
        self.prefixes.last().copied().unwrap_or(0)
    }

    /// Goes back to the position of the server, if its checksum matches what was sent.
    fn rewind_to(&mut self, told: &Uploaded) -> Result<(), RemoteError> {
        self.prefixes.truncate(told.bytes.div_ceil(self.chunk_bytes) as usize);
        if self.total() == told.crc32c {
            return Ok(());
        }
        let message = "the server has different bytes than were sent: upload them again".to_owned();
        Err(RemoteError::connection(message).with_executed(Executed::Yes))
    }
}

/// Does all pieces of work in parallel. Returns the first error.
fn run_parallel<P: Send>(
    pieces: Vec<P>,
    work: impl Fn(P) -> Result<(), RemoteError> + Sync,
) -> Result<(), RemoteError> {
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
