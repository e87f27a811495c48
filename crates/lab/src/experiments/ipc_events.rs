//! Experiments on events that another process has opened, and on the order of work of several processes (question 1).

use std::sync::atomic::Ordering;

use freehold_driver::cuda::{
    CUcontext, CUdeviceptr, CUevent, CUipcEventHandle, CUipcMemHandle, CUstream, DriverError, context, copy, event,
    event_flags, fill, ipc, stream, stream_flags, wait_value_flags,
};

use super::ipc_memory::LAZY;
use crate::answer_text::{choose, code, or_code, ready};
use crate::experiment::{Answer, Experiment};
use crate::failure::Failure;
use crate::fixture::Fixture;
use crate::id::Id;
use crate::kernels::{DEFAULT, word_at, zeros};
use crate::latch::open_after_deadline;
use crate::mapped::PAGE;
use crate::partner::Partner;
use crate::partner_request::{PartnerRequest, token};
use crate::shared_host::{self, SHARED};

/// Flags of an event that can be shared.
const SHARABLE: u32 = event_flags::INTERPROCESS | event_flags::DISABLE_TIMING;

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: Id(1, 5, 3),
        did: "a stream waits for an event that another process has recorded after a running kernel",
        run: waited_for,
    },
    Experiment {
        id: Id(1, 5, 4),
        did: "query an event that another process has recorded after a running kernel, and when the kernel has ended",
        run: queried,
    },
    Experiment {
        id: Id(1, 5, 5),
        did: "register shared memory in three processes; a kernel of one writes a word, and another's copy reads it",
        run: registered_by_three,
    },
    Experiment {
        id: Id(1, 5, 6),
        did: "wait in a stream for a word of shared memory that a kernel of another process writes",
        run: word_of_kernel,
    },
    Experiment {
        id: Id(1, 5, 7),
        did: "a stream of another process waits for a word of shared memory that the host writes here",
        run: word_of_host,
    },
    Experiment {
        id: Id(1, 5, 8),
        did: "a process that has registered shared memory is killed: the registration here",
        run: registrant_killed,
    },
    Experiment {
        id: Id(1, 6, 1),
        did: "a kernel of another process writes opened memory, an event of that process orders a copy here after it",
        run: |b| ordered(b, Ordered::ByEvent),
    },
    Experiment {
        id: Id(1, 6, 2),
        did: "a kernel of another process writes opened memory, a shared word orders a copy here after it",
        run: |b| ordered(b, Ordered::ByWord),
    },
    Experiment {
        id: Id(1, 13, 1),
        did: "get the handle of an event that was not made to be shared",
        run: |b| {
            b.init_context()?;
            Ok(code(ipc::event_handle(b, event::create(b, event_flags::DISABLE_TIMING)?)))
        },
    },
    Experiment {
        id: Id(1, 13, 19),
        did: "get the handle of no event",
        run: |b| {
            b.init_context()?;
            Ok(code(ipc::event_handle(b, CUevent::NULL)))
        },
    },
    Experiment {
        id: Id(1, 13, 2),
        did: "make an event to be shared that also takes the time, and one that also blocks",
        run: |b| {
            b.init_context()?;
            let timed = code(event::create(b, event_flags::INTERPROCESS));
            Ok(format!("{timed}, {}", code(event::create(b, SHARABLE | event_flags::BLOCKING_SYNC))))
        },
    },
    Experiment {
        id: Id(1, 13, 3),
        did: "open the handle of one's own event, and query it",
        run: |b| {
            b.init_context()?;
            let handle = ipc::event_handle(b, event::create(b, SHARABLE)?)?;
            Ok(match ipc::open_event(b, handle) {
                Ok(opened) => format!("SUCCESS, query {}", ready(event::query(b, opened))),
                refused => code(refused),
            })
        },
    },
    Experiment {
        id: Id(1, 13, 4),
        did: "get the handle of an event twice: whether the bytes are the same; and of two events",
        run: |b| {
            b.init_context()?;
            let [one, two] = [event::create(b, SHARABLE)?, event::create(b, SHARABLE)?];
            let handles = [ipc::event_handle(b, one)?, ipc::event_handle(b, one)?, ipc::event_handle(b, two)?];
            let same = |holds| choose(holds, "the same", "others");
            Ok(format!("{}, {}", same(handles[0] == handles[1]), same(handles[0] == handles[2])))
        },
    },
    Experiment {
        id: Id(1, 13, 5),
        did: "open an event twice: whether the events are the same; destroy one and query the other",
        run: |b| {
            let (other, theirs, first) = opened(b)?;
            let second = open(b, &other, theirs)?;
            let same = choose(first == second, "the same", "two events");
            let destroyed = code(event::destroy(b, first));
            Ok(format!("{same}; {destroyed}, {}", ready(event::query(b, second))))
        },
    },
    Experiment {
        id: Id(1, 13, 6),
        did: "query, wait for and let a stream wait for an opened event that was never recorded",
        run: |b| {
            let (_other, _, event) = opened(b)?;
            let query = ready(event::query(b, event));
            let waited = code(event::synchronize(b, event));
            let stream = stream::create(b, stream_flags::NON_BLOCKING)?;
            let stream_waits = code(stream::wait_event(b, stream, event, 0));
            Ok(format!("{query}, {waited}, {stream_waits}, {}", code(stream::synchronize(b, stream))))
        },
    },
    Experiment {
        id: Id(1, 13, 7),
        did: "another process records an opened event after a running kernel: queried here, and when the kernel ended",
        run: recorded_by_importer,
    },
    Experiment {
        id: Id(1, 13, 8),
        did: "the exporter destroys an event that was recorded and is done: query, wait, record and destroy it here",
        run: |b| {
            let (other, theirs, event) = opened(b)?;
            recorded_there(&other, theirs)?;
            other.run(PartnerRequest::DestroyEvent(theirs))?;
            left(b, event)
        },
    },
    Experiment {
        id: Id(1, 13, 9),
        did: "the exporter exits when its event is done: query, wait, record and destroy it here",
        run: |b| {
            let (other, theirs, event) = opened(b)?;
            recorded_there(&other, theirs)?;
            other.exit()?;
            left(b, event)
        },
    },
    Experiment {
        id: Id(1, 13, 10),
        did: "the exporter is killed when its event is done: query, wait, record and destroy it here",
        run: |b| {
            let (other, theirs, event) = opened(b)?;
            recorded_there(&other, theirs)?;
            other.kill()?;
            left(b, event)
        },
    },
    Experiment {
        id: Id(1, 13, 11),
        did: "destroy an opened event: the exporter records, queries and destroys it",
        run: |b| {
            let (other, theirs, event) = opened(b)?;
            let destroyed = code(event::destroy(b, event));
            let recorded = code(recorded_there(&other, theirs));
            let query = ready(other.flag(PartnerRequest::QueryEvent(theirs)));
            Ok(format!("{destroyed}; {recorded}, {query}, {}", code(other.run(PartnerRequest::DestroyEvent(theirs)))))
        },
    },
    Experiment {
        id: Id(1, 13, 12),
        did: "the time between two opened events that are done, and between one's own that can be shared",
        run: elapsed,
    },
    Experiment {
        id: Id(1, 13, 13),
        did: "open an event by a handle whose bytes are all 0, and all 0xff",
        run: |b| {
            b.init_context()?;
            let open = |byte| code(ipc::open_event(b, CUipcEventHandle { bytes: [byte; 64] }));
            Ok(format!("{}, {}", open(0), open(0xff)))
        },
    },
    Experiment {
        id: Id(1, 13, 14),
        did: "get the handle of an opened event",
        run: |b| {
            let (_other, _, event) = opened(b)?;
            Ok(code(ipc::event_handle(b, event)))
        },
    },
    Experiment {
        id: Id(1, 13, 15),
        did: "open an event whose process has exited",
        run: |b| {
            b.init_context()?;
            let other = Partner::start_with_context(b)?;
            let theirs = other.number(PartnerRequest::CreateEvent(SHARABLE))?;
            let handle = CUipcEventHandle { bytes: token(&other.bytes(PartnerRequest::EventHandle(theirs))?)? };
            other.exit()?;
            Ok(code(ipc::open_event(b, handle)))
        },
    },
    Experiment {
        id: Id(1, 13, 16),
        did: "open an event that is done, and its process records it again after a running kernel: queried here",
        run: recorded_again,
    },
    Experiment {
        id: Id(1, 13, 17),
        did: "get the handle of an event, open one and query it with no context current",
        run: no_context,
    },
    Experiment {
        id: Id(1, 13, 18),
        did: "destroy the context in which an event was opened: query it there and here",
        run: |b| {
            b.init_context()?;
            let other = Partner::start_with_context(b)?;
            let theirs = other.number(PartnerRequest::CreateEvent(SHARABLE))?;
            let context = b.second_context()?;
            let event = open(b, &other, theirs)?;
            context::destroy(b, context)?;
            b.init_context()?;
            recorded_there(&other, theirs)?;
            let there = ready(other.flag(PartnerRequest::QueryEvent(theirs)));
            Ok(format!("there {there}, here {}", ready(event::query(b, event))))
        },
    },
];

