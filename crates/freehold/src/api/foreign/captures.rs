//! The state of private pools: which pools were begun, which capture belongs to which pool, and the streams that were
//! captured with each pool.

use std::collections::HashMap;
use std::sync::Arc;

use crate::ordering::stream_origin::ThreadId;
use crate::ordering::stream_state::StreamState;

/// The id of a private pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolId {
    /// Two numbers that the caller chose, as PyTorch does.
    Named(u64, u64),
    /// The pool of an unannounced capture, by the driver's id of the capture.
    Capture(u64),
}

/// The private pools of a device.
#[derive(Debug, Default)]
pub(super) struct Captures {
    pub(super) pools: HashMap<PoolId, PrivatePool>,
    /// Pools that were begun and not ended, in this order.
    pub(super) open: Vec<OpenPool>,
    /// The pool of each capture that was seen.
    pub(super) of_capture: HashMap<u64, PoolId>,
    /// The capture that a stream was in when it was last named, if streams are checked: the driver cannot be asked
    /// later, because it dereferences the handle of a destroyed stream.
    pub(super) last_seen: HashMap<StreamName, u64>,
    /// Released pools, until all work that may use their memory is complete.
    pub(super) leaving: Vec<PrivatePool>,
    /// Streams that were named while their capture was invalid. It has no graph, so memory freed there becomes reusable
    /// with that of released pools.
    pub(super) spoilt: PrivatePool,
}

/// A handle, and a thread for per-thread default streams.
type StreamName = (usize, Option<ThreadId>);

#[derive(Debug, Default)]
pub(super) struct PrivatePool {
    /// How often it was begun and not released.
    pub(super) users: usize,
    pub(super) streams: HashMap<StreamName, Arc<StreamState>>,
    /// The states of destroyed streams: their handles may name other streams.
    pub(super) gone: Vec<Arc<StreamState>>,
}

/// A private pool that a thread has begun and not ended.
#[derive(Debug)]
pub(super) struct OpenPool {
    pub(super) id: PoolId,
    pub(super) thread: ThreadId,
    /// Captures with higher ids began later.
    pub(super) newest_before: u64,
    /// The last capture that was assigned to it.
    pub(super) capture: Option<u64>,
    /// Whether its thread has begun another pool since, with no capture of this one running: the capture has failed, or
    /// this pool encloses others.
    pub(super) is_passed_over: bool,
}

impl PrivatePool {
    pub(super) fn all_tracks(&self) -> impl Iterator<Item = &Arc<StreamState>> {
        self.streams.values().chain(&self.gone)
    }
}

impl Captures {
    /// Returns the pool of a capture, whichever thread names it. A new capture is assigned to the last pool that this
    /// thread began before the capture or, if each capture is announced, to that of the only thread that did. If that
    /// is ambiguous, the capture gets a pool of its own.
    pub(super) fn pool_of(&mut self, capture: u64, are_announced: bool) -> &mut PrivatePool {
        let id = match self.of_capture.get(&capture) {
            Some(&id) => id,
            None => self.count(capture, are_announced),
        };
        self.pools.get_mut(&id).expect("a capture's pool exists")
    }

    /// Assigns a new capture to a pool.
    fn count(&mut self, capture: u64, are_announced: bool) -> PoolId {
        let here = ThreadId::current();
        let is_earlier = |open: &OpenPool| open.newest_before < capture;
        let own = self.open.iter().rposition(|open| is_earlier(open) && open.thread == here);
        let is_of_only_thread = |&last: &usize| {
            let is_of_last = |open: &OpenPool| open.thread == self.open[last].thread;
            are_announced && self.open.iter().all(|open| !is_earlier(open) || is_of_last(open))
        };
        let chosen = own.or_else(|| self.open.iter().rposition(is_earlier).filter(is_of_only_thread));
        let id = match chosen {
            Some(index) => {
                let open = &mut self.open[index];
                open.capture = Some(capture);
                open.is_passed_over = false;
                open.id
            }
            None => {
                self.pools.insert(PoolId::Capture(capture), PrivatePool { users: 1, ..PrivatePool::default() });
                PoolId::Capture(capture)
            }
        };
        self.of_capture.insert(capture, id);
        id
    }

    /// Returns all pools whose streams are still needed.
    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut PrivatePool> {
        self.pools.values_mut().chain(&mut self.leaving).chain([&mut self.spoilt])
    }

    /// Notes that the captures of a pool are over, as its caller says.
    pub(super) fn end_captures_of(&mut self, id: PoolId) {
        let Self { last_seen, of_capture, .. } = self;
        last_seen.retain(|_, capture| of_capture.get(capture) != Some(&id));
    }

    pub(super) fn has_leaving(&self) -> bool {
        !self.leaving.is_empty() || self.spoilt.all_tracks().next().is_some()
    }

    /// Takes the pools that wait for the device's work.
    pub(super) fn take_leaving(&mut self) -> Vec<PrivatePool> {
        let mut leaving = std::mem::take(&mut self.leaving);
        leaving.push(std::mem::take(&mut self.spoilt));
        leaving
    }
}
