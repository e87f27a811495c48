//! A worker: a process that runs kernels for tenants. It is itself a tenant, created by the broker, and borrows the
//! leases of the tenants that it serves. A kernel that faults or hangs ends this process and nothing else.
//!
//! One thread takes calls from the rings, launches kernels and polls their progress (`session`); another kills the
//! process when a kernel runs too long (`watchdog`). `resources` has the loaded modules and the borrowed leases.

mod exit;
mod resources;
mod session;
mod watchdog;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use freehold::{Device, FaultDetails, open};
use freehold_driver::cuda::{context, primary};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use self::exit::kill_self;
use self::resources::{Resources, faulted};
use self::session::{CallSession, ServeOutcome};
use self::watchdog::Watchdog;
use crate::client::{Broker, Link};
use crate::os::eventfd;
use crate::os::seqpacket::{self, ReceiveError, Received};
use crate::os::time::timespec;
use crate::process::Config;
use crate::protocol::call_failure::{CallFailure, FailureReport};
use crate::protocol::call_ring::CallRing;
use crate::protocol::ring::{Sleeper, Waiter};
use crate::protocol::spin::SpinWait;
use crate::protocol::worker_order::WorkerOrder;

/// Unfinished launches of one tenant, by default. Beyond that no more calls are taken, because a driver blocks a thread
/// that queues too many.
const LAUNCHES_MAX: u64 = 512;

/// How often pending work is checked for faults while no tenant waits for it.
const FAULT_CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// How often orders and rings are checked while nothing is pending, even if no doorbell rings.
const IDLE_WAIT: Duration = Duration::from_millis(500);

/// While spinning, orders are polled in one of this many rounds.
const ROUNDS_PER_POLL: u32 = 16;

/// While busy, orders are polled after this many turns at the latest.
const BUSY_TURNS_PER_POLL: u32 = 64;

/// Serves until no tenant is left, or the broker is gone.
///
/// # Errors
/// The device does not open, or a system call fails.
pub(crate) fn run(config: &Config, control_socket: OwnedFd) -> io::Result<()> {
    let Ok(begun) = seqpacket::receive(&control_socket, RecvFlags::empty()) else { return Ok(()) };
    let (Some(WorkerOrder::Begin { worker, device, limit }), Ok([socket, ring, semaphores, doorbell])) =
        (WorkerOrder::from_words(&begun.slot), <[OwnedFd; 4]>::try_from(begun.descriptors))
    else {
        return Err(io::Error::other("a worker is started by its broker: run `freehold serve`"));
    };
    let link = Link::for_worker(worker, device, socket, [ring, semaphores, doorbell]).map_err(io::Error::other)?;
    let opened = open_device(config.device.as_deref());
    let opened = opened.and_then(|device| Ok((Broker::from_link(&device, link).map_err(io::Error::other)?, device)));
    match opened {
        Ok((broker, device)) => Worker::new(config, control_socket, broker, device, limit)?.serve(),
        Err(error) => {
            report_no_device(&control_socket, &error.to_string());
            Err(error)
        }
    }
}

/// Opens the device and makes its context current in this thread: without one, a failed driver does not report its
/// error.
fn open_device(selector: Option<&str>) -> io::Result<Device> {
    // SAFETY: the driver is only asked to make the primary context current, which is retained until the process ends.
    let opened = unsafe { open::open(selector) }.map_err(io::Error::other)?;
    let current = primary::retain(&opened.api, opened.device);
    current.and_then(|context| context::set_current(&opened.api, context)).map_err(io::Error::other)?;
    open::device(selector).map_err(io::Error::other)
}

/// Reports to the first tenant that the device does not open.
fn report_no_device(control_socket: &OwnedFd, said: &str) {
    let Ok(Received { slot, mut descriptors, .. }) = seqpacket::receive(control_socket, RecvFlags::empty()) else {
        return;
    };
    let (Some(WorkerOrder::Serve { .. }), false) = (WorkerOrder::from_words(&slot), descriptors.is_empty()) else {
        return;
    };
    if let Ok(calls) = CallRing::open(descriptors.remove(0)) {
        calls.push_failure(
            &FailureReport { stream: 0, number: 0, last: 0, failure: CallFailure::NoDevice }.to_words(),
            said,
        );
    }
}

