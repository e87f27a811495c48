//! Many leases at once: their requests lie in the ring side by side, and the broker answers one while the next is on its way.

use super::{Granted, Link, LinkError};
use crate::wire::{Access, Id, Point, Request};

/// How many requests are on their way at a time. The ring holds more.
const MANY: usize = 64;

impl Link {
    /// Memory of its own, as often as there are lengths: all of it, or none.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve), of the first that was refused; the others are given back.
    pub fn reserve_all(&mut self, bytes: &[u64]) -> Result<Vec<Granted>, LinkError> {
        self.granted_all(bytes.iter().map(|&bytes| Request::Reserve { bytes }))
    }

    /// Leases of what has names: all of them, or none.
    ///
    /// # Errors
    /// As [`lease`](Self::lease), of the first that was refused; the others are given back.
    pub fn lease_all(&mut self, names: &[(Id, Access)]) -> Result<Vec<Granted>, LinkError> {
        self.granted_all(names.iter().map(|&(name, access)| Request::Lease { name, access }))
    }

    fn granted_all(&mut self, mut requests: impl ExactSizeIterator<Item = Request>) -> Result<Vec<Granted>, LinkError> {
        let mut granted = Vec::with_capacity(requests.len());
        while requests.len() != 0 {
            if let Err(error) = self.granted_some(requests.by_ref().take(MANY), &mut granted) {
                for lease in granted {
                    self.give_back(lease.lease, Point::default())?;
                }
                return Err(error);
            }
        }
        Ok(granted)
    }

    fn granted_some(
        &mut self,
        requests: impl Iterator<Item = Request>,
        granted: &mut Vec<Granted>,
    ) -> Result<(), LinkError> {
        // So that the ring has room for all of them: a request that waited for room would let replies pass by.
        self.wait(|link| {
            link.drain();
            link.unanswered == 0
        })?;
        let mut numbers = [0; MANY];
        let mut count = 0;
        for request in requests {
            numbers[count] = self.put(request)?;
            count += 1;
        }
        let mut first = Ok(());
        for &number in &numbers[..count] {
            first = first.and(self.reply_to(number)?.try_into().map(|one| granted.push(one)));
        }
        first
    }
}
