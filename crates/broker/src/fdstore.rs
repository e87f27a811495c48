//! The fdstore: a process that holds descriptors and restarts the broker when it dies. Device memory exists as long as
//! a process has a descriptor of it, so it survives the broker here. The fdstore never loads a driver, and knows the
//! descriptors only by their keys.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::RecvFlags;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::os::seqpacket::ReceiveError;
use crate::os::signals::{Signals, ignore_sigchld, raise_fd_limit};
use crate::os::time::timespec;
use crate::process::{Config, Role};
use crate::protocol::fd_channel::{self, FdKey, FdMessage, FdTable};

/// A broker that exits sooner counts as a failed start.
const LIFE_MIN: Duration = Duration::from_secs(1);

/// Failed starts in a row before the fdstore gives up.
const FAILED_STARTS_MAX: u32 = 8;

/// How long a further signal counts as the first one repeated: `timeout` and terminals send a signal to a process and
/// to its group.
const REPEAT_TIMEOUT: Duration = Duration::from_secs(1);

/// How long to wait for a killed broker to exit.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// Keeps a broker running until a signal or a request stops it. Another signal, a second later or more, kills a broker
/// that hangs. `control_socket` is the socket of a broker that has lost its fdstore, if there is one. `is_ready` is
/// called when tenants can connect. `may_stop` is called for SIGINT, which is ignored if it returns false.
///
/// # Errors
/// [`io::ErrorKind::AddrInUse`] if another broker serves the socket; [`io::ErrorKind::AlreadyExists`] if something
/// other than a socket exists at its path; the errors of starting a broker; [`io::ErrorKind::Other`] if brokers exit as
/// soon as they start, or one did not exit when it was stopped, and was killed.
pub fn run(
    config: &Config,
    control_socket: Option<OwnedFd>,
    mut is_ready: impl FnMut(),
    mut may_stop: impl FnMut() -> bool,
) -> io::Result<()> {
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
        match fdstore.store_until_exit(&broker, &signals, (&mut is_ready, &mut may_stop))? {
            BrokerExit::Died => broker = fdstore.restart()?,
            exit @ (BrokerExit::Stopped | BrokerExit::Killed) => {
                // A client whose connection has ended may start a broker on this path at once, so the lock is released
                // before that. The file is removed while the lock is held: a process that has opened it finds that the
                // path no longer names it.
                let _ = std::fs::remove_file(lock_path(&config.socket));
                fdstore.fds.remove(&FdKey::Lock);
                return match exit {
                    BrokerExit::Killed => Err(io::Error::other("a second signal came: the broker was killed")),
                    _ => Ok(()),
                };
            }
        }
    }
}

/// Takes the exclusive right to serve a socket, held while the descriptor is open in any process.
fn lock_socket(socket: &Path) -> io::Result<OwnedFd> {
    // Only a socket that another broker left is removed later.
    if std::fs::symlink_metadata(socket).is_ok_and(|found| !found.file_type().is_socket()) {
        let said = format!("{} exists and is not a socket: name another path with --socket", socket.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, said));
    }
    let path = lock_path(socket);
    loop {
        let lock = open(&path, OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            io::Error::new(io::ErrorKind::AddrInUse, format!("a broker serves {} already", socket.display()))
        })?;
        // The one who held it may have removed the file after it was opened here.
        let held = rustix::fs::fstat(&lock)?;
        let is_there =
            rustix::fs::stat(&path).is_ok_and(|found| (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino));
        if is_there {
            return Ok(lock);
        }
    }
}

fn lock_path(socket: &Path) -> PathBuf {
    socket.with_added_extension("lock")
}

struct FdStore<'a> {
    config: &'a Config,
    fds: FdTable,
    /// Whether a broker that lost its fdstore has sent everything. Restarting it with half of the descriptors would end
    /// live leases.
    is_complete: bool,
    failures: u32,
    started: Instant,
    /// The pidfd of the broker, if this process started it.
    process: Option<OwnedFd>,
}

enum BrokerExit {
    Died,
    Stopped,
    Killed,
}