struct Worker {
    control_socket: OwnedFd,
    /// Rung by the tenants. Present from the first `Serve` on.
    doorbell: Option<Arc<OwnedFd>>,
    device: Device,
    sessions: Vec<CallSession>,
    resources: Resources,
    watchdog: Arc<Watchdog>,
    spin: SpinWait,
    spin_time: Duration,
    /// Unfinished launches of one tenant.
    launches_max: u64,
    is_stopping: bool,
}

impl Worker {
    fn new(
        config: &Config,
        control_socket: OwnedFd,
        broker: Broker,
        device: Device,
        limit: Duration,
    ) -> io::Result<Self> {
        let semaphores = broker.semaphores(broker.tenant()).map_err(io::Error::other)?;
        let watchdog = Watchdog::start(&device, semaphores, broker.waiter(), limit)?;
        let (sessions, resources) = (Vec::new(), Resources::new(broker));
        let patience = Duration::from_micros(config.spin_us);
        let (spin, launches_max) = (SpinWait::new(), config.limits.launches_max.unwrap_or(LAUNCHES_MAX).max(1));
        Ok(Self {
            control_socket,
            doorbell: None,
            device,
            sessions,
            resources,
            watchdog,
            spin,
            spin_time: patience,
            launches_max,
            is_stopping: false,
        })
    }

    fn serve(&mut self) -> io::Result<()> {
        let mut last_work = Instant::now();
        let (mut turns, mut rounds, mut busy) = (0, 0_u32, 0_u32);
        while !self.is_stopping {
            let has_worked = self.serve_sessions();
            if has_worked {
                turns = 0;
                last_work = Instant::now();
                busy = busy.wrapping_add(1);
                // A tenant that calls without pause must not delay orders, nor the return of recalled leases.
                if busy.is_multiple_of(BUSY_TURNS_PER_POLL) {
                    self.resources.return_recalled();
                    self.resources.unload_dropped();
                    self.wait_for_work(Duration::ZERO)?;
                    self.remove_drained();
                }
                continue;
            }
            turns += 1;
            if turns < self.spin.spins_max() {
                self.spin.spin_once();
                continue;
            }
            turns = 0;
            rounds = rounds.wrapping_add(1);
            self.resources.return_recalled();
            self.resources.unload_dropped();
            let is_pending = self.sessions.iter().any(CallSession::is_pending);
            if !is_pending && self.resources.is_unloading() {
                self.resources.report_unloaded();
            }
            let idle = last_work.elapsed();
            let wait = match idle < self.spin_time {
                true => Duration::ZERO,
                false if is_pending || self.resources.is_unloading() => (idle / 8).min(FAULT_CHECK_INTERVAL),
                false => IDLE_WAIT,
            };
            if is_pending && idle > FAULT_CHECK_INTERVAL {
                self.check_faults();
            }
            // While spinning, the system is not asked in every round: orders of the broker can wait that long.
            if wait.is_zero() && !rounds.is_multiple_of(ROUNDS_PER_POLL) {
                continue;
            }
            if self.wait_for_work(wait)? {
                last_work = Instant::now();
            }
            self.remove_drained();
        }
        Ok(())
    }

    /// Reports the closing tenants whose calls have all finished, and removes them.
    fn remove_drained(&mut self) {
        let left: Vec<CallSession> = self.sessions.extract_if(.., |session| session.is_drained()).collect();
        for session in left {
            self.watchdog.remove(session.tenant());
            self.resources.remove_tenant(session.tenant());
        }
    }

    /// Launches calls, and wakes tenants whose work made progress. Returns whether there were calls.
    fn serve_sessions(&mut self) -> bool {
        let mut has_worked = false;
        for session in &mut self.sessions {
            match session.serve(&self.device, &mut self.resources) {
                ServeOutcome::Progress => has_worked = true,
                ServeOutcome::Idle => {}
                // When the device has failed, every call of this process has: the tenants are told whose kernel it was.
                ServeOutcome::Fatal(code) => exit_after_fault(&self.device, &self.watchdog, code),
            }
        }
        has_worked
    }

    /// Asks the driver whether pending work has faulted.
    fn check_faults(&self) {
        if let Some(code) = self.sessions.iter().find_map(CallSession::fault) {
            exit_after_fault(&self.device, &self.watchdog, code);
        }
    }

