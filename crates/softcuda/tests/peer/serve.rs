//! The commands of a peer: each is answered with `ok`, `refused CODE` or `wrong`.

use std::env;
use std::fmt::Display;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process;

use freehold_driver::cuda::{CUdeviceptr, DriverError, copy, ipc, ipc_flags, memory};

use super::share::{self, Kind, Share};
use super::{PEER, socket, work};
use crate::common::Context;

/// The reason why a command of a peer failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The driver refused a call.
    Refused(DriverError),
    /// The peer found a wrong result.
    Wrong(String),
}

impl From<DriverError> for Failure {
    fn from(error: DriverError) -> Self {
        Self::Refused(error)
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::Wrong(text)
    }
}

/// The text of an answer, and its descriptors.
pub(super) type Answer = Result<(String, Vec<OwnedFd>), Failure>;

pub(super) fn done() -> Answer {
    Ok((String::new(), Vec::new()))
}

fn say(text: impl Display) -> Answer {
    Ok((text.to_string(), Vec::new()))
}

/// The state of a peer.
#[derive(Debug, Default)]
struct Server {
    own: Option<share::Driver>,
    shares: Vec<Share>,
    blocks: Vec<CUdeviceptr>,
    held: Vec<OwnedFd>,
}

/// If this process is a peer, runs commands until the socket is closed, and does not return.
pub(crate) fn serve() {
    if env::var_os(PEER).is_none() {
        return;
    }
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    rustix::process::setrlimit(rustix::process::Resource::Core, none).expect("a process may write no core");
    let socket = io::stdin();
    let mut server = Server::default();
    loop {
        let Some(message) = socket::receive(socket.as_fd()).expect("the socket of a peer works") else {
            process::exit(0)
        };
        let words: Vec<_> = message.text.split(' ').collect();
        let (text, descriptors) = match server.serve(&words, message.descriptors) {
            Ok((text, descriptors)) => (format!("ok {text}"), descriptors),
            Err(Failure::Refused(error)) => (format!("refused {} {error}", error.code.number()), Vec::new()),
            Err(Failure::Wrong(text)) => (format!("wrong {text}"), Vec::new()),
        };
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        if socket::send(socket.as_fd(), &text, &descriptors).is_err() {
            process::exit(0);
        }
    }
}

fn number<T: std::str::FromStr>(word: &str) -> Result<T, Failure> {
    word.parse().map_err(|_| Failure::Wrong(format!("'{word}' is not a valid number")))
}

impl Server {
    fn serve(&mut self, words: &[&str], descriptors: Vec<OwnedFd>) -> Answer {
        match words {
            ["hello"] => return say("hello"),
            ["exit"] => process::exit(0),
            ["fault"] => fault(),
            ["try"] => return say(work::try_machine()?),
            ["fork"] => return work::fork(descriptors.first().ok_or_else(|| "expected a socket".to_owned())?),
            ["start"] => {
                self.own = Some(share::Driver::start());
                return done();
            }
            ["hold"] => {
                self.held.extend(descriptors);
                return done();
            }
            ["give"] => {
                let copies: io::Result<Vec<_>> = self.held.iter().map(OwnedFd::try_clone).collect();
                return Ok((String::new(), copies.map_err(|error| error.to_string())?));
            }
            ["drop"] => {
                self.held.clear();
                return done();
            }
            _ => {}
        }
        let driver = self.own.as_ref().ok_or_else(|| "the peer has not started".to_owned())?;
        let own = &driver.own;
        match words {
            ["free"] => say(memory::info(&own.api)?.free_bytes),
            ["make", kind, value] => {
                let share = Share::make(driver, Kind::of(kind)?, number(value)?)?;
                let answer = (share.token(), share.copies()?);
                self.shares.push(share);
                Ok(answer)
            }
            ["take", kind, token] => {
                self.shares.push(Share::take(driver, Kind::of(kind)?, token, descriptors)?);
                done()
            }
            ["alloc", bytes] => {
                self.blocks.push(memory::alloc(&own.api, number(bytes)?)?);
                done()
            }
            ["crowd", seed] => {
                let words = descriptors.first().ok_or_else(|| "expected a descriptor of words".to_owned())?;
                let (given, refused) = work::crowd(&own.api, number(seed)?, words)?;
                say(format!("{given} {refused}"))
            }
            ["name", bytes] => {
                let block = memory::alloc(&own.api, number(bytes)?)?;
                self.blocks.push(block);
                say(share::spell(&ipc::memory_handle(&own.api, block)?.bytes))
            }
            ["address"] => say(self.share()?.span().0.0),
            ["free-block"] => {
                let block = self.blocks.pop().ok_or_else(|| "the peer has no block".to_owned())?;
                memory::free(&own.api, block)?;
                done()
            }
            ["free-address", address] => {
                memory::free(&own.api, CUdeviceptr(number(address)?))?;
                done()
            }
            ["read-address", address] => {
                copy::device_to_host(&own.api, &mut [0; 16], CUdeviceptr(number(address)?))?;
                done()
            }
            ["open-own"] => self.open_own(own),
            ["export-again"] => {
                ipc::memory_handle(&own.api, self.share()?.span().0)?;
                done()
            }
            ["touch-nothing"] => driver.touch_nothing(),
            [verb, rest @ ..] => self.use_share(verb, rest),
            [] => Err(Failure::Wrong("empty command".to_owned())),
        }
    }

    fn share(&self) -> Result<&Share, Failure> {
        self.shares.last().ok_or_else(|| Failure::Wrong("the peer shares nothing".to_owned()))
    }

    /// Runs a command on the share that the peer made or took last.
    fn use_share(&mut self, verb: &str, rest: &[&str]) -> Answer {
        let driver = self.own.as_ref().ok_or_else(|| "the peer has not started".to_owned())?;
        let share = self.shares.last_mut().ok_or_else(|| "the peer shares nothing".to_owned())?;
        match (verb, rest) {
            ("check", [value]) => share.check(driver, number(value)?)?,
            ("write", [value]) => share.write(driver, number(value)?)?,
            ("again", [value]) => share.again(driver, number(value)?)?,
            ("close", []) => share.close(driver)?,
            ("unmap", []) => share.unmap(driver)?,
            ("release", []) => share.release(driver)?,
            ("drop-descriptor", []) => share.drop_descriptors(),
            ("record-behind-gate", []) => share.record_behind_gate(driver)?,
            ("record", []) => share.record(driver)?,
            ("follow", [value]) => share.follow(driver, number(value)?)?,
            ("wait-value", [value]) => share.wait_value(driver, number(value)?)?,
            ("write-value", [value]) => share.write_value(driver, number(value)?)?,
            ("finish", []) => share.finish(driver)?,
            _ => return Err(Failure::Wrong(format!("unknown command '{verb}' with {} words", rest.len()))),
        }
        done()
    }

    /// Opens a handle of this process's own block.
    fn open_own(&self, own: &Context) -> Answer {
        let handle = ipc::memory_handle(&own.api, self.share()?.span().0)?;
        say(ipc::open_memory(&own.api, handle, ipc_flags::LAZY_ENABLE_PEER_ACCESS)?.0)
    }
}

/// Ends the process by an invalid access, through any signal handlers.
fn fault() -> ! {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at a place of the kernel's choice replaces nothing.
    let nothing = unsafe { libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_NONE, flags, -1, 0) };
    loop {
        // SAFETY: the page is mapped and aligned, and nobody may read it: the process ends here, as it should.
        unsafe { nothing.cast::<u8>().read_volatile() };
    }
}
