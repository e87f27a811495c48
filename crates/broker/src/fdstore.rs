//! The fdstore: a process that holds descriptors, and starts the broker again when that dies. It knows nothing of CUDA, and of
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

use crate::fd_channel::{self, FdKey, FdMessage, FdTable};
use crate::role::{Config, Role};
use crate::seqpacket::ReceiveError;
use crate::signals::{Signals, ignore_sigchld, raise_fd_limit};

/// A broker that ends so soon has not served anybody.
const LIFE_MIN: Duration = Duration::from_secs(1);

/// So many that did in a row are enough.
const RESTARTS_MAX: u32 = 8;

/// How long a broker that was killed is waited for.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// Keeps a broker going until a signal ends it, or somebody asks it to end. A second signal ends what hangs. `control_socket` is the socket of a broker that has lost its fdstore, if there is one.
/// `is_ready` is called when tenants can connect.
///
/// # Errors
/// [`io::ErrorKind::AddrInUse`] where another broker serves the socket, [`io::ErrorKind::AlreadyExists`] where something else lies there; those of starting a broker; [`io::ErrorKind::Other`] where brokers end as soon as they are
/// started, and where one did not end that was to.
pub fn run(config: &Config, control_socket: Option<OwnedFd>, mut is_ready: impl FnMut()) -> io::Result<()> {
    let signals = Signals::block()?;
    ignore_sigchld();
    raise_fd_limit()?;
    let has_all = control_socket.is_none();
    let mut fdstore = FdStore {
        config,
        fds: FdTable::new(),
        is_complete: has_all,
        failures: 0,
        started: Instant::now(),
        process: None,
    };
    let mut broker = match control_socket {
        Some(control_socket) => control_socket,
        None => {
            fdstore.fds.insert(FdKey::Lock, Arc::new(lock_socket(&config.socket)?));
            fdstore.start()?
        }
    };
    loop {
        match fdstore.store_until_exit(&broker, &signals, &mut is_ready)? {
            BrokerExit::Died => broker = fdstore.restart()?,
            BrokerExit::Stopped => {
                // Whoever hears the end of its connection can serve this place.
                fdstore.fds.remove(&FdKey::Lock);
                return Ok(());
            }
        }
    }
}

/// The right to serve a socket, which nobody else has while the descriptor is open anywhere.
fn lock_socket(socket: &Path) -> io::Result<OwnedFd> {
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

struct FdStore<'a> {
    config: &'a Config,
    fds: FdTable,
    /// Whether a broker that lost its fdstore has sent everything. Half of it would end what lives.
    is_complete: bool,
    failures: u32,
    started: Instant,
    /// The broker's, if this process started it.
    process: Option<OwnedFd>,
}

enum BrokerExit {
    Died,
    Stopped,
}

impl FdStore<'_> {
    fn start(&mut self) -> io::Result<OwnedFd> {
        self.started = Instant::now();
        let (child, control_socket) = self.config.spawn(Role::Broker)?;
        // One that has ended already is noticed where messages are read.
        self.process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).ok();
        match fd_channel::send_all(&control_socket, &self.fds) {
            // One that is dead already is noticed where messages are read.
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(control_socket),
            Err(error) => Err(error.into()),
        }
    }

    fn restart(&mut self) -> io::Result<OwnedFd> {
        if !self.is_complete {
            return Err(io::Error::other("the broker ended before its new fdstore had everything: start it again"));
        }
        if self.started.elapsed() < LIFE_MIN {
            self.failures += 1
        } else {
            self.failures = 0
        }
        if self.failures >= RESTARTS_MAX {
            return Err(io::Error::other("the broker ends as soon as it is started: what it says above is why"));
        }
        self.start()
    }

    /// Holds what the broker sends until it ends, or a signal comes.
    fn store_until_exit(
        &mut self,
        broker: &OwnedFd,
        signals: &Signals,
        is_ready: &mut impl FnMut(),
    ) -> io::Result<BrokerExit> {
        loop {
            let mut ready = [PollFd::new(broker, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
            match poll(&mut ready, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            if !ready[1].revents().is_empty() {
                signals.try_take();
                return self.stop(broker, signals);
            }
            match fd_channel::receive(broker, RecvFlags::DONTWAIT) {
                Ok(FdMessage::Hold(what, descriptor)) => {
                    self.fds.insert(what, Arc::new(descriptor));
                    if what == FdKey::Listener {
                        is_ready();
                    }
                }
                Ok(FdMessage::Drop(what)) => {
                    self.fds.remove(&what);
                }
                // It serves: whatever ends it was not there when it began.
                Ok(FdMessage::Complete) => (self.failures, self.is_complete) = (0, true),
                Ok(FdMessage::Stop) => return Ok(BrokerExit::Stopped),
                Err(ReceiveError::WouldBlock) => {}
                Err(ReceiveError::Closed) => return Ok(BrokerExit::Died),
                Err(ReceiveError::Malformed) => return Err(io::Error::other("the broker is of another version")),
                Err(ReceiveError::System(error)) => return Err(error.into()),
            }
        }
    }

    /// Has the broker end itself, and waits until it has, or another signal comes.
    fn stop(&mut self, broker: &OwnedFd, signals: &Signals) -> io::Result<BrokerExit> {
        match fd_channel::send_stop(broker) {
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
            match fd_channel::receive(broker, RecvFlags::DONTWAIT) {
                Ok(FdMessage::Stop) | Err(ReceiveError::Closed) => return Ok(BrokerExit::Stopped),
                Ok(_) => {}
                Err(ReceiveError::System(error)) => return Err(error.into()),
                Err(ReceiveError::WouldBlock | ReceiveError::Malformed) => {}
            }
        }
    }

    /// Ends a broker that does not end itself. One that another process started ends when it goes on.
    fn kill(&self) -> io::Result<BrokerExit> {
        let Some(process) = &self.process else {
            return Err(io::Error::other("the broker did not end: it does when it goes on"));
        };
        match pidfd_send_signal(process, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => return Err(error.into()),
        }
        // Its socket is free when it is dead, and not when it was told to die.
        let longest = Timespec { tv_sec: KILL_TIMEOUT.as_secs() as i64, tv_nsec: 0 };
        match poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&longest)) {
            Ok(_) | Err(Errno::INTR) => Err(io::Error::other("the broker did not end: it was killed")),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::role::BrokerLimits;

    #[test]
    fn a_fdstore_that_has_half_of_everything_starts_no_broker() {
        let config = Config {
            program: "/nowhere/freehold".into(),
            leading_args: Vec::new(),
            socket: "/nowhere/broker".into(),
            device: None,
            device_uuid: 0,
            memory_bytes: 0,
            spin_us: 0,
            limits: BrokerLimits::default(),
        };
        let mut fdstore = FdStore {
            config: &config,
            fds: FdTable::new(),
            is_complete: false,
            failures: 0,
            started: Instant::now(),
            process: None,
        };
        let refused = fdstore.restart().unwrap_err().to_string();
        assert_eq!(refused, "the broker ended before its new fdstore had everything: start it again");
        fdstore.is_complete = true;
        assert_eq!(fdstore.restart().unwrap_err().kind(), io::ErrorKind::NotFound, "now it is tried");
    }
}
