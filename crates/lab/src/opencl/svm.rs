//! Experiments on shared virtual memory: addresses, and calls with invalid ones.

use freehold_driver::CallError;
use freehold_driver::opencl::device::Svm;
use freehold_driver::opencl::{Kernel, kernel, memory, queue, svm};

use super::fixture::{BYTES, Fixture, launch};
use crate::answer_text::{byte_runs, choose, code, or_code, size};
use crate::experiment::{Answer, Experiment};
use crate::id::{Id, OPENCL};

pub(super) const EXPERIMENTS: &[Experiment<Fixture>] = &[
    Experiment { id: Id(OPENCL, 4, 1), did: "what shared virtual memory the device offers", run: offered },
    Experiment { id: Id(OPENCL, 4, 2), did: "allocate no bytes", run: empty },
    Experiment { id: Id(OPENCL, 4, 3), did: "allocate with an alignment of 3, of 4096, of 1 MiB", run: aligned },
    Experiment { id: Id(OPENCL, 4, 4), did: "allocate 1 PiB", run: too_large },
    Experiment { id: Id(OPENCL, 4, 5), did: "the alignment of blocks of one byte, up to 128", run: natural_alignment },
    Experiment { id: Id(OPENCL, 4, 6), did: "free null", run: free_null },
    Experiment {
        id: Id(OPENCL, 4, 7),
        did: "free an address into the middle of a block, then fill the block",
        run: free_middle,
    },
    Experiment { id: Id(OPENCL, 4, 8), did: "free a block twice", run: free_twice },
    Experiment { id: Id(OPENCL, 4, 9), did: "give a kernel an address into the middle of a block", run: middle },
    Experiment { id: Id(OPENCL, 4, 10), did: "give a kernel an address that was never allocated", run: wild },
    Experiment { id: Id(OPENCL, 4, 11), did: "give a kernel a block that was freed, without a launch", run: freed },
    Experiment { id: Id(OPENCL, 4, 12), did: "copy within a block from and to places that overlap", run: copy_overlap },
    Experiment {
        id: Id(OPENCL, 4, 13),
        did: "a buffer over a block: fill the buffer, read the block",
        run: buffer_over_block,
    },
    Experiment {
        id: Id(OPENCL, 4, 14),
        did: "a kernel stores through an address that lies in memory, its block named before the launch",
        run: followed,
    },
    Experiment { id: Id(OPENCL, 4, 15), did: "the same, its block not named", run: followed_unnamed },
    Experiment {
        id: Id(OPENCL, 4, 16),
        did: "the host reads a block that was filled, without a mapping",
        run: host_reads,
    },
    Experiment { id: Id(OPENCL, 4, 17), did: "use a block of context 1 in a kernel of context 2", run: other_context },
];

fn offered(b: &Fixture) -> Answer {
    let words = match b.device.info.svm {
        Svm::None => "none",
        Svm::Coarse => "coarse",
        Svm::Fine => "coarse and fine",
    };
    Ok(words.to_owned())
}

fn empty(b: &Fixture) -> Answer {
    Ok(refusal_text(svm::alloc(b.open_session()?.context, 0, 0)))
}

fn aligned(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    Ok([3, 4096, 1 << 20].map(|align| refusal_text(svm::alloc(session.context, BYTES, align))).join(", "))
}

fn too_large(b: &Fixture) -> Answer {
    Ok(refusal_text(svm::alloc(b.open_session()?.context, 1 << 50, 0)))
}

/// `clSVMAlloc` returns null, without a code.
fn refusal_text<T, E>(made: Result<T, E>) -> String {
    choose(made.is_ok(), "a block", "null")
}

fn natural_alignment(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let mut smallest = 128;
    for _ in 0..16 {
        let start = svm::alloc(session.context, 1, 0)?;
        smallest = smallest.min(1_u64 << start.trailing_zeros().min(7));
    }
    Ok(format!("{} or more", size(smallest)))
}

fn free_null(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    // SAFETY: null is allowed.
    Ok(code(unsafe { svm::free(session.context, 0) }))
}

