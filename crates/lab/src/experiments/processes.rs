//! Experiments with a forked child, an unrelated process, two processes that share a word, and two peer contexts
//! (questions 0 and 1).

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::Ordering;

use freehold_driver::cuda::{
    CUdeviceptr, CUerror, CUpointer_attribute, DriverError, context, copy, device, driver, fill, memory, stream,
    stream_flags, wait_value_flags,
};

use crate::answer_text::{byte_runs, choose, code, ready};
use crate::experiment::{Answer, Experiment};
use crate::failure::Failure;
use crate::failure::error_name;
use crate::fixture::Fixture;
use crate::id::Id;
use crate::latch::open_after_deadline;
use crate::partner::Partner;
use crate::partner_request::PartnerRequest;
use crate::shared_host::{self, SHARED};

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: Id(0, 6, 1),
        did: "fork after cuInit: the child calls cuInit, allocates, and frees the parent's block",
        run: forked_child,
    },
    Experiment {
        id: Id(0, 6, 2),
        did: "fork after cuInit: the child frees the parent's block and ends, the parent reads and frees it",
        run: parent_of_fork,
    },
    Experiment {
        id: Id(0, 6, 3),
        did: "fork before cuInit: the child calls cuInit, makes a context and allocates",
        run: forked_before_init,
    },
    Experiment { id: Id(0, 7, 1), did: "an unrelated process frees the address of a block", run: freed_by_stranger },
    Experiment {
        id: Id(0, 7, 2),
        did: "an unrelated process copies from the address of a block, and asks for its memory type",
        run: read_by_stranger,
    },
    Experiment { id: Id(1, 5, 1), did: "register shared memory of two processes in both", run: shared_registered },
    Experiment {
        id: Id(1, 5, 2),
        did: "wait in a stream for a word of shared memory that a stream of another process writes",
        run: shared_word,
    },
    Experiment {
        id: Id(1, 10, 1),
        did: "ask whether a device can access itself as a peer, and enable it for the current context",
        run: peer_of_itself,
    },
    Experiment {
        id: Id(1, 10, 2),
        did: "enable peer access to another context of the same device, and disable what was never enabled",
        run: peer_on_one_device,
    },
    Experiment { id: Id(1, 10, 3), did: "cuMemcpyPeer between two contexts of one device", run: peer_copy },
];

fn forked_child(b: &Fixture) -> Answer {
    b.init_context()?;
    let block = memory::alloc(b, 4096)?;
    let [init, alloc, free] =
        in_fork(|| [driver::init(b, 0), memory::alloc(b, 4096).map(drop), memory::free(b, block)])?;
    Ok(format!("cuInit {init}, allocate {alloc}, free {free}"))
}

fn parent_of_fork(b: &Fixture) -> Answer {
    b.init_context()?;
    let block = memory::alloc(b, 4096)?;
    fill::d8(b, block, 0x5a, 4096)?;
    context::synchronize(b)?;
    in_fork(|| [memory::free(b, block)])?;
    let held = byte_runs(&b.bytes_at(block, 4096)?);
    Ok(format!("holds {held}, free {}", code(memory::free(b, block))))
}

fn forked_before_init(b: &Fixture) -> Answer {
    let [init, context, alloc] =
        in_fork(|| [driver::init(b, 0), b.init_context().map(drop), memory::alloc(b, 4096).map(drop)])?;
    Ok(format!("{init}, {context}, {alloc}"))
}

/// Returns what the calls of a forked child answer. The child only calls the driver and reports the answers.
pub(super) fn in_fork<const N: usize>(
    calls: impl FnOnce() -> [Result<(), DriverError>; N],
) -> Result<[String; N], Failure> {
    let mut ends = [0; 2];
    // SAFETY: `ends` outlives the call, which writes two descriptors to it.
    if unsafe { libc::pipe(ends.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error().into());
    }
    // SAFETY: the descriptor is open and belongs to nothing else.
    let mut reading = unsafe { File::from_raw_fd(ends[0]) };
    // SAFETY: as above.
    let writing = unsafe { File::from_raw_fd(ends[1]) };
    // SAFETY: the child calls the driver, which is what the experiment tests, then writes and ends, and allocates
    // nothing itself.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(io::Error::last_os_error().into());
    }
    if child == 0 {
        let numbers = calls().map(|outcome| outcome.map_or_else(|error| error.code.number(), |()| 0));
        // SAFETY: the numbers outlive the call, which reads as many bytes as they have.
        unsafe { libc::write(writing.as_raw_fd(), numbers.as_ptr().cast(), size_of_val(&numbers)) };
        // SAFETY: the child ends here, without the exit handlers that belong to its parent.
        unsafe { libc::_exit(0) };
    }
    drop(writing);
    let mut said = Vec::new();
    reading.read_to_end(&mut said)?;
    // SAFETY: the call waits for our own child, and gets no pointer to write a status to.
    unsafe { libc::waitpid(child, ptr::null_mut(), 0) };
    Ok(std::array::from_fn(|at| {
        let number = said.get(at * 4..at * 4 + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes);
        match number.map(CUerror::new) {
            None => "no answer".to_owned(),
            Some(None) => "SUCCESS".to_owned(),
            Some(Some(error)) => error_name(error),
        }
    }))
}