impl FdStore<'_> {
    fn start(&mut self) -> io::Result<OwnedFd> {
        self.started = Instant::now();
        let (child, control_socket) = self.config.spawn(Role::Broker)?;
        // If it has exited already, the next read notices.
        self.process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).ok();
        match fd_channel::send_all(&control_socket, &self.fds) {
            // If it has died already, the next read notices.
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(control_socket),
            Err(error) => Err(error.into()),
        }
    }

    fn restart(&mut self) -> io::Result<OwnedFd> {
        if !self.is_complete {
            return Err(io::Error::other(
                "the broker died before its new fdstore had every descriptor: start it again",
            ));
        }
        if self.started.elapsed() < LIFE_MIN {
            self.failures += 1
        } else {
            self.failures = 0
        }
        if self.failures >= FAILED_STARTS_MAX {
            return Err(io::Error::other("the broker exits as soon as it starts: its messages above say why"));
        }
        self.start()
    }

    /// Stores the descriptors that the broker sends until it exits or a signal comes.
    fn store_until_exit(
        &mut self,
        broker: &OwnedFd,
        signals: &Signals,
        (is_ready, may_stop): (&mut impl FnMut(), &mut impl FnMut() -> bool),
    ) -> io::Result<BrokerExit> {
        loop {
            if wait_for_message_or_signal(broker, signals)? {
                let is_interrupt = signals.try_take() == Some(libc::SIGINT);
                if is_interrupt && !may_stop() {
                    continue;
                }
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
                // It serves, so its start did not fail.
                Ok(FdMessage::Complete) => (self.failures, self.is_complete) = (0, true),
                Ok(FdMessage::Stop) => return Ok(BrokerExit::Stopped),
                Err(ReceiveError::WouldBlock) => {}
                Err(ReceiveError::Closed) => return Ok(BrokerExit::Died),
                Err(ReceiveError::Malformed) => {
                    return Err(io::Error::other("the broker runs a different version of this program: stop it first"));
                }
                Err(ReceiveError::System(error)) => return Err(error.into()),
            }
        }
    }

    /// Asks the broker to exit, and waits until it has, or another signal comes that does not repeat the first.
    fn stop(&mut self, broker: &OwnedFd, signals: &Signals) -> io::Result<BrokerExit> {
        match fd_channel::send_stop(broker) {
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => {}
            Err(error) => return Err(error.into()),
        }
        let asked = Instant::now();
        loop {
            let has_signal = wait_for_message_or_signal(broker, signals)?;
            // Before the signal: a broker that has exited is not killed.
            match fd_channel::receive(broker, RecvFlags::DONTWAIT) {
                Ok(FdMessage::Stop) | Err(ReceiveError::Closed) => return Ok(BrokerExit::Stopped),
                Ok(_) => {}
                Err(ReceiveError::System(error)) => return Err(error.into()),
                Err(ReceiveError::WouldBlock | ReceiveError::Malformed) => {}
            }
            if has_signal && signals.try_take().is_some() && asked.elapsed() >= REPEAT_TIMEOUT {
                return self.kill();
            }
        }
    }

    /// Kills a broker that does not exit. One that another process started exits when it runs again.
    fn kill(&self) -> io::Result<BrokerExit> {
        let Some(process) = &self.process else {
            return Err(io::Error::other("the broker did not exit: it does as soon as it runs again"));
        };
        match pidfd_send_signal(process, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => return Err(error.into()),
        }
        // Its socket path is free once it is dead, not when the signal is sent.
        let longest = timespec(KILL_TIMEOUT);
        match poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&longest)) {
            Ok(0) => Err(io::Error::other("a second signal came: the broker was killed, and has not exited yet")),
            Ok(_) | Err(Errno::INTR) => Ok(BrokerExit::Killed),
            Err(error) => Err(error.into()),
        }
    }
}

/// Waits for a message of the broker, or a signal. Returns whether there is a signal.
fn wait_for_message_or_signal(broker: &OwnedFd, signals: &Signals) -> io::Result<bool> {
    let mut ready = [PollFd::new(broker, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
    retry_on_intr(|| poll(&mut ready, None))?;
    Ok(!ready[1].revents().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::BrokerLimits;

    #[test]
    fn a_lock_that_was_removed_is_taken_again_and_one_that_is_held_is_not() {
        let folder = std::env::temp_dir().join(format!("freehold-lock-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let socket = folder.join("broker");
        let first = lock_socket(&socket).unwrap();
        assert_eq!(lock_socket(&socket).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        // Opened before the file is removed, locked afterwards.
        let late = open(lock_path(&socket), OFlags::RDWR, Mode::empty()).unwrap();
        std::fs::remove_file(lock_path(&socket)).unwrap();
        drop(first);
        flock(&late, FlockOperation::NonBlockingLockExclusive).unwrap();
        let second = lock_socket(&socket).unwrap();
        assert_eq!(lock_socket(&socket).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop((late, second));
        std::fs::remove_dir_all(&folder).unwrap();
    }

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
        assert_eq!(refused, "the broker died before its new fdstore had every descriptor: start it again");
        fdstore.is_complete = true;
        assert_eq!(
            fdstore.restart().unwrap_err().kind(),
            io::ErrorKind::NotFound,
            "a complete fdstore tries to start one"
        );
    }
}
