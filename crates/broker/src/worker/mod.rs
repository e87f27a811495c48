//! A worker: a process that runs kernels for tenants. It is a tenant itself, made by the broker, and borrows what those that it
//! serves have leased. A kernel that faults, or does not end, ends this process and nothing else.
//!
//! One thread takes calls out of rings, launches, and looks how far work has come (`desk`); another ends the process when a kernel
//! takes too long (`watch`). What is loaded and borrowed is in `stock`.

mod desk;
mod stock;
mod watch;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use freehold::{Device, open};
use freehold_driver::cuda::{context, primary};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::process::{Signal, getpid, kill_process};

use self::desk::{Desk, Served};
use self::stock::{Stock, faulted};
use self::watch::Watch;
use crate::calls::Calls;
use crate::client::{Broker, Link};
use crate::part::Config;
use crate::ring::{Doorstep, Sleeper, Slot, Spin};
use crate::socket::{self, NotReceived, Received};
use crate::trouble::{Told, Trouble};
use crate::wire::Id;

/// How long a kernel may run unless the broker says otherwise.
const LAUNCH_LIMIT: Duration = Duration::from_secs(10);

/// Launches of one tenant that have not come to their end, unless the broker says otherwise. Beyond, no more are taken: a driver
/// holds up who puts in so many.
const LAUNCHES: u64 = 512;

/// While work is pending that nobody waits for, it is looked at so often: it may have faulted.
const LOOK: Duration = Duration::from_millis(1);

/// While nothing is pending, posts and rings are looked at so often, whoever rings.
const IDLE: Duration = Duration::from_millis(500);

/// While it spins, the system is asked for orders in one of so many rounds.
const ROUNDS: u32 = 16;

/// Orders are looked at behind so many turns at the latest.
const BUSY_MAX: u32 = 64;

/// How long a kernel may run at a broker's workers.
pub(crate) fn launch_limit(config: &Config) -> Duration {
    config.terms.launch_ms.map_or(LAUNCH_LIMIT, Duration::from_millis)
}

/// What the broker tells a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Who it is. Beside it: its socket, ring, clock and bell.
    Begin { worker: Id, device: u128, limit: Duration },
    /// Whom it serves. Beside it: the ring of calls, and the bell that is rung for those.
    Serve { tenant: Id, seat: u32 },
    /// Whom it serves no more, when what was called is carried out. It says so then.
    Dismiss { tenant: Id },
    /// It serves nobody any more.
    End,
}

impl Order {
    pub(crate) fn words(self) -> Slot {
        match self {
            Self::Begin { worker, device, limit } => {
                let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
                [1, worker.0, device as u64, (device >> 64) as u64, limit_ms, 0, 0, 0]
            }
            Self::Serve { tenant, seat } => [2, tenant.0, u64::from(seat), 0, 0, 0, 0, 0],
            Self::Dismiss { tenant } => [3, tenant.0, 0, 0, 0, 0, 0, 0],
            Self::End => [4, 0, 0, 0, 0, 0, 0, 0],
        }
    }

    fn of(words: &Slot) -> Option<Self> {
        Some(match words[0] {
            1 => Self::Begin {
                worker: Id(words[1]),
                device: u128::from(words[2]) | u128::from(words[3]) << 64,
                limit: Duration::from_millis(words[4]),
            },
            2 => Self::Serve { tenant: Id(words[1]), seat: words[2] as u32 },
            3 => Self::Dismiss { tenant: Id(words[1]) },
            4 => Self::End,
            _ => return None,
        })
    }
}

/// Serves until nobody is left to serve, or the broker is gone.
///
/// # Errors
/// The device does not open, or the system fails.
pub(crate) fn run(config: &Config, post: OwnedFd) -> io::Result<()> {
    let Ok(begun) = socket::receive(&post, RecvFlags::empty()) else { return Ok(()) };
    let (Some(Order::Begin { worker, device, limit }), Ok([socket, ring, clock, bell])) =
        (Order::of(&begun.slot), <[OwnedFd; 4]>::try_from(begun.descriptors))
    else {
        return Err(io::Error::other("a broker starts its workers itself: say `freehold serve`"));
    };
    let link = Link::of_worker(worker, device, socket, [ring, clock, bell]).map_err(io::Error::other)?;
    let opened = open_device(config.device.as_deref());
    let opened = opened.and_then(|device| Ok((Broker::over(&device, link).map_err(io::Error::other)?, device)));
    match opened {
        Ok((broker, device)) => Worker::new(config, post, broker, device, limit)?.serve(),
        Err(error) => {
            refuse(&post, &error.to_string());
            Err(error)
        }
    }
}

