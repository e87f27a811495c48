//! Transfers as state machines that advance when polled and never block. Either the caller of a blocking call or the
//! progress thread polls them.

mod chunks;
mod control;
mod envelope;
pub(crate) mod receive;
pub(crate) mod send;
mod shared;

use crate::error::{Error, Result, TransferError};
use crate::raw::CallError;
use crate::world_inner::WorldInner;

/// A received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    pub source: i32,
    pub tag: i32,
    pub bytes: usize,
}

impl Received {
    /// Returns the number of whole elements.
    pub fn len<T>(&self) -> usize {
        self.bytes.checked_div(size_of::<T>()).unwrap_or(0)
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The result of operations other than receives.
    pub(crate) const EMPTY: Self = Self { source: -1, tag: -1, bytes: 0 };
}

/// Which other operations must be posted in the order of the calls: messages between two ranks do not overtake each
/// other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatchOrder {
    Send {
        to: i32,
    },
    /// `None`: from any rank.
    Receive {
        from: Option<i32>,
    },
    Collective,
    /// Any order.
    Free,
}

impl MatchOrder {
    pub(crate) fn must_follow(self, earlier: Self) -> bool {
        match (self, earlier) {
            (Self::Send { to }, Self::Send { to: other }) => to == other,
            (Self::Receive { from: Some(from) }, Self::Receive { from: Some(other) }) => from == other,
            (Self::Receive { .. }, Self::Receive { .. }) | (Self::Collective, Self::Collective) => true,
            _ => false,
        }
    }
}

/// A pending transfer. Its memory is lent to it until it is dropped.
pub(crate) trait Operation: Send {
    fn order(&self) -> MatchOrder;

    /// Returns whether later operations may be posted.
    fn is_posted(&self) -> bool;

    /// Makes progress. Returns the received message once complete; not called again then, nor after an error.
    fn advance(&mut self, world: &WorldInner) -> Result<Option<Received>>;

    /// Returns a dead rank without which this operation cannot complete.
    fn missing_rank(&self, world: &WorldInner) -> Option<i32>;

    /// Describes the operation for an error.
    fn describe(&self) -> TransferError;

    /// Gives up. Nothing is in flight when this returns.
    fn abort(&mut self, world: &WorldInner);
}

/// How many polls an operation gets that needs a dead rank: messages sent before the rank died may have arrived
/// already.
const LAST_ROUNDS: usize = 1000;

/// Polls an operation, and aborts it if it fails or needs a rank that has died.
pub(crate) fn poll(work: &mut dyn Operation, world: &WorldInner, has_news: bool) -> Option<Result<Received>> {
    let rank = if has_news { work.missing_rank(world) } else { None };
    let rounds = if rank.is_some() { LAST_ROUNDS } else { 1 };
    let advanced = (0..rounds).find_map(|_| work.advance(world).transpose());
    let outcome = match (advanced.transpose(), rank) {
        (Ok(None), None) => return None,
        (Ok(None), Some(rank)) => Err(Error::RankDied(Box::new(TransferError { rank: Some(rank), ..work.describe() }))),
        (Ok(Some(received)), _) => return Some(Ok(received)),
        (Err(error), _) => Err(error),
    };
    work.abort(world);
    Some(outcome)
}

/// Returns the error of a transfer that the library reported.
pub(crate) fn transfer_error(title: TransferError, code: CallError) -> Error {
    Error::Transfer(Box::new(TransferError { message: code.message, ..title }))
}