/// Opens an event of another process: returns the process, the event there, and the event here.
fn opened(b: &Fixture) -> Result<(Partner, u64, CUevent), Failure> {
    b.init_context()?;
    let other = Partner::start_with_context(b)?;
    let theirs = other.number(PartnerRequest::CreateEvent(SHARABLE))?;
    let event = open(b, &other, theirs)?;
    Ok((other, theirs, event))
}

fn open(b: &Fixture, other: &Partner, theirs: u64) -> Result<CUevent, Failure> {
    let handle = CUipcEventHandle { bytes: token(&other.bytes(PartnerRequest::EventHandle(theirs))?)? };
    Ok(ipc::open_event(b, handle)?)
}

/// Makes the other process record the event, and wait for it.
fn recorded_there(other: &Partner, event: u64) -> Result<(), Failure> {
    other.run(PartnerRequest::Record { event, stream: DEFAULT.0 as u64 })?;
    other.run(PartnerRequest::SynchronizeEvent(event))
}

/// Makes the other process record the event after a kernel that runs until its latch opens. Returns their stream.
fn recorded_behind_kernel(other: &Partner, event: u64, to: CUdeviceptr, value: u32) -> Result<u64, Failure> {
    let stream = other.number(PartnerRequest::CreateStream)?;
    other.run(PartnerRequest::Spin { stream, to, value })?;
    other.run(PartnerRequest::Record { event, stream })?;
    Ok(stream)
}

