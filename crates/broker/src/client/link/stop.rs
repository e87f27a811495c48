//! The end of a broker, as who asks for it hears of it.

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;
use rustix::io::Errno;

use super::{Link, LinkError};
use crate::wire::{Reply, Request};

/// What was under names at a broker that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopReport {
    pub names: u64,
    pub bytes: u64,
}

impl Link {
    /// Has the broker end, and its fdstore with it, and waits for so long at the most until they have. Then another can serve the
    /// place. Where there are names, only by force.
    ///
    /// # Errors
    /// [`Refusal::HasNames`](crate::wire::RequestError::NamesPublished), [`Refusal::NotAllowed`](crate::wire::RequestError::NotAllowed);
    /// [`LinkError::TimedOut`] where one of the two goes on.
    pub fn stop(mut self, is_forced: bool, longest: Duration) -> Result<StopReport, LinkError> {
        let Reply::Number { id, bytes } = self.call(Request::Stop { is_forced })?.reply else {
            return Err(LinkError::Malformed);
        };
        self.is_closed = true;
        // Both have the socket: it is hung up when the last of them has.
        let longest = Timespec { tv_sec: longest.as_secs() as i64, tv_nsec: i64::from(longest.subsec_nanos()) };
        loop {
            match poll(&mut [PollFd::new(&self.socket, PollFlags::RDHUP)], Some(&longest)) {
                Ok(0) => return Err(LinkError::TimedOut),
                Ok(_) => return Ok(StopReport { names: id.0, bytes }),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
