//! Pipelined lease requests: many are in the ring at once, and the broker answers one while the next is sent.

use super::connection::{Granted, Link};
use super::error::LinkError;
use crate::protocol::message::Request;
use crate::protocol::types::{Access, Fence, Id};

/// Requests in flight at a time. The ring holds more.
const BATCH_MAX: usize = 64;

impl Link {
    /// Leases several pieces of new memory: all of them, or none.
    ///
    /// # Errors
    /// Those of [`reserve`](Self::reserve), for the first request that failed; the other leases are returned.
    pub fn reserve_all(&mut self, bytes: &[u64]) -> Result<Vec<Granted>, LinkError> {
        self.request_leases(bytes.iter().map(|&bytes| Request::Reserve { bytes }))
    }

    /// Leases several names: all of them, or none.
    ///
    /// # Errors
    /// Those of [`lease`](Self::lease), for the first request that failed; the other leases are returned.
    pub fn lease_all(&mut self, names: &[(Id, Access)]) -> Result<Vec<Granted>, LinkError> {
        self.request_leases(names.iter().map(|&(name, access)| Request::Lease { name, access, bytes: 0 }))
    }

    fn request_leases(
        &mut self,
        mut requests: impl ExactSizeIterator<Item = Request>,
    ) -> Result<Vec<Granted>, LinkError> {
        let mut granted = Vec::with_capacity(requests.len());
        while requests.len() != 0 {
            if let Err(error) = self.request_batch(requests.by_ref().take(BATCH_MAX), &mut granted) {
                for lease in granted {
                    self.return_lease(lease.lease, Fence::default())?;
                }
                return Err(error);
            }
        }
        Ok(granted)
    }

    fn request_batch(
        &mut self,
        requests: impl Iterator<Item = Request>,
        granted: &mut Vec<Granted>,
    ) -> Result<(), LinkError> {
        // The ring must have room for all of them: waiting for room would discard replies.
        self.wait(|link| {
            link.drain();
            link.unanswered == 0
        })?;
        let mut numbers = [0; BATCH_MAX];
        let mut count = 0;
        for request in requests {
            numbers[count] = self.push_request(request)?;
            count += 1;
        }
        let mut first = Ok(());
        for &number in &numbers[..count] {
            first = first.and(self.reply_to(number)?.try_into().map(|one| granted.push(one)));
        }
        first
    }
}
