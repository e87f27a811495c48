//! The blocks of a session.

use std::ops::Range;
use std::sync::Mutex;

use freehold::{ImportedSlice, Stream};
use freehold_broker::{Access, Argument, Caller, Lease};
use tonic::Code;

use crate::error::RemoteError;
use crate::sync::lock;

/// A block of a session.
pub(super) struct SessionBlock {
    pub(super) number: u64,
    pub(super) bytes: u64,
    pub(super) access: Access,
    /// `None` if it was freed or published while another call used it.
    lease: Mutex<Option<Lease<u8>>>,
}

pub(super) fn no_such_block(number: u64) -> RemoteError {
    let message = format!("the session has no block {number}: it was freed, published, or never allocated");
    RemoteError::caller(Code::NotFound, message)
}

impl SessionBlock {
    pub(super) fn new(number: u64, lease: Lease<u8>) -> Self {
        Self { number, bytes: lease.len() as u64, access: lease.access(), lease: Mutex::new(Some(lease)) }
    }

    /// Checks the byte range of a transfer.
    pub(super) fn range(&self, offset: u64, bytes: u64) -> Result<Range<u64>, RemoteError> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(offset..end),
            _ => {
                let (number, has) = (self.number, self.bytes);
                let message = format!("block {number} has {has} bytes: {bytes} from byte {offset} on are not in it");
                Err(RemoteError::caller(Code::OutOfRange, message))
            }
        }
    }

    pub(super) fn check_writable(&self) -> Result<(), RemoteError> {
        if self.access == Access::Write {
            return Ok(());
        }
        let message = format!("block {} is read-only: lease it for writing", self.number);
        Err(RemoteError::caller(Code::PermissionDenied, message))
    }

    /// Copies pinned bytes to the block, in stream order.
    pub(super) fn write(&self, stream: &Stream, at: u64, from: &ImportedSlice<u8>) -> Result<(), RemoteError> {
        let mut lease = lock(&self.lease);
        let lease = lease.as_mut().ok_or_else(|| no_such_block(self.number))?;
        let at = at as usize;
        Ok(stream.copy(from, &mut lease.view_mut(at..at + from.len())?)?)
    }

    /// Copies bytes of the block to pinned memory, in stream order.
    pub(super) fn read(&self, stream: &Stream, at: u64, to: &mut ImportedSlice<u8>) -> Result<(), RemoteError> {
        let lease = lock(&self.lease);
        let lease = lease.as_ref().ok_or_else(|| no_such_block(self.number))?;
        let at = at as usize;
        Ok(stream.copy(&lease.view(at..at + to.len())?, to)?)
    }

    /// The block as an argument of a launch, from a byte offset on.
    pub(super) fn argument(&self, caller: &Caller, offset: u64) -> Result<Argument<'static>, RemoteError> {
        let lease = lock(&self.lease);
        let lease = lease.as_ref().ok_or_else(|| no_such_block(self.number))?;
        // SAFETY: the block belongs to the client, whose copies and launches use it in the order that the client chose:
        // it may change under each of them.
        Ok(unsafe { caller.argument(lease.id(), offset) })
    }

    pub(super) fn take_lease(&self) -> Result<Lease<u8>, RemoteError> {
        lock(&self.lease).take().ok_or_else(|| no_such_block(self.number))
    }

    /// Undoes [`take_lease`](Self::take_lease).
    pub(super) fn restore_lease(&self, lease: Lease<u8>) {
        *lock(&self.lease) = Some(lease);
    }
}