    /// Waits for calls and orders, at most `longest`. Returns whether something came.
    fn wait_for_work(&mut self, longest: Duration) -> io::Result<bool> {
        let is_asleep = !longest.is_zero();
        if is_asleep && self.sessions.iter().any(|session| session.set_asleep(true)) {
            self.sessions.iter().for_each(CallSession::wake);
            return Ok(true);
        }
        let timeout = timespec(longest);
        let mut ready = vec![PollFd::new(&self.control_socket, PollFlags::IN)];
        ready.extend(self.doorbell.as_ref().map(|doorbell| PollFd::new(doorbell, PollFlags::IN)));
        let came = match poll(&mut ready, Some(&timeout)) {
            Ok(count) => count != 0,
            Err(Errno::INTR) => false,
            Err(error) => return Err(error.into()),
        };
        let [has_order, has_rung] = [0, 1].map(|at| ready.get(at).is_some_and(|one| !one.revents().is_empty()));
        drop(ready);
        if is_asleep {
            self.sessions.iter().for_each(CallSession::wake);
        }
        if let (true, Some(doorbell)) = (has_rung, &self.doorbell) {
            eventfd::drain(doorbell);
        }
        if has_order {
            self.receive_order()?;
        }
        Ok(came)
    }

    /// Receives an order of the broker.
    fn receive_order(&mut self) -> io::Result<()> {
        let received = match seqpacket::receive(&self.control_socket, RecvFlags::DONTWAIT) {
            Ok(received) => received,
            Err(ReceiveError::WouldBlock | ReceiveError::Malformed) => return Ok(()),
            // The broker and the fdstore are gone.
            Err(ReceiveError::Closed) => kill_self(),
            Err(ReceiveError::System(error)) => return Err(error.into()),
        };
        match (WorkerOrder::from_words(&received.slot), <[OwnedFd; 2]>::try_from(received.descriptors)) {
            // Repeated by a broker that took over.
            (Some(WorkerOrder::Serve { tenant, .. }), _)
                if self.sessions.iter().any(|session| session.tenant() == tenant) => {}
            (Some(WorkerOrder::Serve { tenant, session_index }), Ok([calls, doorbell])) => {
                self.set_doorbell(doorbell)?;
                let calls = Arc::new(CallRing::open(calls)?);
                self.watchdog.add(tenant, session_index, calls.clone());
                self.resources.add_tenant(tenant, calls.clone());
                self.sessions.push(CallSession::new(tenant, calls, self.watchdog.clone(), self.launches_max));
            }
            (Some(WorkerOrder::Drain { tenant }), _) => {
                match self.sessions.iter_mut().find(|session| session.tenant() == tenant) {
                    Some(session) => session.drain(),
                    // It never called, or the order is repeated by a broker that took over.
                    None => self.resources.remove_tenant(tenant),
                }
            }
            (Some(WorkerOrder::Stop), _) => self.is_stopping = true,
            _ => {}
        }
        Ok(())
    }

    /// Sets the doorbell. Replies of the broker ring it too: that is how it recalls borrowed leases.
    fn set_doorbell(&mut self, doorbell: OwnedFd) -> io::Result<()> {
        if self.doorbell.is_some() {
            return Ok(());
        }
        let doorbell = Arc::new(doorbell);
        self.doorbell = Some(doorbell.clone());
        let waiter = self.resources.waiter();
        thread::Builder::new()
            .name("freehold-recall".into())
            .spawn(move || forward_replies(&waiter, &doorbell))
            .map(drop)
    }
}

/// Kills this process after a kernel has faulted.
fn exit_after_fault(device: &Device, watchdog: &Watchdog, code: u32) -> ! {
    watchdog.exit(faulted(code), &fault_text(device))
}

/// Returns what the kernel did, without its name. Only the software device knows.
fn fault_text(device: &Device) -> String {
    // Every call returns the fault.
    let Err(freehold::Error::Faulted(fault)) = device.new_stream() else { return String::new() };
    let Some(FaultDetails { kernel, message, .. }) = &fault.details else { return String::new() };
    message.strip_prefix(&format!("kernel {kernel}, ")).unwrap_or(message).to_owned()
}

fn forward_replies(ring: &Waiter, doorbell: &OwnedFd) {
    let mut seen = ring.replied();
    loop {
        ring.sleep(Sleeper::Receiver, seen, IDLE_WAIT);
        let now = ring.replied();
        if std::mem::replace(&mut seen, now) != now {
            // If the counter is full, the doorbell rings already.
            let _ = eventfd::notify(doorbell);
        }
    }
}
