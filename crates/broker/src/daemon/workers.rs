//! Workers, as the broker's process knows them: how one is started, told whom it serves, and ended.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::net::sockopt::set_socket_passcred;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::Daemon;
use super::connection::{Connection, Newcomer};
use super::effects::{Route, Tenants};
use crate::calls::Calls;
use crate::client::MODULE_BYTES_MAX;
use crate::part::{Part, pair};
use crate::post::Kept;
use crate::ring::RING_BYTES;
use crate::shared::Shared;
use crate::socket;
use crate::state::shelf::index;
use crate::state::{CLOCK_WORDS, Thing};
use crate::wire::{Framed, Id, Refusal, Reply};
use crate::worker::{Order, launch_limit};

/// How long a worker has to end, and how much longer than a launch may take it has to say that it is alive.
const GRACE: Duration = Duration::from_secs(2);

/// How long a worker has to say for the first time that it is alive: it opens a device before.
const START: Duration = Duration::from_secs(30);

/// How often it is looked whether workers are alive.
const LOOK: Duration = Duration::from_millis(500);

/// How often a worker had said that it is alive, and since when no more.
#[derive(Clone, Copy, Debug)]
struct Beat {
    count: u32,
    since: Instant,
}

impl Beat {
    /// Notes how often a worker has said that it is alive. Whether it was silent for longer than it may be.
    fn is_silent(&mut self, count: u32, now: Instant, patience: Duration) -> bool {
        let patience = if count == 0 { patience.max(START) } else { patience };
        let is_silent = count == self.count && now > self.since + patience;
        if count != self.count || is_silent {
            *self = Self { count, since: now };
        }
        is_silent
    }
}

#[derive(Debug, Default)]
pub(super) struct Workers {
    /// When those are ended that serve nobody any more.
    deadlines: BTreeMap<Id, Instant>,
    /// By the worker.
    beats: BTreeMap<Id, Beat>,
    looked: Option<Instant>,
}

impl Workers {
    /// How long until something is to be looked at.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        let beat = self.looked.filter(|_| !self.beats.is_empty()).map(|looked| looked + LOOK);
        let first = self.deadlines.values().copied().chain(beat).min();
        first.map(|first| first.saturating_duration_since(now))
    }
}

impl Daemon {
    /// Starts a worker's process. Where that fails the worker is no more.
    pub(super) fn start_worker(&mut self, worker: Id) {
        let started = self.make_worker(worker);
        match started {
            Ok(process) => self.state.started(worker, process),
            Err(error) => {
                tracing::error!(target: "freehold", %error, "no worker could be started");
                self.state.end(worker, &Tenants(&self.connections));
            }
        }
    }

