//! Peers: child processes that use the device, while the test itself never does.
//!
//! A peer is the test binary, started again for the test [`ENTRY`]. It runs the commands that it receives on a socket,
//! which is its standard input, and exits when the socket is closed. Peers are spawned, never forked from a process
//! that has initialized the driver.

#![allow(dead_code, unused_imports, reason = "each test binary uses a part of this")]

mod serve;
mod share;
pub(crate) mod socket;
mod work;

use std::env;
use std::ffi::c_void;
use std::fmt::Display;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{self, Child, Command, Stdio};
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use freehold_driver::cuda::CUerror;
use freehold_testing::HANG_TIMEOUT;

use serve::serve;
pub(crate) use share::{Kind, WORDS_BYTES, block_bytes, parse, shared_words};
pub(crate) use socket::Message;
pub(crate) use work::Crowd;

/// The test below, which peers run.
const ENTRY: &str = "peer::a_peer_answers_and_exits_on_request";

/// Set in a peer.
const PEER: &str = "FREEHOLD_TEST_PEER";

/// How a peer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Exit,
    Kill,
    /// An access to unmapped memory.
    Fault,
}

impl End {
    pub(crate) const ALL: [Self; 3] = [Self::Exit, Self::Kill, Self::Fault];

    fn signal(self) -> Option<i32> {
        match self {
            Self::Exit => None,
            Self::Kill => Some(libc::SIGKILL),
            Self::Fault => Some(libc::SIGSEGV),
        }
    }
}

/// Returns whether the tests of this run use the software driver.
pub(crate) fn is_soft() -> bool {
    env!("CARGO_CRATE_NAME") == "soft" || env::var("FREEHOLD_DEVICE").is_ok_and(|name| name == "soft") || {
        env::var_os("FREEHOLD_DEVICE").is_none()
    }
}

/// A machine of one test: only its peers share its software devices. NVIDIA's driver has one machine only.
#[derive(Debug)]
pub(crate) struct Machine {
    name: String,
}

impl Machine {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Self { name: format!("peers-{}-{count}x", process::id()) }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Starts a peer that has not used the driver.
    pub(crate) fn idle(&self) -> Peer {
        Peer::start(&self.name, &[])
    }

    /// Starts a peer with a context.
    pub(crate) fn peer(&self) -> Peer {
        let peer = self.idle();
        peer.ask("start");
        peer
    }
}

/// Returns the folder of a user's machines.
pub(crate) fn machines_folder(user: u32) -> PathBuf {
    PathBuf::from(format!("/dev/shm/freehold-{user}"))
}

impl Machine {
    /// Returns the software driver's files of this machine.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let folder = machines_folder(rustix::process::geteuid().as_raw());
        let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        paths.filter(|path| path.to_string_lossy().contains(&self.name)).collect()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for path in self.files() {
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            // A process that has just started may have removed it before.
            let gone = removed.is_ok() || !path.exists();
            assert!(std::thread::panicking() || gone, "{}: {removed:?}", path.display());
        }
    }
}

/// A peer process and the socket to it. Dropping this kills the process.
#[derive(Debug)]
pub(crate) struct Peer {
    process: Child,
    socket: OwnedFd,
}

impl Peer {
    /// Starts a peer on a machine, with additional environment variables.
    pub(crate) fn start(machine: &str, variables: &[(&str, &str)]) -> Self {
        let binary = env::current_exe().expect("a test binary knows its path");
        Self::start_by(&mut Command::new(binary), machine, variables)
    }

    /// [`start`](Self::start) by a command for this binary.
    pub(crate) fn start_by(command: &mut Command, machine: &str, variables: &[(&str, &str)]) -> Self {
        let (socket, theirs) = socket::pair();
        socket::limit(&socket, HANG_TIMEOUT);
        command.args(["--exact", ENTRY, "--nocapture", "--test-threads=1"]);
        command.env(PEER, "1").env("FREEHOLD_SOFT_MACHINE", machine).envs(variables.iter().copied());
        command.stdin(Stdio::from(theirs)).stdout(Stdio::null());
        let turn = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        let process = command.spawn().expect("the test binary starts again");
        drop(turn);
        // Closes the command's copy of the peer's end of the socket, so that only the peer holds it.
        command.stdin(Stdio::null());
        Self { process, socket }
    }

    /// Sends the peer a command with descriptors, and waits for its answer.
    #[track_caller]
    pub(crate) fn try_ask(&self, what: impl Display, descriptors: &[OwnedFd]) -> Result<Message, CUerror> {
        self.tell(&what, descriptors);
        self.answer(&what)
    }

    /// Sends the peer a command. [`answer`](Self::answer) receives the answer.
    #[track_caller]
    pub(crate) fn tell(&self, what: impl Display, descriptors: &[OwnedFd]) {
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        let sent = socket::send(&self.socket, &what.to_string(), &descriptors);
        assert_eq!(sent, Ok(()), "the peer takes '{what}'");
    }

    /// Receives the answer to an earlier command.
    #[track_caller]
    pub(crate) fn answer(&self, what: impl Display) -> Result<Message, CUerror> {
        let message = socket::receive(&self.socket).unwrap_or_else(|error| panic!("'{what}' is not answered: {error}"));
        let mut message = message.unwrap_or_else(|| panic!("the peer has ended at '{what}'"));
        let (verdict, rest) = message.text.split_once(' ').unwrap_or((message.text.as_str(), ""));
        match verdict {
            "ok" => {
                message.text = rest.to_owned();
                Ok(message)
            }
            "refused" => {
                println!("'{what}': {rest}");
                let number = rest.split(' ').next().and_then(|number| number.parse().ok());
                Err(number.and_then(CUerror::new).expect("a refusal has the number of its code"))
            }
            _ => panic!("'{what}': {rest}"),
        }
    }