fn freed_by_stranger(b: &Fixture) -> Answer {
    b.init_context()?;
    let block = memory::alloc(b, 1 << 20)?;
    Ok(code(Partner::start_with_context(b)?.run(PartnerRequest::Free(block))))
}

fn read_by_stranger(b: &Fixture) -> Answer {
    b.init_context()?;
    let at = memory::alloc(b, 1 << 20)?;
    let other = Partner::start_with_context(b)?;
    let read = code(other.bytes(PartnerRequest::Read { at, bytes: 16 }));
    Ok(format!(
        "{read}, {}",
        code(other.number(PartnerRequest::Attribute { at, which: CUpointer_attribute::MEMORY_TYPE.0 }))
    ))
}

fn shared_registered(b: &Fixture) -> Answer {
    b.init_context()?;
    let (host, descriptor) = shared_host::memory()?;
    let here = code(b.register(host.address(), host.bytes(), SHARED));
    Ok(format!(
        "{here}, {}",
        code(Partner::start_with_context(b)?.number_with_descriptor(&descriptor, PartnerRequest::Register))
    ))
}

fn shared_word(b: &Fixture) -> Answer {
    b.init_context()?;
    let (host, descriptor) = shared_host::memory()?;
    b.register(host.address(), host.bytes(), SHARED)?;
    open_after_deadline(move || host.long().store(2, Ordering::SeqCst));
    let stream = stream::create(b, stream_flags::NON_BLOCKING)?;
    stream::wait_value_64(b, stream, b.device_address(host.address(), 0)?, 1, wait_value_flags::GEQ)?;
    let before = ready(stream::query(b, stream));
    let said = written_elsewhere(b, &descriptor);
    let written = host.long().swap(1, Ordering::SeqCst);
    let after = code(stream::synchronize(b, stream));
    Ok(format!("before {before}; write {}, word {written}; after {after}", said?))
}

/// Makes another process register the shared memory, and a stream of it write the word.
fn written_elsewhere(b: &Fixture, descriptor: &OwnedFd) -> Answer {
    let other = Partner::start_with_context(b)?;
    let at = CUdeviceptr(other.number_with_descriptor(descriptor, PartnerRequest::Register)?);
    let stream = other.number(PartnerRequest::CreateStream)?;
    other.run(PartnerRequest::WriteValue { stream, at, value: 1 })?;
    Ok(code(other.run(PartnerRequest::SynchronizeStream(stream))))
}

fn peer_of_itself(b: &Fixture) -> Answer {
    let context = b.init_context()?;
    let can = device::can_access_peer(b, b.device, b.device)?;
    Ok(format!("{}, {}", choose(can, "yes", "no"), code(context::enable_peer_access(b, context, 0))))
}

fn peer_on_one_device(b: &Fixture) -> Answer {
    let primary = b.init_context()?;
    b.second_context()?;
    let disabled = code(context::disable_peer_access(b, primary));
    Ok(format!("{}, {disabled}", code(context::enable_peer_access(b, primary, 0))))
}

fn peer_copy(b: &Fixture) -> Answer {
    let first = b.init_context()?;
    let from = memory::alloc(b, 4096)?;
    fill::d8(b, from, 0x5a, 4096)?;
    context::synchronize(b)?;
    let second = b.second_context()?;
    let to = memory::alloc(b, 4096)?;
    let copied = code(copy::peer(b, to, second, from, first, 4096));
    Ok(format!("{copied}, {}", byte_runs(&b.bytes_at(to, 4096)?)))
}