/// The device, with its context current in this thread: without one a driver that has failed does not say how.
fn open_device(wish: Option<&str>) -> io::Result<Device> {
    // SAFETY: of the driver is called here what makes the primary context current, which is retained for good.
    let opened = unsafe { open::open(wish) }.map_err(io::Error::other)?;
    let current = primary::retain(&opened.api, opened.device);
    current.and_then(|context| context::set_current(&opened.api, context)).map_err(io::Error::other)?;
    open::device(wish).map_err(io::Error::other)
}

/// Tells the first who is to be served that there is no device.
fn refuse(post: &OwnedFd, said: &str) {
    let Ok(Received { slot, mut descriptors, .. }) = socket::receive(post, RecvFlags::empty()) else { return };
    let (Some(Order::Serve { .. }), false) = (Order::of(&slot), descriptors.is_empty()) else { return };
    if let Ok(calls) = Calls::open(descriptors.remove(0)) {
        calls.tell(&Told { stream: 0, number: 0, last: 0, trouble: Trouble::NoDevice }.words(), said);
    }
}

struct Worker {
    post: OwnedFd,
    /// Rung by those that it serves. There from the first order to serve on.
    bell: Option<Arc<OwnedFd>>,
    device: Device,
    desks: Vec<Desk>,
    stock: Stock,
    watch: Arc<Watch>,
    spin: Spin,
    patience: Duration,
    /// Of one tenant, that have not come to their end.
    launches_max: u64,
    is_over: bool,
}

impl Worker {
    fn new(config: &Config, post: OwnedFd, broker: Broker, device: Device, limit: Duration) -> io::Result<Self> {
        let clock = broker.clock(broker.tenant()).map_err(io::Error::other)?;
        let watch = Watch::start(&device, clock, broker.doorstep(), limit)?;
        let (desks, stock) = (Vec::new(), Stock::new(broker));
        let patience = Duration::from_micros(config.spin_us);
        let (spin, launches_max) = (Spin::new(), config.terms.launches.unwrap_or(LAUNCHES).max(1));
        Ok(Self { post, bell: None, device, desks, stock, watch, spin, patience, launches_max, is_over: false })
    }

    fn serve(&mut self) -> io::Result<()> {
        let mut last_work = Instant::now();
        let (mut turns, mut rounds, mut busy) = (0, 0_u32, 0_u32);
        while !self.is_over {
            let has_worked = self.serve_desks();
            if has_worked {
                turns = 0;
                last_work = Instant::now();
                busy = busy.wrapping_add(1);
                // Who calls without an end keeps nobody else from being heard, and nothing that is wanted back.
                if busy.is_multiple_of(BUSY_MAX) {
                    self.stock.return_recalled();
                    self.stock.let_go_dropped();
                    self.rest(Duration::ZERO)?;
                    self.finish();
                }
                continue;
            }
            turns += 1;
            if turns < self.spin.moments() {
                self.spin.moment();
                continue;
            }
            turns = 0;
            rounds = rounds.wrapping_add(1);
            self.stock.return_recalled();
            self.stock.let_go_dropped();
            let is_pending = self.desks.iter().any(Desk::is_pending);
            if !is_pending && self.stock.is_unloading() {
                self.stock.say_unloaded();
            }
            let idle = last_work.elapsed();
            let wait = match idle < self.patience {
                true => Duration::ZERO,
                false if is_pending || self.stock.is_unloading() => (idle / 8).min(LOOK),
                false => IDLE,
            };
            if is_pending && idle > LOOK {
                self.look_for_faults();
            }
            // While this spins the system is not asked in every round: what the broker orders can wait for that long.
            if wait.is_zero() && !rounds.is_multiple_of(ROUNDS) {
                continue;
            }
            if self.rest(wait)? {
                last_work = Instant::now();
            }
            self.finish();
        }
        Ok(())
    }

    /// Says of those that go, and whose calls have all come to their end, that nothing is left of them here.
    fn finish(&mut self) {
        let left: Vec<Desk> = self.desks.extract_if(.., |desk| desk.is_left()).collect();
        for desk in left {
            self.watch.remove(desk.tenant());
            self.stock.finish(desk.tenant());
        }
    }

    /// Launches what is called, and tells those who sleep how far work has come. Whether something was called.
    fn serve_desks(&mut self) -> bool {
        let mut has_worked = false;
        for desk in &mut self.desks {
            match desk.serve(&self.device, &mut self.stock) {
                Served::Some => has_worked = true,
                Served::Nothing => {}
                // With the device every call of this process has failed: whoever is served hears whose kernel it was.
                Served::Fatal(code) => self.watch.end(faulted(code)),
            }
        }
        has_worked
    }

