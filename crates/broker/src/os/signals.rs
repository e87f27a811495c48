//! Process-wide settings: termination signals as a descriptor that can be polled, children that are reaped
//! automatically, and the limit of file descriptors.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};

const SIGNALS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// SIGINT, SIGTERM and SIGHUP, blocked and readable from a descriptor.
#[derive(Debug)]
pub struct Signals(OwnedFd);

impl Signals {
    /// Blocks the signals for this thread and for those that it starts.
    ///
    /// # Errors
    /// If no file descriptors are left.
    pub fn block() -> io::Result<Self> {
        let set = set_of(&SIGNALS);
        mask(libc::SIG_BLOCK, &set)?;
        // SAFETY: `set` is initialized and outlives the call.
        let descriptor = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just created and has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    /// Takes the number of a pending signal, if there is one.
    pub(crate) fn try_take(&self) -> Option<libc::c_int> {
        let mut one = [0; size_of::<libc::signalfd_siginfo>()];
        let bytes = rustix::io::read(&self.0, &mut one).ok()?;
        let number = one[..bytes].first_chunk()?;
        i32::try_from(u32::from_ne_bytes(*number)).ok()
    }

    /// Waits for a signal that ends this process, calls `before`, and lets the signal end it.
    pub fn exit_on_signal(&self, before: impl FnOnce()) {
        let signal = loop {
            // It may wake up without a signal.
            let _ = poll(&mut [PollFd::new(&self.0, PollFlags::IN)], None);
            match self.try_take() {
                Some(signal) if !is_ignored(signal) => break signal,
                _ => {}
            }
        };
        before();
        // SAFETY: the number is that of a signal, which stays pending until this thread unblocks it.
        unsafe { libc::raise(signal) };
        // The process ends here: these signals have no handler.
        let _ = mask(libc::SIG_UNBLOCK, &set_of(&[signal]));
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn set_of(signals: &[libc::c_int]) -> libc::sigset_t {
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: `set` has room for a set, which the call fills.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: the call above filled it.
    let mut set = unsafe { set.assume_init() };
    for &signal in signals {
        // SAFETY: `set` is initialized, and the number is that of a signal.
        unsafe { libc::sigaddset(&raw mut set, signal) };
    }
    set
}

/// Changes which signals are blocked in this thread.
fn mask(how: libc::c_int, set: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: `set` is initialized and outlives the call; no old set is requested.
    let code = unsafe { libc::pthread_sigmask(how, set, std::ptr::null_mut()) };
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

/// Whether the parent made this process ignore a signal, as `nohup` does.
fn is_ignored(signal: libc::c_int) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: no action is set, and `action` has room for the current one; the number is that of a signal.
    let code = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    assert_eq!(code, 0, "a signal has an action");
    // SAFETY: the call wrote all of it.
    unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Lets the kernel reap children. Their death is noticed over their sockets.
pub(crate) fn ignore_sigchld() {
    // SAFETY: no handler is installed, only the disposition changes; no thread of this process waits for children.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

/// Raises the soft limit of file descriptors to the hard limit: each segment and each tenant needs some.
pub(crate) fn raise_fd_limit() -> io::Result<()> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}
