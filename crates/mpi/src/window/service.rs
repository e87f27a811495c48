//! Serves windows: requests of other ranks, and the transfers for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use freehold::ExternalAccess;

use crate::error::{Result, TransferError};
use crate::raw::{Comm, RawRequest, Redistribution, Span, any_source};
use crate::transfer::receive::Receive;
use crate::transfer::send::Send;
use crate::transfer::{MatchOrder, Operation, Received, transfer_error};
use crate::world_inner::{MessageId, WorldInner};

const REQUEST_BYTES: usize = 32;

/// The number of requests is unknown until all ranks have reported theirs.
pub(super) const UNKNOWN: u64 = u64::MAX;

/// A request to another rank: to receive bytes for its window, or to send some of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WindowRequest {
    pub(super) is_get: bool,
    /// In bytes from the start of the window.
    pub(super) start: u64,
    pub(super) bytes: u64,
    /// The tag of the message with the data.
    pub(super) tag: i32,
}

impl WindowRequest {
    fn encode(self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        let words = [u64::from(self.is_get), self.start, self.bytes, self.tag as u64];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8; REQUEST_BYTES]) -> Self {
        let (words, _) = bytes.as_chunks::<8>();
        let word = |index: usize| u64::from_le_bytes(words[index]);
        Self { is_get: word(0) != 0, start: word(1), bytes: word(2), tag: word(3) as i32 }
    }
}

/// A request to another rank, and its transfer.
pub(super) struct RequestSender {
    comm: Comm,
    rank: i32,
    bytes: Box<[u8; REQUEST_BYTES]>,
    request: SendState,
    transfer: Option<Box<dyn Operation>>,
    /// Keeps the tag reserved.
    message_id: Option<MessageId>,
    title: TransferError,
}

enum SendState {
    Unsent,
    Sending(RawRequest),
    Done,
}

impl RequestSender {
    pub(super) fn new(
        comm: Comm,
        rank: i32,
        (asked, number): (WindowRequest, MessageId),
        moving: Box<dyn Operation>,
    ) -> Self {
        let (bytes, title) = (Box::new(asked.encode()), moving.describe());
        let what = if asked.is_get { "getting" } else { "putting" };
        let title = TransferError { what, tag: None, ..title };
        Self { comm, rank, bytes, request: SendState::Unsent, transfer: Some(moving), message_id: Some(number), title }
    }
}

impl Operation for RequestSender {
    fn order(&self) -> MatchOrder {
        MatchOrder::Free
    }

    fn is_posted(&self) -> bool {
        true
    }

    fn advance(&mut self, world: &WorldInner) -> Result<Option<Received>> {
        if let SendState::Unsent = self.request {
            // SAFETY: the box is kept until the call is complete, and nothing changes it.
            let pending = unsafe { world.library.isend(self.comm, Span::from_slice(&self.bytes[..]), self.rank, 0) };
            self.request = SendState::Sending(pending.map_err(|code| transfer_error(self.describe(), code))?);
        }
        if let SendState::Sending(pending) = &mut self.request
            && world.library.test(pending).map_err(|code| transfer_error(self.title.clone(), code))?.is_some()
        {
            self.request = SendState::Done;
        }
        if let Some(moving) = &mut self.transfer
            && moving.advance(world)?.is_some()
        {
            self.transfer = None;
        }
        let is_over = self.transfer.is_none() && matches!(self.request, SendState::Done);
        if is_over {
            self.message_id = None;
        }
        Ok(is_over.then_some(Received::EMPTY))
    }

    fn missing_rank(&self, world: &WorldInner) -> Option<i32> {
        world.liveness.has_died(self.rank).then_some(self.rank)
    }

    fn describe(&self) -> TransferError {
        self.title.clone()
    }

    fn abort(&mut self, world: &WorldInner) {
        if let SendState::Sending(pending) = std::mem::replace(&mut self.request, SendState::Done)
            && !world.library.cancel(pending)
        {
            // The library may still read them.
            std::mem::forget(std::mem::replace(&mut self.bytes, Box::new([0; REQUEST_BYTES])));
        }
        if let Some(mut moving) = self.transfer.take() {
            moving.abort(world);
        }
        if let Some(number) = self.message_id.take() {
            number.leak();
        }
    }
}

/// Serves this rank's window during an epoch.
pub(super) struct WindowServer {
    requests: Comm,
    data: Comm,
    access: Option<ExternalAccess>,
    memory: Span,
    /// How many requests to expect in total.
    expected: Arc<AtomicU64>,
    started: u64,
    receiving: Option<(Box<[u8; REQUEST_BYTES]>, RawRequest)>,
    transfers: Vec<Box<dyn Operation>>,
    is_written: bool,
}

impl WindowServer {
    pub(super) fn new(requests: Comm, data: Comm, access: ExternalAccess, expected: Arc<AtomicU64>) -> Self {
        let memory = Span { address: access.address(), bytes: access.bytes() };
        let (access, listening, moving) = (Some(access), None, Vec::new());
        Self {
            requests,
            data,
            access,
            memory,
            expected,
            started: 0,
            receiving: listening,
            transfers: moving,
            is_written: false,
        }
    }

    fn listen(&mut self, world: &WorldInner) -> Result<()> {
        if self.receiving.is_none() {
            let room = Box::new([0; REQUEST_BYTES]);
            // SAFETY: the box is kept until the call is complete, and nothing reads it before.
            let pending = unsafe { world.library.irecv(self.requests, Span::from_slice(&room[..]), any_source(), 0) };
            self.receiving = Some((room, pending.map_err(|code| transfer_error(self.describe(), code))?));
        }
        Ok(())
    }