    /// Sends a command that must succeed, and returns the text of its answer.
    #[track_caller]
    pub(crate) fn ask(&self, what: impl Display) -> String {
        self.ask_with(what, &[]).text
    }

    /// Sends a command that must succeed.
    #[track_caller]
    pub(crate) fn ask_with(&self, what: impl Display, descriptors: &[OwnedFd]) -> Message {
        let answer = self.try_ask(&what, descriptors);
        answer.unwrap_or_else(|code| panic!("'{what}' is refused: {code:?}"))
    }

    /// Sends a command that the driver must refuse, and returns the code.
    #[track_caller]
    pub(crate) fn refused(&self, what: impl Display) -> CUerror {
        self.try_ask(&what, &[]).expect_err("the driver refuses")
    }

    /// Sends a command whose answer is a number.
    #[track_caller]
    pub(crate) fn number(&self, what: impl Display) -> usize {
        self.ask(what).parse().expect("the answer is a number")
    }

    /// Returns the free memory of the device.
    #[track_caller]
    pub(crate) fn free_bytes(&self) -> usize {
        self.number("free")
    }

    /// Polls until `right` accepts the free memory. The software driver frees memory at once; hardware takes some
    /// milliseconds to clean up after a process.
    #[track_caller]
    pub(crate) fn await_free(&self, case: impl Display, right: impl Fn(usize) -> bool) -> usize {
        let (free, rounds) = self.await_free_later(&case, right);
        assert!(!is_soft() || rounds == 1, "{case}: the software driver gives memory back at once");
        free
    }

    /// Polls until `right` accepts the free memory, where the kernel decides when: it closes descriptors in unread
    /// messages late, because its garbage collector for sockets may be busy with any process of the machine. Returns
    /// the free memory and the number of rounds.
    #[track_caller]
    pub(crate) fn await_free_later(&self, case: impl Display, right: impl Fn(usize) -> bool) -> (usize, u32) {
        let start = Instant::now();
        for rounds in 1.. {
            let free = self.free_bytes();
            if right(free) {
                println!("{case}: {free} bytes are free after {rounds} rounds");
                return (free, rounds);
            }
            assert!(start.elapsed() < HANG_TIMEOUT, "{case}: {free} bytes are free after {rounds} rounds");
        }
        unreachable!("the deadline ends the loop")
    }

    /// Kills the peer, which stays a zombie until this is dropped: the process is dead, but its id is still in use.
    #[track_caller]
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("a process that was not waited for can be killed");
        while socket::receive(&self.socket).expect("the peer ends").is_some() {}
    }

    /// Ends the peer and waits for it.
    #[track_caller]
    pub(crate) fn end(mut self, how: End) {
        match how {
            End::Exit => self.tell("exit", &[]),
            End::Fault => self.tell("fault", &[]),
            End::Kill => self.process.kill().expect("a process that was not waited for can be killed"),
        }
        // The socket hangs up when the process is gone; otherwise the timeout of the socket fails the test.
        while socket::receive(&self.socket).expect("the peer ends").is_some() {}
        let status = self.process.wait().expect("a child can be waited for");
        assert_eq!(status.signal(), how.signal(), "the peer ends by {how:?}: {status}");
        assert!(how != End::Exit || status.success(), "the peer ends well: {status}");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Fails for a process that was waited for, which is fine.
        let killed = self.process.kill();
        let waited = self.process.wait();
        assert!(std::thread::panicking() || waited.is_ok(), "{killed:?}, {waited:?}");
    }
}

/// Held while a process is started: until `exec`, it holds all descriptors of this one.
static STARTING: Mutex<()> = Mutex::new(());

/// Closes descriptors, so that no process of this test holds them.
pub(crate) fn close_descriptors<T>(descriptors: T) {
    let _turn = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    drop(descriptors);
}

/// Maps host memory that processes share, until this one exits.
pub(crate) fn map_words(words: &OwnedFd) -> *mut c_void {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let descriptor = words.as_raw_fd();
    // SAFETY: a new mapping at a place of the kernel's choice replaces nothing.
    let start = unsafe { libc::mmap(ptr::null_mut(), WORDS_BYTES, protection, libc::MAP_SHARED, descriptor, 0) };
    assert_ne!(start, libc::MAP_FAILED, "the system maps shared memory");
    start
}

/// Returns the words of a shared event: the one that the recording stream waits for, and the one that the following
/// stream writes.
pub(crate) fn gate_and_follow_words(words: &OwnedFd) -> (&'static AtomicU64, &'static AtomicU64) {
    let start = map_words(words).cast::<AtomicU64>();
    // SAFETY: the page is aligned, zeroed at first and never unmapped; only atomics of this process refer to it.
    let words = unsafe { std::slice::from_raw_parts(start, 2) };
    (&words[0], &words[1])
}

#[test]
fn a_peer_answers_and_exits_on_request() {
    serve();
    let machine = Machine::new();
    for how in End::ALL {
        let peer = machine.idle();
        assert_eq!(peer.ask("hello"), "hello");
        peer.end(how);
    }
}