fn end_kernel(other: &Partner, stream: u64) -> Result<(), Failure> {
    other.run(PartnerRequest::OpenGate)?;
    other.run(PartnerRequest::SynchronizeStream(stream))
}

fn waited_for(b: &Fixture) -> Answer {
    let (other, theirs, event) = opened(b)?;
    let theirs = recorded_behind_kernel(&other, theirs, CUdeviceptr::NULL, 0)?;
    let stream = stream::create(b, stream_flags::NON_BLOCKING)?;
    stream::wait_event(b, stream, event, 0)?;
    let before = ready(stream::query(b, stream));
    end_kernel(&other, theirs)?;
    Ok(format!("before {before}, after {}", code(stream::synchronize(b, stream))))
}

fn queried(b: &Fixture) -> Answer {
    let (other, theirs, event) = opened(b)?;
    let theirs = recorded_behind_kernel(&other, theirs, CUdeviceptr::NULL, 0)?;
    let before = ready(event::query(b, event));
    end_kernel(&other, theirs)?;
    Ok(format!("{before}; {}, wait {}", ready(event::query(b, event)), code(event::synchronize(b, event))))
}

fn recorded_by_importer(b: &Fixture) -> Answer {
    b.init_context()?;
    let other = Partner::start_with_context(b)?;
    let ours = event::create(b, SHARABLE)?;
    let theirs = other.number(PartnerRequest::OpenEvent(ipc::event_handle(b, ours)?.bytes.to_vec()))?;
    let stream = recorded_behind_kernel(&other, theirs, CUdeviceptr::NULL, 0)?;
    let before = ready(event::query(b, ours));
    end_kernel(&other, stream)?;
    Ok(format!("{before}; {}", ready(event::query(b, ours))))
}

