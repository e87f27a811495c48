//! The keeper: a process that holds descriptors, and starts the broker again when that dies. It knows nothing of CUDA, and of
//! the descriptors only what to call them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use crate::part::{Config, Part};
use crate::post::{self, Held, Kept, Letter};
use crate::signals::{Signals, forget_children, raise_descriptors};
use crate::socket::NotReceived;

/// A broker that ends so soon has not served anybody.
const SHORT: Duration = Duration::from_secs(1);

/// So many that did in a row are enough.
const FAILURES_MAX: u32 = 8;

/// Keeps a broker going until a signal ends it. `post` is the socket of a broker that has lost its keeper, if there is one.
/// `is_ready` is called when tenants can connect.
///
/// # Errors
/// [`io::ErrorKind::AddrInUse`] where another broker serves the socket; those of starting a broker; and [`io::ErrorKind::Other`] where brokers end as soon as they are started.
pub fn run(config: &Config, post: Option<OwnedFd>, mut is_ready: impl FnMut()) -> io::Result<()> {
    let signals = Signals::block()?;
    forget_children();
    raise_descriptors()?;
    let has_all = post.is_none();
    let mut keeper = Keeper { config, held: Held::new(), has_all, failures: 0, started: Instant::now() };
    let mut broker = match post {
        Some(post) => post,
        None => {
            keeper.held.insert(Kept::Lock, Arc::new(lock(&config.socket)?));
            keeper.start()?
        }
    };
    loop {
        match keeper.keep(&broker, &signals, &mut is_ready)? {
            Ended::Died => broker = keeper.restart()?,
            Ended::Stopped => return Ok(()),
        }
    }
}

/// The right to serve a socket, which nobody else has while the descriptor is open anywhere.
fn lock(socket: &Path) -> io::Result<OwnedFd> {
    let path = socket.with_extension("lock");
    let lock = open(path, OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
        io::Error::new(io::ErrorKind::AddrInUse, format!("a broker serves {} already", socket.display()))
    })?;
    Ok(lock)
}

struct Keeper<'a> {
    config: &'a Config,
    held: Held,
    /// Whether a broker that lost its keeper has sent everything. Half of it would end what lives.
    has_all: bool,
    failures: u32,
    started: Instant,
}

enum Ended {
    Died,
    Stopped,
}

impl Keeper<'_> {
    fn start(&mut self) -> io::Result<OwnedFd> {
        self.started = Instant::now();
        let (_child, post) = self.config.start(Part::Broker)?;
        match post::hold_all(&post, &self.held) {
            // One that is dead already is noticed where letters are read.
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(post),
            Err(error) => Err(error.into()),
        }
    }

    fn restart(&mut self) -> io::Result<OwnedFd> {
        if !self.has_all {
            return Err(io::Error::other("the broker ended before its new keeper had everything: start it again"));
        }
        if self.started.elapsed() < SHORT {
            self.failures += 1
        } else {
            self.failures = 0
        }
        if self.failures >= FAILURES_MAX {
            return Err(io::Error::other("the broker ends as soon as it is started: what it says above is why"));
        }
        self.start()
    }

    /// Holds what the broker sends until it ends, or a signal comes.
    fn keep(&mut self, broker: &OwnedFd, signals: &Signals, is_ready: &mut impl FnMut()) -> io::Result<Ended> {
        loop {
            let mut ready = [PollFd::new(broker, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
            match poll(&mut ready, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            if !ready[1].revents().is_empty() {
                return self.stop(broker);
            }
            match post::receive(broker, RecvFlags::DONTWAIT) {
                Ok(Letter::Hold(what, descriptor)) => {
                    self.held.insert(what, Arc::new(descriptor));
                    if what == Kept::Listener {
                        is_ready();
                    }
                }
                Ok(Letter::Drop(what)) => {
                    self.held.remove(&what);
                }
                // It serves: whatever ends it was not there when it began.
                Ok(Letter::All) => (self.failures, self.has_all) = (0, true),
                Ok(Letter::Stop) => return Ok(Ended::Stopped),
                Err(NotReceived::Nothing) => {}
                Err(NotReceived::Closed) => return Ok(Ended::Died),
                Err(NotReceived::Malformed) => return Err(io::Error::other("the broker is of another version")),
                Err(NotReceived::Failed(error)) => return Err(error.into()),
            }
        }
    }

    /// Has the broker end itself, and waits until it has.
    fn stop(&mut self, broker: &OwnedFd) -> io::Result<Ended> {
        match post::stop(broker) {
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => {}
            Err(error) => return Err(error.into()),
        }
        loop {
            match post::receive(broker.as_fd(), RecvFlags::empty()) {
                Ok(Letter::Stop) | Err(NotReceived::Closed) => return Ok(Ended::Stopped),
                Ok(_) => {}
                Err(NotReceived::Failed(error)) => return Err(error.into()),
                Err(NotReceived::Nothing | NotReceived::Malformed) => {}
            }
        }
    }
}
