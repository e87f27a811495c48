//! The thread that exports blocks to other processes.

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use freehold::foreign::ExportedChunk;
use freehold_driver::cuda::{CUdeviceptr, CUipcMemHandle};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::rand::{GetRandomFlags, getrandom};

use super::handle::BlockHandle;
use super::socket::{REPLY_BYTES, socket_address};
use crate::code::CudaError;
use crate::log;
use crate::runtime_pool;

/// How long a client may take for its request, which it sends at once, so that a stopped one does not block others.
const CLIENT_SECONDS: u64 = 10;

/// The secret of the socket, once a thread listens.
static SECRET: Mutex<Option<u64>> = Mutex::new(None);

/// Returns a handle of the block at an address.
pub(crate) fn export(address: u64, bytes: u64) -> Result<CUipcMemHandle, CudaError> {
    let mut secret = SECRET.lock().unwrap_or_else(PoisonError::into_inner);
    let secret = match *secret {
        Some(secret) => secret,
        None => *secret.insert(listen().map_err(|error| {
            log::say(&format!("cudaIpcGetMemHandle fails: no other process can connect to this one: {error}"));
            CudaError::OPERATING_SYSTEM
        })?),
    };
    Ok(BlockHandle { process: process::id(), secret, address, bytes }.to_bytes())
}

/// Starts the thread. Returns the secret of its socket.
fn listen() -> std::io::Result<u64> {
    let mut secret = [0; 8];
    getrandom(&mut secret, GetRandomFlags::empty())?;
    let secret = u64::from_le_bytes(secret);
    let listener = UnixListener::bind_addr(&socket_address(process::id(), secret)?)?;
    let serve = move || {
        for client in listener.incoming().flatten() {
            // A client that goes away needs no answer.
            let _ = answer(client);
        }
    };
    // The program's handlers run in its own threads.
    with_signals_blocked(|| thread::Builder::new().name("freehold-ipc".to_owned()).spawn(serve))?;
    Ok(secret)
}

/// Blocks all signals in this thread during a call: a thread that it starts inherits that.
fn with_signals_blocked<R>(call: impl FnOnce() -> R) -> R {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: the set is initialized by the call, which always succeeds.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: the first set is initialized, and the second one is a place for the answer.
    let blocked = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    let result = call();
    if blocked == 0 {
        // SAFETY: the call above has initialized the set.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    }
    result
}

/// Sends the chunks of the block that a client asks for.
fn answer(mut client: UnixStream) -> std::io::Result<()> {
    if socket_peercred(&client)?.uid != rustix::process::getuid() {
        return Ok(());
    }
    let limit = Some(Duration::from_secs(CLIENT_SECONDS));
    client.set_read_timeout(limit)?;
    client.set_write_timeout(limit)?;
    let mut address = [0; 8];
    client.read_exact(&mut address)?;
    let address = u64::from_le_bytes(address);
    // SAFETY: the program keeps a block whose handle it gave to others, as the runtime documents.
    let chunks = runtime_pool::at(CUdeviceptr(address)).map(|pool| unsafe { pool.export_chunks(address) });
    let chunks = chunks.unwrap_or_default();
    for chunk in &chunks {
        send(&client, chunks.len(), chunk)?;
    }
    Ok(())
}

/// Sends a chunk: how many there are, its address, its length, and its descriptor.
fn send(client: &UnixStream, count: usize, chunk: &ExportedChunk) -> std::io::Result<()> {
    let mut reply = [0; REPLY_BYTES];
    for (word, value) in reply.chunks_exact_mut(8).zip([count as u64, chunk.address, chunk.bytes]) {
        word.copy_from_slice(&value.to_le_bytes());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let descriptors = [chunk.descriptor.as_fd()];
    let is_pushed = beside.push(SendAncillaryMessage::ScmRights(&descriptors));
    debug_assert!(is_pushed, "there is space for one descriptor");
    sendmsg(client, &[IoSlice::new(&reply)], &mut beside, SendFlags::NOSIGNAL)?;
    Ok(())
}