    /// Starts the transfers for requests that have arrived since the last poll.
    fn recv_request(&mut self, world: &WorldInner) -> Result<()> {
        while self.started < self.expected.load(Ordering::Acquire) {
            self.listen(world)?;
            let title = self.describe();
            let Some((room, pending)) = &mut self.receiving else { unreachable!("a receive was just posted") };
            let status = world.library.test(pending).map_err(|code| transfer_error(title, code))?;
            let Some(status) = status else { return Ok(()) };
            let asked = WindowRequest::decode(room);
            self.receiving = None;
            self.started += 1;
            let part = self.memory.slice(asked.start as usize, asked.bytes as usize);
            if asked.is_get {
                self.transfers.push(Box::new(Send::for_span(self.data, status.source, asked.tag, part)));
            } else {
                self.is_written = true;
                self.transfers.push(Box::new(Receive::for_span(self.data, Some(status.source), Some(asked.tag), part)));
            }
        }
        Ok(())
    }
}

impl Operation for WindowServer {
    fn order(&self) -> MatchOrder {
        MatchOrder::Free
    }

    fn is_posted(&self) -> bool {
        true
    }

    fn advance(&mut self, world: &WorldInner) -> Result<Option<Received>> {
        let access = self.access.as_ref().expect("the window is lent until the epoch ends");
        if !access.is_ready()? {
            return Ok(None);
        }
        self.recv_request(world)?;
        let mut moved = Ok(());
        self.transfers.retain_mut(|moving| match moving.advance(world) {
            Ok(received) => received.is_none(),
            Err(error) => {
                moving.abort(world);
                moved = Err(error);
                false
            }
        });
        moved?;
        if self.started < self.expected.load(Ordering::Acquire) || !self.transfers.is_empty() {
            return Ok(None);
        }
        // All requests have been served, and no rank sends another before all have ended the epoch.
        if let Some((room, pending)) = self.receiving.take()
            && !world.library.cancel(pending)
        {
            std::mem::forget(room);
        }
        self.access.take().expect("the window is lent until the epoch ends").done();
        Ok(Some(Received::EMPTY))
    }

    fn missing_rank(&self, world: &WorldInner) -> Option<i32> {
        world.liveness.first_dead()
    }

    fn describe(&self) -> TransferError {
        let bytes = self.memory.bytes as u64;
        TransferError { what: "serving a window of", rank: None, tag: None, bytes, message: Box::default() }
    }

    fn abort(&mut self, world: &WorldInner) {
        if let Some((room, pending)) = self.receiving.take()
            && !world.library.cancel(pending)
        {
            std::mem::forget(room);
        }
        self.transfers.drain(..).for_each(|mut moving| moving.abort(world));
        if let Some(access) = self.access.take() {
            if self.is_written { access.failed() } else { access.done() }
        }
    }
}

/// Sums the requests of all ranks to this one, which it then expects.
pub(super) struct RequestCount {
    comm: Comm,
    requested: Vec<u64>,
    counts: Vec<u64>,
    expected: Arc<AtomicU64>,
    pending: Option<RawRequest>,
}

impl RequestCount {
    pub(super) fn new(comm: Comm, asked: Vec<u64>, expected: Arc<AtomicU64>) -> Self {
        let counts = vec![0; asked.len()];
        Self { comm, requested: asked, counts, expected, pending: None }
    }
}

impl Operation for RequestCount {
    fn order(&self) -> MatchOrder {
        MatchOrder::Free
    }

    fn is_posted(&self) -> bool {
        true
    }

    fn advance(&mut self, world: &WorldInner) -> Result<Option<Received>> {
        let title = self.describe();
        let pending = match &mut self.pending {
            Some(pending) => pending,
            none => {
                let ends = (Span::from_slice(&self.requested), Span::from_slice(&self.counts));
                // SAFETY: both lists have one number per rank and are kept until the call is complete; nothing else
                // uses them until then.
                let pending =
                    unsafe { world.library.iredistribute(self.comm, Redistribution::AllToAll, ends, size_of::<u64>()) };
                none.insert(pending.map_err(|code| transfer_error(title.clone(), code))?)
            }
        };
        if world.library.test(pending).map_err(|code| transfer_error(title, code))?.is_none() {
            return Ok(None);
        }
        self.pending = None;
        self.expected.store(self.counts.iter().sum(), Ordering::Release);
        Ok(Some(Received::EMPTY))
    }

    fn missing_rank(&self, world: &WorldInner) -> Option<i32> {
        world.liveness.first_dead()
    }

    fn describe(&self) -> TransferError {
        let bytes = size_of_val(&self.requested[..]) as u64;
        TransferError { what: "counting requests in", rank: None, tag: None, bytes, message: Box::default() }
    }

    fn abort(&mut self, _: &WorldInner) {
        if self.pending.take().is_some() {
            // Collective calls cannot be cancelled: the library may still use both.
            std::mem::forget((std::mem::take(&mut self.requested), std::mem::take(&mut self.counts)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_request_round_trips() {
        for is_get in [false, true] {
            let asked = WindowRequest { is_get, start: 0x1_0000_0001, bytes: 12, tag: 0x7fff };
            assert_eq!(WindowRequest::decode(&asked.encode()), asked);
        }
    }
}
