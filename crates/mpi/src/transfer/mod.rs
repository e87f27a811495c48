//! Transfers as work that goes on a little each time it is asked to, and never waits. Who asks is the caller of a blocking call, or
//! the engine's thread.

mod chunks;
mod envelope;
mod line;
pub(crate) mod receive;
pub(crate) mod send;
mod shared;

use crate::error::{Error, Failed, Result};
use crate::ranks::Ranks;
use crate::raw::Code;

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
    pub(crate) const NOTHING: Self = Self { source: -1, tag: -1, bytes: 0 };
}

/// With which other work it is posted in the order of the calls: messages between two ranks do not overtake each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
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

impl Order {
    pub(crate) fn is_behind(self, earlier: Self) -> bool {
        match (self, earlier) {
            (Self::Send { to }, Self::Send { to: other }) => to == other,
            (Self::Receive { from: Some(from) }, Self::Receive { from: Some(other) }) => from == other,
            (Self::Receive { .. }, Self::Receive { .. }) | (Self::Collective, Self::Collective) => true,
            _ => false,
        }
    }
}

/// A transfer that is under way. Its memory is lent for as long as it lives.
pub(crate) trait Work: Send {
    fn order(&self) -> Order;

    /// Whether later work may be posted.
    fn is_posted(&self) -> bool;

    /// Goes on as far as it can: what arrived, when it is over. It is not asked again then, nor after an error.
    fn advance(&mut self, ranks: &Ranks) -> Result<Option<Received>>;

    /// The rank among those that died without which this cannot end.
    fn lacks(&self, ranks: &Ranks) -> Option<i32>;

    /// What it is called if it fails.
    fn title(&self) -> Failed;

    /// Gives up: nothing of it is under way any more when this returns.
    fn give_up(&mut self, ranks: &Ranks);
}

/// How often work goes on that needs a rank which has died: what that sent before may be here already.
const LAST_ROUNDS: usize = 1000;

/// Goes on with work, and gives it up where it fails, or where a rank that it needs has died.
pub(crate) fn step(work: &mut dyn Work, ranks: &Ranks, has_news: bool) -> Option<Result<Received>> {
    let rank = if has_news { work.lacks(ranks) } else { None };
    let rounds = if rank.is_some() { LAST_ROUNDS } else { 1 };
    let advanced = (0..rounds).find_map(|_| work.advance(ranks).transpose());
    let outcome = match (advanced.transpose(), rank) {
        (Ok(None), None) => return None,
        (Ok(None), Some(rank)) => Err(Error::RankDied(Box::new(Failed { rank: Some(rank), ..work.title() }))),
        (Ok(Some(received)), _) => return Some(Ok(received)),
        (Err(error), _) => Err(error),
    };
    work.give_up(ranks);
    Some(outcome)
}

/// The error of a transfer that the library refused.
pub(crate) fn refused(title: Failed, code: Code) -> Error {
    Error::Failed(Box::new(Failed { said: code.said, ..title }))
}
