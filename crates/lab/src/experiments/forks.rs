//! Experiments in a forked child of a process with mappings, with memory and events of others, and with descriptors
//! (question 0).

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::Ordering;

use freehold_driver::cuda::{
    CUdeviceptr, CUevent, CUipcEventHandle, address, allocation, context, event, event_flags, fill, ipc, mapping,
    memory, pool,
};

use super::ipc_memory::{LAZY, theirs};
use super::processes::in_fork;
use crate::answer_text::{byte_runs, code, ready};
use crate::experiment::{Answer, Experiment};
use crate::fixture::Fixture;
use crate::id::Id;
use crate::kernels::{DEFAULT, word_at};
use crate::mapped::{self, Mapped, PAGE, device_prop, exportable_pool, read_write_access, reserve};
use crate::partner_request::{PartnerRequest, token};
use crate::shared_host::{self, SHARED};

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: Id(0, 6, 4),
        did: "fork a process that has a mapping; the child reserves, creates, maps, sets access, unmaps and releases",
        run: child_of_mapping,
    },
    Experiment {
        id: Id(0, 6, 5),
        did: "fork a process that has a mapping; the child unmaps, releases and frees addresses: the parent's mapping afterwards",
        run: parent_of_mapping,
    },
    Experiment {
        id: Id(0, 6, 6),
        did: "fork a process that opened memory and an event of another; the child gets handles, opens and closes",
        run: child_of_importer,
    },
    Experiment {
        id: Id(0, 6, 7),
        did: "fork a process that opened memory and an event of another; the child closes and destroys: the parent's afterwards",
        run: parent_of_importer,
    },
    Experiment {
        id: Id(0, 6, 8),
        did: "fork a process that exported a descriptor; the child imports it and closes it; the parent imports it",
        run: exported_descriptor,
    },
    Experiment {
        id: Id(0, 6, 9),
        did: "fork a process that registered shared memory; the child unregisters it: the parent's registration afterwards",
        run: registered,
    },
    Experiment {
        id: Id(0, 6, 10),
        did: "fork a process that has an exportable pool; the child exports it and a block of it: the parent's block afterwards",
        run: exported_pool,
    },
];

fn child_of_mapping(b: &Fixture) -> Answer {
    b.init_context()?;
    let Mapped { start, allocation, bytes } = mapped::map_new(b, PAGE)?;
    let codes = in_fork(|| {
        [
            reserve(b, PAGE).map(drop),
            allocation::create(b, PAGE, &device_prop(b)).map(drop),
            mapping::map(b, start, bytes, 0, allocation),
            mapping::set_access(b, start, bytes, &[read_write_access(b)]),
            mapping::unmap(b, start, bytes),
            allocation::release(b, allocation),
        ]
    })?;
    Ok(codes.join(", "))
}

fn parent_of_mapping(b: &Fixture) -> Answer {
    b.init_context()?;
    let Mapped { start, allocation, bytes } = mapped::map_new(b, PAGE)?;
    fill::d8(b, start, 0x5a, bytes)?;
    context::synchronize(b)?;
    in_fork(|| [mapping::unmap(b, start, bytes), allocation::release(b, allocation), address::free(b, start, bytes)])?;
    let held = byte_runs(&b.bytes_at(start, 4096)?);
    let ends =
        [mapping::unmap(b, start, bytes), allocation::release(b, allocation), address::free(b, start, bytes)].map(code);
    Ok(format!("holds {held}; {}", ends.join(", ")))
}

fn child_of_importer(b: &Fixture) -> Answer {
    let (_other, _, handle) = theirs(b, PAGE)?;
    let at = ipc::open_memory(b, handle, LAZY)?;
    let block = memory::alloc(b, PAGE)?;
    let codes = in_fork(|| {
        [
            ipc::memory_handle(b, block).map(drop),
            ipc::open_memory(b, handle, LAZY).map(drop),
            ipc::close_memory(b, at),
            ipc::open_event(b, CUipcEventHandle::default()).map(drop),
        ]
    })?;
    Ok(codes.join(", "))
}

fn parent_of_importer(b: &Fixture) -> Answer {
    let (other, _, handle) = theirs(b, PAGE)?;
    let at = ipc::open_memory(b, handle, LAZY)?;
    let theirs = other.number(PartnerRequest::CreateEvent(event_flags::INTERPROCESS | event_flags::DISABLE_TIMING))?;
    let event =
        ipc::open_event(b, CUipcEventHandle { bytes: token(&other.bytes(PartnerRequest::EventHandle(theirs))?)? })?;
    in_fork(|| [ipc::close_memory(b, at), event::destroy(b, event)])?;
    let held = byte_runs(&b.bytes_at(at, 4096)?);
    other.run(PartnerRequest::Record { event: theirs, stream: DEFAULT.0 as u64 })?;
    other.run(PartnerRequest::SynchronizeEvent(theirs))?;
    Ok(format!("holds {held}, event {}; {}", ready(event::query(b, event)), ends(b, at, event)))
}

fn ends(b: &Fixture, at: CUdeviceptr, event: CUevent) -> String {
    format!("{}, {}", code(ipc::close_memory(b, at)), code(event::destroy(b, event)))
}

fn exported_descriptor(b: &Fixture) -> Answer {
    b.init_context()?;
    let Mapped { start, allocation, bytes } = mapped::map_new(b, PAGE)?;
    fill::d8(b, start, 0x5a, bytes)?;
    context::synchronize(b)?;
    let descriptor = allocation::export(b, allocation)?;
    let [child] = in_fork(|| {
        let imported = allocation::import(b, descriptor.as_fd()).map(drop);
        // SAFETY: the descriptor is the child's copy, and the child ends without using it again.
        unsafe { libc::close(descriptor.as_raw_fd()) };
        [imported]
    })?;
    let import = allocation::import(b, descriptor.as_fd())?;
    let at = mapped::map_existing(b, import, bytes)?;
    mapping::set_access(b, at, bytes, &[read_write_access(b)])?;
    Ok(format!("{child}; holds {}", byte_runs(&b.bytes_at(at, 4096)?)))
}

fn registered(b: &Fixture) -> Answer {
    b.init_context()?;
    let (host, _descriptor) = shared_host::memory()?;
    b.register(host.address(), host.bytes(), SHARED)?;
    let [child] = in_fork(|| [b.unregister(host.address())])?;
    host.word().store(7, Ordering::SeqCst);
    let word = word_at(b, b.device_address(host.address(), 0)?)?;
    Ok(format!("{child}; reads {word}, {}", code(b.unregister(host.address()))))
}

fn exported_pool(b: &Fixture) -> Answer {
    b.init_context()?;
    let ours = exportable_pool(b)?;
    let block = memory::alloc_from_pool_async(b, PAGE, ours, DEFAULT)?;
    fill::d8(b, block, 0x5a, PAGE)?;
    context::synchronize(b)?;
    let child = in_fork(|| [pool::export(b, ours).map(drop), pool::export_block(b, block).map(drop)])?;
    let held = byte_runs(&b.bytes_at(block, 4096)?);
    Ok(format!("{}; holds {held}, {}", child.join(", "), code(pool::export_block(b, block))))
}
