//! Commands of a peer that affect a whole machine: using it once, filling its memory, and leaving a forked child
//! behind.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use freehold_driver::cuda::{Api, CUdeviceptr, CUerror, context, driver, fill, memory};

use super::map_words;
use super::serve::{Answer, Failure};
use crate::common::untouched;
use freehold_testing::Random;

/// The words that peers of a crowd share with the test.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Crowd {
    /// What all hold together, at the most: it grows after an allocation and falls before a release.
    pub(crate) held_bytes: AtomicU64,
    /// More than this is never held.
    pub(crate) limit_bytes: AtomicU64,
    /// One when all peers must stop.
    pub(crate) stop: AtomicU64,
    /// Allocations so far, of all.
    pub(crate) count: AtomicU64,
    /// Refused allocations, of all peers.
    pub(crate) refused: AtomicU64,
}

impl Crowd {
    pub(crate) fn of(words: &OwnedFd) -> &'static Self {
        let start = map_words(words).cast::<Self>();
        // SAFETY: the page is aligned and never unmapped, zeros are a value of the type, and only atomics refer to it.
        unsafe { &*start }
    }
}

/// Initializes the driver, creates a context and uses a block, without freeing them.
pub(super) fn try_machine() -> Result<usize, Failure> {
    let (api, device) = untouched();
    driver::init(&api, 0)?;
    context::create(&api, device, 0)?;
    let block = memory::alloc(&api, 4 << 20)?;
    fill::d8(&api, block, 1, 4 << 20)?;
    context::synchronize(&api)?;
    Ok(memory::info(&api)?.free_bytes)
}

/// Allocates and frees at random until stopped. Returns the numbers of granted and refused allocations.
pub(super) fn crowd(api: &Api, seed: u64, words: &OwnedFd) -> Result<(u64, u64), Failure> {
    const MIB: u64 = 1 << 20;
    let (crowd, mut random) = (Crowd::of(words), Random::new(seed));
    let (mut blocks, mut given, mut refused) = (Vec::<(CUdeviceptr, u64)>::new(), 0, 0);
    while crowd.stop.load(Ordering::SeqCst) == 0 {
        if blocks.len() == 4 || (!blocks.is_empty() && random.below(2) == 0) {
            free(api, crowd, blocks.swap_remove(random.below(blocks.len() as u64) as usize))?;
            continue;
        }
        let bytes = 2 * MIB * (1 + random.below(48));
        match memory::alloc(api, bytes as usize) {
            Ok(block) => {
                let held = crowd.held_bytes.fetch_add(bytes, Ordering::SeqCst) + bytes;
                blocks.push((block, bytes));
                given += 1;
                crowd.count.fetch_add(1, Ordering::SeqCst);
                let limit = crowd.limit_bytes.load(Ordering::SeqCst);
                if held > limit {
                    return Err(format!("{held} bytes are held, and there are {limit}").into());
                }
            }
            Err(error) if error.code == CUerror::OUT_OF_MEMORY => {
                refused += 1;
                crowd.refused.fetch_add(1, Ordering::SeqCst);
            }
            Err(error) => return Err(error.into()),
        }
    }
    blocks.into_iter().try_for_each(|block| free(api, crowd, block))?;
    Ok((given, refused))
}

fn free(api: &Api, crowd: &Crowd, (block, bytes): (CUdeviceptr, u64)) -> Result<(), Failure> {
    crowd.held_bytes.fetch_sub(bytes, Ordering::SeqCst);
    Ok(memory::free(api, block)?)
}

/// Forks a child that inherits everything but this process's socket, echoes bytes over `socket`, and exits when it is
/// closed.
pub(super) fn fork(socket: &OwnedFd) -> Answer {
    // SAFETY: the child makes only calls that are good after a fork in a process with threads.
    match unsafe { libc::fork() } {
        -1 => Err("the system cannot fork a process".to_owned().into()),
        0 => echo(socket.as_raw_fd()),
        child => Ok((child.to_string(), Vec::new())),
    }
}

fn echo(socket: i32) -> ! {
    // SAFETY: the descriptor is this process's own and used by nobody else in it.
    unsafe { libc::close(0) };
    let mut byte = 0_u8;
    loop {
        // SAFETY: `byte` is as long as what is read.
        let read = unsafe { libc::read(socket, (&raw mut byte).cast(), 1) };
        if read != 1 {
            // SAFETY: ends the child, whose memory is its own.
            unsafe { libc::_exit(0) }
        }
        // SAFETY: `byte` is as long as what is written.
        let written = unsafe { libc::write(socket, (&raw const byte).cast(), 1) };
        if written != 1 {
            // SAFETY: as above.
            unsafe { libc::_exit(1) }
        }
    }
}
