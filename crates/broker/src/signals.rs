//! What a process of the broker's asks of the system once: the signals that end it as a descriptor that can be waited for,
//! children that nobody waits for, and descriptors enough.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// SIGINT, SIGTERM and SIGHUP, which end this process no more.
#[derive(Debug)]
pub(crate) struct Signals(OwnedFd);

impl Signals {
    pub(crate) fn block() -> io::Result<Self> {
        let mut set = std::mem::MaybeUninit::uninit();
        // SAFETY: `set` is room for a set, which the call fills.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: the call above filled it.
        let mut set = unsafe { set.assume_init() };
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            // SAFETY: `set` is a set, and the number is that of a signal.
            unsafe { libc::sigaddset(&raw mut set, signal) };
        }
        // SAFETY: `set` is a set that outlives the call; no old set is asked for.
        let code = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        if code != 0 {
            return Err(io::Error::from_raw_os_error(code));
        }
        // SAFETY: `set` is a set that outlives the call.
        let descriptor = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made, and is nobody else's.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    /// Takes one that came, so that the next one is heard of.
    pub(crate) fn take(&self) {
        let mut one = [0; size_of::<libc::signalfd_siginfo>()];
        // None came where this fails.
        let _ = rustix::io::read(&self.0, &mut one);
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Lets children go without a trace: whether one has died is heard of over its socket.
pub(crate) fn forget_children() {
    // SAFETY: no function is set, only that nothing is to be done; no thread of this process waits for children.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

/// As many descriptors as the system allows: each segment and each tenant has some.
pub(crate) fn raise_descriptors() -> io::Result<()> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}