fn free_middle(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let block = session.block(1)?;
    // SAFETY: nothing uses the block; the experiment tests an address that was never returned by an allocation.
    let freed = code(unsafe { svm::free(session.context, block + 64) });
    Ok(format!("{freed}, then {}", code(session.fill_block(block, BYTES, 2))))
}

fn free_twice(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let block = session.block(1)?;
    // SAFETY: nothing uses the block.
    let first = code(unsafe { svm::free(session.context, block) });
    // SAFETY: nothing uses the memory; the experiment tests a free of a block that is already freed.
    Ok(format!("{first}, then {}", code(unsafe { svm::free(session.context, block) })))
}

fn middle(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let store = session.kernel(c"store")?;
    let block = session.block(0)?;
    kernel::set_address(store, 0, block + 1024)?;
    kernel::set_value(store, 1, &0x5a5a_5a5a_u32.to_le_bytes())?;
    launch(session.queue, store, 1)?;
    let bytes = session.block_bytes(block, BYTES)?;
    Ok(format!("{} there, {} before it", byte_runs(&bytes[1024..1028]), byte_runs(&bytes[..1024])))
}

fn wild(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let store = session.kernel(c"store")?;
    Ok(code(kernel::set_address(store, 0, 0x1000)))
}

fn freed(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let store = session.kernel(c"store")?;
    let block = session.block(0)?;
    // SAFETY: nothing uses the block.
    unsafe { svm::free(session.context, block) }?;
    Ok(code(kernel::set_address(store, 0, block)))
}

fn copy_overlap(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let block = session.block(0)?;
    // SAFETY: both ranges lie in the block, which stays allocated.
    let overlapping = code(unsafe { svm::copy(session.queue, block, block + 512, 1024, &[]) });
    Ok(format!("{overlapping}, the queue {}", code(queue::finish(session.queue))))
}

fn buffer_over_block(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let block = session.block(0)?;
    let start = std::ptr::with_exposed_provenance_mut(block as usize);
    // SAFETY: the block has these bytes and stays allocated; the host does not touch them.
    let over = unsafe { memory::create_from_host(session.context, start, BYTES) };
    let Ok(buffer) = over else { return Ok(code(over)) };
    memory::fill(session.queue, buffer, 0, BYTES, &[0x5a], &[])?;
    queue::finish(session.queue)?;
    Ok(byte_runs(&session.block_bytes(block, BYTES)?))
}

fn followed(b: &Fixture) -> Answer {
    follow(b, |follow, block| kernel::set_svm_pointers(follow, &[block]))
}

fn followed_unnamed(b: &Fixture) -> Answer {
    follow(b, |_, _| Ok(()))
}

fn follow(b: &Fixture, name: impl FnOnce(Kernel, u64) -> Result<(), CallError>) -> Answer {
    let session = b.open_session()?;
    let follow = session.kernel(c"follow")?;
    let block = session.block(0)?;
    let place = session.buffer(0)?;
    memory::fill(session.queue, place, 0, 8, &block.to_le_bytes(), &[])?;
    kernel::set_memory(follow, 0, place)?;
    kernel::set_value(follow, 1, &0x5a5a_5a5a_u32.to_le_bytes())?;
    name(follow, block)?;
    launch(session.queue, follow, 1)?;
    Ok(or_code(session.block_bytes(block, 4), |bytes| byte_runs(&bytes)))
}

fn host_reads(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let block = session.block(0x5a)?;
    let start = std::ptr::with_exposed_provenance::<u8>(block as usize);
    // SAFETY: no command writes the block; the experiment tests an access that the host may not make, and may crash.
    let byte = unsafe { start.read_volatile() };
    Ok(format!("{byte:#04x}"))
}

fn other_context(b: &Fixture) -> Answer {
    let (session, other) = (b.open_session()?, b.open_session()?);
    let store = other.kernel(c"store")?;
    let block = session.block(0)?;
    let set = kernel::set_address(store, 0, block);
    if set.is_err() {
        return Ok(code(set));
    }
    kernel::set_value(store, 1, &0x5a5a_5a5a_u32.to_le_bytes())?;
    let launched = launch(other.queue, store, 1).and_then(|_| queue::finish(other.queue));
    Ok(format!("{}, {}", code(launched), or_code(session.block_bytes(block, 4), |bytes| byte_runs(&bytes))))
}