    /// Asks the driver whether work that is pending goes on.
    fn look_for_faults(&self) {
        if let Some(code) = self.desks.iter().find_map(Desk::fault) {
            self.watch.end(faulted(code));
        }
    }

    /// Waits for calls and orders, for so long. Whether something came.
    fn rest(&mut self, longest: Duration) -> io::Result<bool> {
        let is_asleep = !longest.is_zero();
        if is_asleep && self.desks.iter().any(|desk| desk.set_asleep(true)) {
            self.desks.iter().for_each(Desk::wake);
            return Ok(true);
        }
        let timeout = Timespec { tv_sec: longest.as_secs() as i64, tv_nsec: i64::from(longest.subsec_nanos()) };
        let mut ready = vec![PollFd::new(&self.post, PollFlags::IN)];
        ready.extend(self.bell.as_ref().map(|bell| PollFd::new(bell, PollFlags::IN)));
        let came = match poll(&mut ready, Some(&timeout)) {
            Ok(count) => count != 0,
            Err(Errno::INTR) => false,
            Err(error) => return Err(error.into()),
        };
        let [has_order, has_rung] = [0, 1].map(|at| ready.get(at).is_some_and(|one| !one.revents().is_empty()));
        drop(ready);
        if is_asleep {
            self.desks.iter().for_each(Desk::wake);
        }
        if let (true, Some(bell)) = (has_rung, &self.bell) {
            // Nothing was counted where this fails.
            let _ = rustix::io::read(bell, &mut [0; 8]);
        }
        if has_order {
            self.hear()?;
        }
        Ok(came)
    }

    /// Hears what the broker orders.
    fn hear(&mut self) -> io::Result<()> {
        let received = match socket::receive(&self.post, RecvFlags::DONTWAIT) {
            Ok(received) => received,
            Err(NotReceived::Nothing | NotReceived::Malformed) => return Ok(()),
            // Broker and keeper are gone.
            Err(NotReceived::Closed) => end(),
            Err(NotReceived::Failed(error)) => return Err(error.into()),
        };
        match (Order::of(&received.slot), <[OwnedFd; 2]>::try_from(received.descriptors)) {
            // A broker that took over says it again.
            (Some(Order::Serve { tenant, .. }), _) if self.desks.iter().any(|desk| desk.tenant() == tenant) => {}
            (Some(Order::Serve { tenant, seat }), Ok([calls, bell])) => {
                self.ring_for(bell)?;
                let calls = Arc::new(Calls::open(calls)?);
                self.watch.add(tenant, seat, calls.clone());
                self.stock.add(tenant, calls.clone());
                self.desks.push(Desk::new(tenant, calls, self.watch.clone(), self.launches_max));
            }
            (Some(Order::Dismiss { tenant }), _) => match self.desks.iter_mut().find(|desk| desk.tenant() == tenant) {
                Some(desk) => desk.dismiss(),
                // It never called, or a broker that took over says it again.
                None => self.stock.finish(tenant),
            },
            (Some(Order::End), _) => self.is_over = true,
            _ => {}
        }
        Ok(())
    }

    /// Has the bell ring when the broker says something, too: it wants borrowed leases back that way.
    fn ring_for(&mut self, bell: OwnedFd) -> io::Result<()> {
        if self.bell.is_some() {
            return Ok(());
        }
        let bell = Arc::new(bell);
        self.bell = Some(bell.clone());
        let doorstep = self.stock.doorstep();
        thread::Builder::new().name("freehold-recall".into()).spawn(move || forward(&doorstep, &bell)).map(drop)
    }
}

fn forward(ring: &Doorstep, bell: &OwnedFd) {
    let mut seen = ring.replied();
    loop {
        ring.sleep(Sleeper::Receiver, seen, IDLE);
        let now = ring.replied();
        if std::mem::replace(&mut seen, now) != now {
            // A bell that has counted as far as it can rings.
            let _ = rustix::io::write(bell.as_fd(), &1_u64.to_ne_bytes());
        }
    }
}

/// Ends this process at once: a driver that failed, or a kernel that does not end, would hold up every other way.
fn end() -> ! {
    loop {
        // A process may always end itself.
        let _ = kill_process(getpid(), Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_as_it_was_written() {
        for order in [
            Order::Begin { worker: Id(7 << 32), device: 3 << 64 | 1, limit: Duration::from_millis(250) },
            Order::Serve { tenant: Id(9), seat: 30 },
            Order::Dismiss { tenant: Id(9) },
            Order::End,
        ] {
            assert_eq!(Order::of(&order.words()), Some(order));
        }
        assert_eq!(Order::of(&[5, 0, 0, 0, 0, 0, 0, 0]), None);
    }
}