fn recorded_again(b: &Fixture) -> Answer {
    let (other, theirs, event) = opened(b)?;
    recorded_there(&other, theirs)?;
    let first = ready(event::query(b, event));
    let stream = recorded_behind_kernel(&other, theirs, CUdeviceptr::NULL, 0)?;
    let again = ready(event::query(b, event));
    end_kernel(&other, stream)?;
    Ok(format!("{first}, {again}, {}", ready(event::query(b, event))))
}

/// Formats what can be done with an opened event.
fn left(b: &Fixture, event: CUevent) -> Answer {
    let query = ready(event::query(b, event));
    let waited = code(event::synchronize(b, event));
    let recorded = code(event::record(b, event, DEFAULT));
    let again = code(event::synchronize(b, event));
    Ok(format!("{query}, {waited}, {recorded} and {again}, {}", code(event::destroy(b, event))))
}

fn elapsed(b: &Fixture) -> Answer {
    let (other, first, start) = opened(b)?;
    let second = other.number(PartnerRequest::CreateEvent(SHARABLE))?;
    let end = open(b, &other, second)?;
    recorded_there(&other, first)?;
    recorded_there(&other, second)?;
    let opened = code(event::elapsed_ms(b, start, end));
    let [start, end] = [event::create(b, SHARABLE)?, event::create(b, SHARABLE)?];
    event::record(b, start, DEFAULT)?;
    event::record(b, end, DEFAULT)?;
    context::synchronize(b)?;
    Ok(format!("{opened}, {}", code(event::elapsed_ms(b, start, end))))
}

