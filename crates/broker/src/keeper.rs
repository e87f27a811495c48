//! The keeper: a process that holds descriptors, and starts the broker again when that dies. It knows nothing of CUDA, and of
//! the descriptors only what to call them.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FlockOperation, Mode, OFlags, Timespec, flock, open};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::part::{Config, Part};
use crate::post::{self, Held, Kept, Letter};
use crate::signals::{Signals, forget_children, raise_descriptors};
use crate::socket::NotReceived;

/// A broker that ends so soon has not served anybody.
const SHORT: Duration = Duration::from_secs(1);

/// So many that did in a row are enough.
const FAILURES_MAX: u32 = 8;

/// How long a broker that was killed is waited for.
const DEATH: Duration = Duration::from_secs(10);

/// Keeps a broker going until a signal ends it, or somebody asks it to end. A second signal ends what hangs. `post` is the socket of a broker that has lost its keeper, if there is one.
/// `is_ready` is called when tenants can connect.
///
/// # Errors
/// [`io::ErrorKind::AddrInUse`] where another broker serves the socket, [`io::ErrorKind::AlreadyExists`] where something else lies there; those of starting a broker; [`io::ErrorKind::Other`] where brokers end as soon as they are
/// started, and where one did not end that was to.
pub fn run(config: &Config, post: Option<OwnedFd>, mut is_ready: impl FnMut()) -> io::Result<()> {
    let signals = Signals::block()?;
    forget_children();
    raise_descriptors()?;
    let has_all = post.is_none();
    let mut keeper = Keeper { config, held: Held::new(), has_all, failures: 0, started: Instant::now(), process: None };
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
            Ended::Stopped => {
                // Whoever hears the end of its connection can serve this place.
                keeper.held.remove(&Kept::Lock);
                return Ok(());
            }
        }
    }
}

/// The right to serve a socket, which nobody else has while the descriptor is open anywhere.
fn lock(socket: &Path) -> io::Result<OwnedFd> {
    // What lies there is removed: a socket that another broker left, and nothing else.
    if std::fs::symlink_metadata(socket).is_ok_and(|found| !found.file_type().is_socket()) {
        let said = format!("{} is there, and is no socket: name another with --socket", socket.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, said));
    }
    let mut path = socket.as_os_str().to_owned();
    path.push(".lock");
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
    /// The broker's, if this process started it.
    process: Option<OwnedFd>,
}

enum Ended {
    Died,
    Stopped,
}

impl Keeper<'_> {
    fn start(&mut self) -> io::Result<OwnedFd> {
        self.started = Instant::now();
        let (child, post) = self.config.start(Part::Broker)?;
        // One that has ended already is noticed where letters are read.
        self.process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).ok();
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
                signals.take();
                return self.stop(broker, signals);
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

    /// Has the broker end itself, and waits until it has, or another signal comes.
    fn stop(&mut self, broker: &OwnedFd, signals: &Signals) -> io::Result<Ended> {
        match post::stop(broker) {
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => {}
            Err(error) => return Err(error.into()),
        }
        loop {
            let mut ready = [PollFd::new(broker, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
            match poll(&mut ready, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            if !ready[1].revents().is_empty() {
                return self.kill();
            }
            match post::receive(broker, RecvFlags::DONTWAIT) {
                Ok(Letter::Stop) | Err(NotReceived::Closed) => return Ok(Ended::Stopped),
                Ok(_) => {}
                Err(NotReceived::Failed(error)) => return Err(error.into()),
                Err(NotReceived::Nothing | NotReceived::Malformed) => {}
            }
        }
    }

    /// Ends a broker that does not end itself. One that another process started ends when it goes on.
    fn kill(&self) -> io::Result<Ended> {
        let Some(process) = &self.process else {
            return Err(io::Error::other("the broker did not end: it does when it goes on"));
        };
        match pidfd_send_signal(process, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => return Err(error.into()),
        }
        // Its socket is free when it is dead, and not when it was told to die.
        let longest = Timespec { tv_sec: DEATH.as_secs() as i64, tv_nsec: 0 };
        match poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&longest)) {
            Ok(_) | Err(Errno::INTR) => Err(io::Error::other("the broker did not end: it was killed")),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::part::Terms;

    #[test]
    fn a_keeper_that_has_half_of_everything_starts_no_broker() {
        let config = Config {
            program: "/nowhere/freehold".into(),
            before: Vec::new(),
            socket: "/nowhere/broker".into(),
            device: None,
            device_uuid: 0,
            memory_bytes: 0,
            spin_us: 0,
            terms: Terms::default(),
        };
        let mut keeper = Keeper {
            config: &config,
            held: Held::new(),
            has_all: false,
            failures: 0,
            started: Instant::now(),
            process: None,
        };
        let refused = keeper.restart().unwrap_err().to_string();
        assert_eq!(refused, "the broker ended before its new keeper had everything: start it again");
        keeper.has_all = true;
        assert_eq!(keeper.restart().unwrap_err().kind(), io::ErrorKind::NotFound, "now it is tried");
    }
}