    fn make_worker(&mut self, worker: Id) -> io::Result<u32> {
        let (child, post) = self.config.start(Part::Worker)?;
        let process = Arc::new(pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?);
        let (ours, theirs) = pair()?;
        // Every message says who sent it.
        set_socket_passcred(&ours, true)?;
        let bell = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Arc::new);
        let newcomer = Newcomer {
            socket: Arc::new(ours),
            process,
            ring: Shared::create("freehold-ring", RING_BYTES)?,
            clock: Shared::create("freehold-clock", CLOCK_WORDS as usize * 8)?,
            bell: bell()?,
        };
        let begin = Order::Begin { worker, device: self.config.device_uuid, limit: launch_limit(&self.config) };
        let files = [newcomer.ring.shared_file(), newcomer.clock.shared_file()];
        let beside = [theirs.as_fd(), files[0].as_fd(), files[1].as_fd(), newcomer.bell.as_fd()];
        socket::send(&post, &begin.words(), &[], &beside)?;
        self.hold(Kept::Post(worker), Arc::new(post));
        self.hold(Kept::Gong(worker), bell()?);
        self.hold_newcomer(worker, &newcomer);
        self.add(Connection::new(worker, newcomer, child.id()))?;
        self.watch_beat(worker);
        Ok(child.id())
    }

    /// Gives a tenant its seat at a worker.
    pub(super) fn hire(&mut self, to: Id, number: u32, worker: Id, seat: u32) -> io::Result<()> {
        if let Err(refusal) = self.seat(to, worker, seat) {
            return self.refuse(to, number, refusal, Route::Socket);
        }
        let Some(connection) = self.connections.get(&(index(to) as u32)) else { return Ok(()) };
        let slot = Framed { number, is_again: false, message: Reply::Hired { worker, seat } }.encode();
        let beside = [Kept::Calls(to), Kept::Clock(worker), Kept::Gong(worker)].map(|what| self.held[&what].clone());
        let beside: Vec<BorrowedFd<'_>> = beside.iter().map(|descriptor| descriptor.as_fd()).collect();
        match socket::send(&connection.socket, &slot, &[], &beside) {
            Ok(()) => Ok(()),
            Err(_) => self.part(index(to) as u32),
        }
    }

    /// Tells a worker whom it serves. One that was told before does not mind.
    fn seat(&mut self, tenant: Id, worker: Id, seat: u32) -> Result<(), Refusal> {
        let is_there = self.connections.contains_key(&(index(worker) as u32));
        if !is_there || !self.held.contains_key(&Kept::Post(worker)) {
            return Err(Refusal::NoDescriptors);
        }
        if !self.held.contains_key(&Kept::Calls(tenant)) {
            let calls = Calls::create().map_err(|_| Refusal::NoDescriptors)?;
            self.hold(Kept::Calls(tenant), calls.shared().shared_file());
        }
        self.order(worker, Order::Serve { tenant, seat }, &[Kept::Calls(tenant), Kept::Gong(worker)]);
        Ok(())
    }

    /// Looks from now on whether a worker says that it is alive, in the ring that it shares with nobody but the broker.
    pub(super) fn watch_beat(&mut self, worker: Id) {
        let Some(connection) = self.connection(worker) else { return };
        let (count, since) = (connection.ring.beat(), Instant::now());
        self.workers.looked = self.workers.looked.or(Some(since));
        self.workers.beats.insert(worker, Beat { count, since });
    }

    /// Tells a worker something. One that does not read is ended.
    fn order(&mut self, worker: Id, order: Order, beside: &[Kept]) {
        let Some(post) = self.held.get(&Kept::Post(worker)) else { return };
        let beside: Vec<Arc<OwnedFd>> = beside.iter().filter_map(|what| self.held.get(what).cloned()).collect();
        let beside: Vec<BorrowedFd<'_>> = beside.iter().map(|descriptor| descriptor.as_fd()).collect();
        if socket::send(post, &order.words(), &[], &beside).is_err() {
            self.kill_worker(worker);
        }
    }

    /// A tenant of a worker's goes.
    pub(super) fn dismiss(&mut self, worker: Id, tenant: Id) {
        self.order(worker, Order::Dismiss { tenant }, &[]);
    }

    /// A worker serves nobody any more.
    pub(super) fn retire(&mut self, worker: Id) {
        self.order(worker, Order::End, &[]);
        self.workers.deadlines.insert(worker, Instant::now() + GRACE);
    }

    pub(super) fn kill_worker(&self, worker: Id) {
        if let Some(process) = self.held.get(&Kept::Process(worker)) {
            // It may be gone already.
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
    }

    /// Ends workers that should have ended, or are not alive any more.
    pub(super) fn look_after_workers(&mut self, now: Instant) {
        let late: Vec<Id> = self
            .workers
            .deadlines
            .iter()
            .filter(|&(_, &deadline)| deadline <= now)
            .map(|(&worker, _)| worker)
            .collect();
        for worker in late {
            self.workers.deadlines.remove(&worker);
            self.kill_worker(worker);
        }
        if self.workers.looked.is_none_or(|looked| now < looked + LOOK) {
            return;
        }
        self.workers.looked = Some(now);
        let patience = launch_limit(&self.config) + GRACE;
        let mut silent = Vec::new();
        for (&worker, beat) in &mut self.workers.beats {
            let Some(connection) = self.connections.get(&(index(worker) as u32)) else { continue };
            if beat.is_silent(connection.ring.beat(), now, patience) {
                silent.push(worker);
            }
        }
        silent.into_iter().for_each(|worker| self.kill_worker(worker));
    }

    /// The ring of calls of a tenant is over: who sleeps at it looks why.
    pub(super) fn close_calls(&mut self, tenant: Id) {
        if let Some(Ok(calls)) = self.held.get(&Kept::Calls(tenant)).map(|calls| Calls::open(calls.clone())) {
            calls.rouse();
        }
        self.drop_held(Kept::Calls(tenant));
    }

    /// A worker's process has ended.
    pub(super) fn forget_worker(&mut self, worker: Id) {
        self.workers.deadlines.remove(&worker);
        self.workers.beats.remove(&worker);
        self.drop_held(Kept::Post(worker));
        self.drop_held(Kept::Gong(worker));
    }

    /// Holds the descriptor that came with a request.
    pub(super) fn keep(&mut self, what: Thing) {
        if let Some(arrived) = self.arrived.take() {
            self.hold(super::effects::kept(what), Arc::new(arrived));
        }
    }
}

/// A descriptor that can be a module's: nobody can change what it is of.
pub(super) fn module_file(mut descriptors: Vec<OwnedFd>, bytes: u64) -> Result<OwnedFd, Refusal> {
    let bad = Refusal::BadModule { limit_bytes: MODULE_BYTES_MAX as u64 };
    let (Some(file), true) = (descriptors.pop(), (1..=MODULE_BYTES_MAX as u64).contains(&bytes)) else {
        return Err(bad);
    };
    let wanted = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW;
    let is_sealed = fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(wanted));
    let has_bytes = fstat(&file).is_ok_and(|file| file.st_size as u64 == bytes);
    if is_sealed && has_bytes { Ok(file) } else { Err(bad) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_may_take_longer_to_start_than_between_two_beats() {
        let (begun, patience) = (Instant::now(), Duration::from_secs(3));
        let mut beat = Beat { count: 0, since: begun };
        assert!(!beat.is_silent(0, begun + START, patience));
        assert!(beat.is_silent(0, begun + START + Duration::from_millis(1), patience), "it never started");
        let began = begun + 2 * START;
        assert!(!beat.is_silent(1, began, patience));
        assert!(!beat.is_silent(1, began + patience, patience));
        assert!(!beat.is_silent(2, began + patience, patience), "a beat counts from when it is seen");
        assert!(beat.is_silent(2, began + 2 * patience + Duration::from_millis(1), patience));
    }
}
