//! Stops a broker, and waits until it has stopped.

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::connection::Link;
use super::error::LinkError;
use crate::os::time::timespec;
use crate::protocol::message::{Reply, Request};
use crate::protocol::types::{high, low};

/// The names and modules that were published at a stopped broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopReport {
    /// How many names there were.
    pub names: u32,
    /// How many modules there were, not counting the library's own.
    pub modules: u32,
    /// How much memory the names had.
    pub bytes: u64,
}

impl Link {
    /// Stops the broker and its fdstore, and waits until they have exited, at most `longest`. Then another broker can
    /// use the path. If names or modules are published, `is_forced` must be set.
    ///
    /// # Errors
    /// [`NamesPublished`](crate::wire::RequestError::NamesPublished),
    /// [`NotAllowed`](crate::wire::RequestError::NotAllowed); [`LinkError::TimedOut`] if one of the two is still
    /// running.
    pub fn stop(mut self, is_forced: bool, longest: Duration) -> Result<StopReport, LinkError> {
        let Reply::Number { id, bytes } = self.call(Request::Stop { is_forced })?.reply else {
            return Err(LinkError::Malformed);
        };
        self.is_closed = true;
        // Both processes hold the socket: it closes when the last of them exits.
        let longest = timespec(longest);
        loop {
            match poll(&mut [PollFd::new(&self.socket, PollFlags::RDHUP)], Some(&longest)) {
                Ok(0) => return Err(LinkError::TimedOut),
                Ok(_) => return Ok(StopReport { names: low(id.0), modules: high(id.0), bytes }),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