fn no_context(b: &Fixture) -> Answer {
    let (other, theirs, event) = opened(b)?;
    let ours = event::create(b, SHARABLE)?;
    let handle = CUipcEventHandle { bytes: token(&other.bytes(PartnerRequest::EventHandle(theirs))?)? };
    context::set_current(b, CUcontext::NULL)?;
    let got = code(ipc::event_handle(b, ours));
    let opened = code(ipc::open_event(b, handle));
    Ok(format!("{got}, {opened}, {}", ready(event::query(b, event))))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ordered {
    ByEvent,
    ByWord,
}

/// A copy here reads, in its stream's order, a word that a kernel of another process writes when its latch opens.
fn ordered(b: &Fixture, by: Ordered) -> Answer {
    let (other, theirs, event) = opened(b)?;
    let block = other.address(PartnerRequest::Alloc(PAGE))?;
    other.run(PartnerRequest::Fill { at: block, value: 0, bytes: 4096 })?;
    let handle = CUipcMemHandle { bytes: token(&other.bytes(PartnerRequest::MemoryHandle(block))?)? };
    let from = ipc::open_memory(b, handle, LAZY)?;
    let (here, there) = shared_by(b, &other)?;
    let to = zeros(b)?;
    let stream = stream::create(b, stream_flags::NON_BLOCKING)?;

    let behind = recorded_behind_kernel(&other, theirs, block, 7)?;
    match by {
        Ordered::ByEvent => stream::wait_event(b, stream, event, 0)?,
        Ordered::ByWord => {
            other.run(PartnerRequest::WriteValue { stream: behind, at: there, value: 1 })?;
            stream::wait_value_64(b, stream, here, 1, wait_value_flags::GEQ)?;
        }
    }
    copy::device_to_device_async(b, to, from, 4, stream)?;
    let before = ready(stream::query(b, stream));
    end_kernel(&other, behind)?;
    let after = code(stream::synchronize(b, stream));
    Ok(format!("before {before}, after {after}, read {}", word_at(b, to)?))
}

/// Creates a shared page of zeros, registered in both processes. Returns its two device addresses. A stream that waits
/// for it is released at the end.
fn shared_by(b: &Fixture, other: &Partner) -> Result<(CUdeviceptr, CUdeviceptr), Failure> {
    let (host, descriptor) = shared_host::memory()?;
    b.register(host.address(), host.bytes(), SHARED)?;
    open_after_deadline(move || host.long().store(1, Ordering::SeqCst));
    Ok((
        b.device_address(host.address(), 0)?,
        CUdeviceptr(other.number_with_descriptor(&descriptor, PartnerRequest::Register)?),
    ))
}

fn registered_by_three(b: &Fixture) -> Answer {
    b.init_context()?;
    let [first, second] = [Partner::start_with_context(b)?, Partner::start_with_context(b)?];
    let (host, descriptor) = shared_host::memory()?;
    let here = code(b.register(host.address(), host.bytes(), SHARED));
    let of_first = first.number_with_descriptor(&descriptor, PartnerRequest::Register)?;
    let of_second = second.number_with_descriptor(&descriptor, PartnerRequest::Register)?;
    first.run(PartnerRequest::Store { at: CUdeviceptr(of_first), value: 0x0707_0707 })?;
    let read = second.holds(CUdeviceptr(of_second), 4)?;
    Ok(format!("{here}; there {read}, the host here {:#x}", host.word().load(Ordering::SeqCst)))
}

/// Returns a stream that waits for the word, which is not set yet.
fn waiting(b: &Fixture, at: CUdeviceptr) -> Result<CUstream, DriverError> {
    let stream = stream::create(b, stream_flags::NON_BLOCKING)?;
    stream::wait_value_64(b, stream, at, 1, wait_value_flags::GEQ)?;
    Ok(stream)
}

fn word_of_kernel(b: &Fixture) -> Answer {
    b.init_context()?;
    let other = Partner::start_with_context(b)?;
    let (here, there) = shared_by(b, &other)?;
    let stream = waiting(b, here)?;
    let before = ready(stream::query(b, stream));
    let stored = code(other.run(PartnerRequest::Store { at: there, value: 1 }));
    Ok(format!("before {before}; store {stored}; after {}", code(stream::synchronize(b, stream))))
}

fn word_of_host(b: &Fixture) -> Answer {
    b.init_context()?;
    let other = Partner::start_with_context(b)?;
    let (host, descriptor) = shared_host::memory()?;
    open_after_deadline(move || host.long().store(1, Ordering::SeqCst));
    let at = CUdeviceptr(other.number_with_descriptor(&descriptor, PartnerRequest::Register)?);
    let stream = other.number(PartnerRequest::CreateStream)?;
    other.run(PartnerRequest::WaitValue { stream, at, value: 1 })?;
    let before = ready(other.flag(PartnerRequest::QueryStream(stream)));
    host.long().store(1, Ordering::SeqCst);
    Ok(format!("before {before}, after {}", code(other.run(PartnerRequest::SynchronizeStream(stream)))))
}

fn registrant_killed(b: &Fixture) -> Answer {
    b.init_context()?;
    let other = Partner::start_with_context(b)?;
    let (here, there) = shared_by(b, &other)?;
    other.run(PartnerRequest::Store { at: there, value: 0x0707_0707 })?;
    other.kill()?;
    let read = or_code(word_at(b, here), |word| format!("{word:#x}"));
    Ok(format!("reads {read}, fill {}", code(fill::d8(b, here, 1, 16))))
}
