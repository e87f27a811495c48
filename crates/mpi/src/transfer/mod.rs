//! Transfers as work that goes on a little each time it is asked to, and never waits. Who asks is the caller of a blocking call, or
//! the engine's thread.

mod chunks;
mod control;
mod envelope;
pub(crate) mod receive;
pub(crate) mod send;
mod shared;

use crate::error::{Error, Result, TransferError};
use crate::raw::CallError;
use crate::world_inner::WorldInner;

/// What arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    pub source: i32,
    pub tag: i32,
    pub bytes: usize,
}

impl Received {
    /// How many elements that is; bytes that are no whole one are not counted.
    pub fn len<T>(&self) -> usize {
        self.bytes.checked_div(size_of::<T>()).unwrap_or(0)
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// What work other than a receipt returns.
    pub(crate) const EMPTY: Self = Self { source: -1, tag: -1, bytes: 0 };
}

/// With which other work it is posted in the order of the calls: messages between two ranks do not overtake each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatchOrder {
    Send {
        to: i32,
    },
    /// None: from any.
    Receive {
        from: Option<i32>,
    },
    Collective,
    /// With none.
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

/// A transfer that is under way. Its memory is lent for as long as it lives.
pub(crate) trait Operation: Send {
    fn order(&self) -> MatchOrder;

    /// Whether later work may be posted.
    fn is_posted(&self) -> bool;

    /// Goes on as far as it can: what arrived, when it is over. It is not asked again then, nor after an error.
    fn advance(&mut self, world: &WorldInner) -> Result<Option<Received>>;

    /// The rank among those that died without which this cannot end.
    fn missing_rank(&self, world: &WorldInner) -> Option<i32>;

    /// What it is called if it fails.
    fn describe(&self) -> TransferError;

    /// Gives up: nothing of it is under way any more when this returns.
    fn abort(&mut self, world: &WorldInner);
}

/// How often work goes on that needs a rank which has died: what that sent before may be here already.
const LAST_ROUNDS: usize = 1000;

/// Goes on with work, and gives it up where it fails, or where a rank that it needs has died.
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

/// The error of a transfer that the library refused.
pub(crate) fn transfer_error(title: TransferError, code: CallError) -> Error {
    Error::Transfer(Box::new(TransferError { message: code.message, ..title }))
}
