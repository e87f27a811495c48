//! The signals that `freehold check` passes to its program, and the one that reports the end of a child, blocked and read
//! from a descriptor.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Those that the program gets.
const PASSED: [libc::c_int; 6] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];

pub(super) struct Signals {
    descriptor: OwnedFd,
    /// What was blocked before, as the program expects it.
    mask: libc::sigset_t,
}

/// A signal that was sent to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Received {
    pub(super) number: i32,
    /// The process that sent it.
    pub(super) sender: u32,
    /// Whether it is a key pressed in the terminal, which all processes of the group get.
    pub(super) is_key: bool,
}

impl Received {
    /// Whether it only reports that a child ended.
    pub(super) fn is_about_a_child(self) -> bool {
        self.number == libc::SIGCHLD
    }
}

impl Signals {
    /// Blocks the signals for this thread and for those that it starts. A thread that existed before would take a signal of the process,
    /// and the descriptor would not report it: call this before a driver is loaded, which starts threads.
    pub(super) fn block() -> io::Result<Self> {
        // If the parent ignores it, children would be reaped without their status.
        // SAFETY: no handler is installed, only the default action.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
        let mut set = empty_set();
        for signal in PASSED.into_iter().chain([libc::SIGCHLD]) {
            // SAFETY: `set` is initialized, and the number is that of a signal.
            unsafe { libc::sigaddset(&raw mut set, signal) };
        }
        let mut mask = empty_set();
        // SAFETY: both sets are initialized and outlive the call.
        let code = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut mask) };
        if code != 0 {
            return Err(io::Error::from_raw_os_error(code));
        }
        // SAFETY: `set` is initialized and outlives the call.
        let descriptor = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just created and has no other owner.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(Self { descriptor, mask })
    }

    /// Makes a command start its program with the signals that were blocked before.
    pub(super) fn restore_in(&self, command: &mut Command) {
        let mask = self.mask;
        let restore = move || {
            // SAFETY: `mask` is initialized and outlives the call; no old set is requested.
            let code = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut()) };
            if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
        };
        // SAFETY: the closure makes one call, which is safe after a fork, allocates nothing, and takes no lock.
        unsafe { command.pre_exec(restore) };
    }

    /// Takes a pending signal, if there is one.
    pub(super) fn try_take(&self) -> Option<Received> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
        // SAFETY: `info` has room for the number of bytes that is passed.
        let bytes = unsafe {
            libc::read(
                std::os::fd::AsRawFd::as_raw_fd(&self.descriptor),
                info.as_mut_ptr().cast(),
                size_of::<libc::signalfd_siginfo>(),
            )
        };
        if usize::try_from(bytes) != Ok(size_of::<libc::signalfd_siginfo>()) {
            return None;
        }
        // SAFETY: it consists of numbers, and all of its bytes were written.
        let info = unsafe { info.assume_init() };
        let number = i32::try_from(info.ssi_signo).expect("the number of a signal is small");
        Some(Received { number, sender: info.ssi_pid, is_key: info.ssi_code == libc::SI_KERNEL })
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn empty_set() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `set` has room for a set, which the call fills.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: the call above filled it.
    unsafe { set.assume_init() }
}
