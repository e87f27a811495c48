//! Experiments on memory as a descriptor, in one process and in several, and on what keeps it alive (questions 6 and
//! 1).

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::ptr;

use freehold_driver::cuda::{
    CUdeviceptr, CUmemAllocationHandleType as HandleType, CUmemGenericAllocationHandle, DriverError, Function,
    allocation, context, driver, fill, mapping,
};

use crate::answer_text::{byte_runs, choose, code, or_code};
use crate::experiment::{Answer, Experiment};
use crate::failure::Failure;
use crate::fixture::{Fixture, check};
use crate::free_memory::{BLOCK, FreeMemory};
use crate::id::Id;
use crate::kernels::word_at;
use crate::mapped::{self, Mapped, PAGE, device_prop, read_write_access, shareable_prop};
use crate::partner::Partner;
use crate::partner_request::PartnerRequest;
use crate::shared_host;

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: Id(1, 4, 1),
        did: "the exporter is killed, a process without CUDA holds the descriptor: memory taken, contents, and the end",
        run: kept_by_descriptor,
    },
    Experiment {
        id: Id(1, 4, 2),
        did: "the exporter exits and the descriptor is closed, the importer's mapping is left: memory taken, contents, \
              and when it is unmapped",
        run: kept_by_mapping,
    },
    Experiment {
        id: Id(1, 4, 3),
        did: "the exporter exits and the importer unmaps, the descriptor is left: memory taken, and when it is closed",
        run: kept_after_mapping,
    },
    Experiment {
        id: Id(1, 4, 4),
        did: "the exporter is killed, and then the process without CUDA that holds the descriptor",
        run: holder_killed,
    },
    Experiment { id: Id(1, 4, 5), did: "the exporter is killed and nobody has a descriptor", run: no_holder },
    Experiment {
        id: Id(1, 4, 6),
        did: "the importer is killed: the exporter's contents and memory taken",
        run: importer_killed,
    },
    Experiment {
        id: Id(1, 4, 7),
        did: "exporter and importer are killed, the descriptor is left: memory taken, contents, and the end",
        run: both_killed,
    },
    Experiment {
        id: Id(1, 4, 8),
        did: "the exporter unmaps and releases while an importer has it mapped: contents, memory taken, and the end",
        run: exporter_lets_go,
    },
    Experiment {
        id: Id(6, 1, 9),
        did: "a kernel of another process writes to its readable mapping: there, and what this process can do afterwards",
        run: fault_elsewhere,
    },
    Experiment {
        id: Id(6, 6, 1),
        did: "export memory that was made for no handle type",
        run: |b| {
            b.init_context()?;
            let handle = allocation::create(b, PAGE, &device_prop(b))?;
            Ok(code(allocation::export(b, handle)))
        },
    },
    Experiment {
        id: Id(6, 6, 2),
        did: "export a released handle",
        run: |b| {
            b.init_context()?;
            let dead = allocation::create(b, PAGE, &shareable_prop(b))?;
            allocation::release(b, dead)?;
            Ok(code(allocation::export(b, dead)))
        },
    },
    Experiment {
        id: Id(6, 6, 3),
        did: "export as handle type 0, as Windows's, as fabric, and as 3",
        run: |b| {
            b.init_context()?;
            let handle = allocation::create(b, PAGE, &shareable_prop(b))?;
            let kinds = [HandleType::NONE, HandleType::WIN32, HandleType::FABRIC, HandleType(3)];
            Ok(kinds.map(|kind| code(exported_as(b, handle, kind, 0))).join(", "))
        },
    },
    Experiment {
        id: Id(6, 6, 4),
        did: "export with flags of 1",
        run: |b| {
            b.init_context()?;
            let handle = allocation::create(b, PAGE, &shareable_prop(b))?;
            Ok(code(exported_as(b, handle, HandleType::POSIX_FILE_DESCRIPTOR, 1)))
        },
    },
    Experiment {
        id: Id(6, 6, 17),
        did: "export with no place for the descriptor",
        run: |b| {
            b.init_context()?;
            let handle = allocation::create(b, PAGE, &shareable_prop(b))?;
            let (nowhere, kind) = (ptr::null_mut(), HandleType::POSIX_FILE_DESCRIPTOR);
            // SAFETY: null is a pointer that the call must reject and does not dereference.
            let outcome = unsafe { (b.cuMemExportToShareableHandle)(nowhere, handle, kind, 0) };
            Ok(code(check(Function::cuMemExportToShareableHandle, outcome)))
        },
    },
    Experiment {
        id: Id(6, 6, 5),
        did: "export twice, release the handle, import each descriptor: whether they are the same",
        run: exported_twice,
    },
    Experiment {
        id: Id(6, 6, 6),
        did: "import /dev/null, shared memory, a number that is not open, and -1",
        run: imported_others,
    },
    Experiment {
        id: Id(6, 6, 7),
        did: "import as handle type 0, and as Windows's",
        run: |b| {
            let descriptor = begun_and_exported(b)?.1;
            let kinds = [HandleType::NONE, HandleType::WIN32];
            Ok(kinds.map(|kind| code(imported_as(b, descriptor.as_raw_fd(), kind))).join(", "))
        },
    },
    Experiment {
        id: Id(6, 6, 8),
        did: "import in the exporting process: whether the handle is the same, and one release for each",
        run: imported_at_home,
    },
    Experiment {
        id: Id(6, 6, 9),
        did: "import twice what another process exported: whether the handles are the same, and a release for each",
        run: imported_twice,
    },
    Experiment {
        id: Id(6, 6, 10),
        did: "import, close the descriptor, map and read; the importer's fill and kernel, seen by the exporter",
        run: written_elsewhere,
    },
    Experiment {
        id: Id(6, 6, 11),
        did: "another process imports, exports again, and this one imports that: contents",
        run: exported_again,
    },
    Experiment {
        id: Id(6, 6, 12),
        did: "map half of an import of 4 MiB, twice as much, and all of it",
        run: |b| {
            let (mapped, descriptor) = begun_and_exported(b)?;
            let import = allocation::import(b, descriptor.as_fd())?;
            let sizes = [mapped.bytes / 2, mapped.bytes * 2, mapped.bytes];
            Ok(sizes.map(|bytes| code(mapped::map_existing(b, import, bytes))).join(", "))
        },
    },
    Experiment {
        id: Id(6, 6, 13),
        did: "the properties of an import: which are not as the memory was made",
        run: |b| {
            let descriptor = begun_and_exported(b)?.1;
            let import = allocation::import(b, descriptor.as_fd())?;
            Ok(or_code(allocation::properties(b, import), |prop| {
                let differs = [
                    (prop.kind != shareable_prop(b).kind, "type"),
                    (prop.requestedHandleTypes != shareable_prop(b).requestedHandleTypes, "handle types"),
                    (prop.location != shareable_prop(b).location, "location"),
                    (prop.compressionType != 0, "compression"),
                    (prop.gpuDirectRDMACapable != 0, "RDMA"),
                    (prop.usage != 0, "usage"),
                ];
                let differs: Vec<_> = differs.iter().filter(|(differs, _)| *differs).map(|(_, name)| *name).collect();
                format!("other {}, handle types {}", differs.join(", "), prop.requestedHandleTypes.0)
            }))
        },
    },
    Experiment {
        id: Id(6, 6, 14),
        did: "export and import with no context current",
        run: |b| {
            driver::init(b, 0)?;
            let handle = allocation::create(b, PAGE, &shareable_prop(b))?;
            let descriptor = allocation::export(b, handle)?;
            Ok(code(allocation::import(b, descriptor.as_fd())))
        },
    },
    Experiment {
        id: Id(6, 6, 15),
        did: "another process maps an import to be read: its read, its fill, and its read of what is written here later",
        run: readable_elsewhere,
    },
    Experiment {
        id: Id(6, 6, 16),
        did: "one descriptor imported by two processes: each reads what the other writes",
        run: imported_by_two,
    },
    Experiment {
        id: Id(6, 6, 18),
        did: "export handle 0",
        run: |b| {
            b.init_context()?;
            Ok(code(allocation::export(b, CUmemGenericAllocationHandle(0))))
        },
    },
    Experiment {
        id: Id(6, 6, 19),
        did: "export a handle that never was",
        run: |b| {
            b.init_context()?;
            Ok(code(allocation::export(b, CUmemGenericAllocationHandle(0x1234_5678))))
        },
    },
    Experiment {
        id: Id(6, 6, 20),
        did: "import twice what another process exported, and release three times",
        run: |b| {
            b.init_context()?;
            let other = Partner::start_with_context(b)?;
            let descriptor = exported_by(&other)?;
            let [one, two] = [allocation::import(b, descriptor.as_fd())?, allocation::import(b, descriptor.as_fd())?];
            Ok([one, two, two].map(|handle| code(allocation::release(b, handle))).join(", "))
        },
    },
    Experiment {
        id: Id(6, 6, 21),
        did: "import memory by a descriptor whose number is 0, and by another of it",
        run: by_number_zero,
    },
];

/// Returns what exporting as `kind` answers. A resulting descriptor stays open until the process ends.
fn exported_as(
    b: &Fixture,
    handle: CUmemGenericAllocationHandle,
    kind: HandleType,
    flags: u64,
) -> Result<(), DriverError> {
    // The longest handle, for fabric, has 64 bytes.
    let mut room = [0_u64; 8];
    let place = room.as_mut_ptr().cast::<c_void>();
    // SAFETY: `room` outlives the call and is as long as the longest kind of handle.
    let outcome = unsafe { (b.cuMemExportToShareableHandle)(place, handle, kind, flags) };
    check(Function::cuMemExportToShareableHandle, outcome)
}

fn imported_as(b: &Fixture, descriptor: RawFd, kind: HandleType) -> Result<CUmemGenericAllocationHandle, DriverError> {
    let mut handle = CUmemGenericAllocationHandle::default();
    let shareable = ptr::without_provenance_mut::<c_void>(descriptor as usize);
    // SAFETY: `handle` outlives the call, which writes one handle to it; the pointer is a number for these kinds.
    let outcome = unsafe { (b.cuMemImportFromShareableHandle)(&mut handle, shareable, kind) };
    check(Function::cuMemImportFromShareableHandle, outcome)?;
    Ok(handle)
}

/// Returns 4 MiB of 0x5a, mapped here, and a descriptor of them.
fn begun_and_exported(b: &Fixture) -> Result<(Mapped, OwnedFd), Failure> {
    b.init_context()?;
    Ok(exported(b)?)
}

fn exported(b: &Fixture) -> Result<(Mapped, OwnedFd), DriverError> {
    let mapped = mapped::map_new(b, 2 * PAGE)?;
    fill::d8(b, mapped.start, 0x5a, mapped.bytes)?;
    context::synchronize(b)?;
    let descriptor = allocation::export(b, mapped.allocation)?;
    Ok((mapped, descriptor))
}

/// Returns a descriptor of a block of 0x5a created and mapped by another process.
fn exported_by(other: &Partner) -> Result<OwnedFd, Failure> {
    let allocation = other.number(PartnerRequest::Create(BLOCK))?;
    let at = other.address(PartnerRequest::Map { allocation, bytes: BLOCK })?;
    other.run(PartnerRequest::Fill { at, value: 0x5a, bytes: 4096 })?;
    other.descriptor(PartnerRequest::Export(allocation))
}

/// Imports a block and maps it.
fn import(b: &Fixture, descriptor: &OwnedFd) -> Result<Mapped, DriverError> {
    let allocation = allocation::import(b, descriptor.as_fd())?;
    let start = mapped::map_existing(b, allocation, BLOCK)?;
    mapping::set_access(b, start, BLOCK, &[read_write_access(b)])?;
    Ok(Mapped { start, allocation, bytes: BLOCK })
}

fn release(b: &Fixture, mapped: Mapped) -> Result<(), DriverError> {
    mapping::unmap(b, mapped.start, mapped.bytes)?;
    allocation::release(b, mapped.allocation)
}

/// Memory whose exporter was killed, and whose descriptor a process without a driver holds: returns the earlier free
/// memory, that process, and what is taken.
fn left_to_holder(b: &Fixture) -> Result<(FreeMemory, Partner, String), Failure> {
    b.init_context()?;
    let level = FreeMemory::now(b)?;
    let holder = Partner::start(b)?;
    let exporter = Partner::start_with_context(b)?;
    let descriptor = exported_by(&exporter)?;
    holder.number_with_descriptor(&descriptor, PartnerRequest::Keep)?;
    drop(descriptor);
    exporter.kill()?;
    let taken = level.settles_to_one_block(b)?;
    Ok((level, holder, taken))
}

fn kept_by_descriptor(b: &Fixture) -> Answer {
    let (level, holder, taken) = left_to_holder(b)?;
    let descriptor = holder.descriptor(PartnerRequest::GiveBack)?;
    let mapped = import(b, &descriptor)?;
    let held = byte_runs(&b.bytes_at(mapped.start, 4096)?);
    release(b, mapped)?;
    let left = level.blocks(b)?;
    drop(descriptor);
    Ok(format!("{taken}, holds {held}; unmapped {left}; closed {}", level.recovers(b)?))
}

fn kept_by_mapping(b: &Fixture) -> Answer {
    b.init_context()?;
    let level = FreeMemory::now(b)?;
    let exporter = Partner::start_with_context(b)?;
    let descriptor = exported_by(&exporter)?;
    let mapped = import(b, &descriptor)?;
    drop(descriptor);
    exporter.exit()?;
    let taken = level.settles_to_one_block(b)?;
    let held = byte_runs(&b.bytes_at(mapped.start, 4096)?);
    release(b, mapped)?;
    Ok(format!("{taken}, holds {held}; unmapped {}", level.recovers(b)?))
}

fn kept_after_mapping(b: &Fixture) -> Answer {
    b.init_context()?;
    let level = FreeMemory::now(b)?;
    let exporter = Partner::start_with_context(b)?;
    let descriptor = exported_by(&exporter)?;
    let mapped = import(b, &descriptor)?;
    exporter.exit()?;
    release(b, mapped)?;
    let taken = level.settles_to_one_block(b)?;
    drop(descriptor);
    Ok(format!("{taken}; closed {}", level.recovers(b)?))
}

fn holder_killed(b: &Fixture) -> Answer {
    let (level, holder, taken) = left_to_holder(b)?;
    holder.kill()?;
    Ok(format!("{taken}; {}", level.recovers(b)?))
}

fn no_holder(b: &Fixture) -> Answer {
    b.init_context()?;
    let level = FreeMemory::now(b)?;
    let exporter = Partner::start_with_context(b)?;
    drop(exported_by(&exporter)?);
    exporter.kill()?;
    level.recovers(b).map_err(Into::into)
}

fn importer_killed(b: &Fixture) -> Answer {
    b.init_context()?;
    let level = FreeMemory::now(b)?;
    let importer = Partner::start_with_context(b)?;
    let ours = mapped::map_new(b, BLOCK)?;
    fill::d8(b, ours.start, 0x5a, 4096)?;
    context::synchronize(b)?;
    let descriptor = allocation::export(b, ours.allocation)?;
    let allocation = importer.number_with_descriptor(&descriptor, PartnerRequest::Import)?;
    let at = importer.address(PartnerRequest::Map { allocation, bytes: BLOCK })?;
    importer.run(PartnerRequest::Fill { at, value: 0x33, bytes: 16 })?;
    drop(descriptor);
    importer.kill()?;
    let taken = level.settles_to_one_block(b)?;
    let held = [byte_runs(&b.bytes_at(ours.start, 16)?), byte_runs(&b.bytes_at(mapped::offset(ours.start, 16), 4080)?)];
    release(b, ours)?;
    Ok(format!("{taken}, holds {}; released {}", held.join(" "), level.recovers(b)?))
}

fn both_killed(b: &Fixture) -> Answer {
    b.init_context()?;
    let level = FreeMemory::now(b)?;
    let [exporter, importer] = [Partner::start_with_context(b)?, Partner::start_with_context(b)?];
    let descriptor = exported_by(&exporter)?;
    let allocation = importer.number_with_descriptor(&descriptor, PartnerRequest::Import)?;
    let at = importer.address(PartnerRequest::Map { allocation, bytes: BLOCK })?;
    importer.run(PartnerRequest::Fill { at, value: 0x33, bytes: 16 })?;
    exporter.kill()?;
    importer.kill()?;
    let taken = level.settles_to_one_block(b)?;
    let mapped = import(b, &descriptor)?;
    let held =
        [byte_runs(&b.bytes_at(mapped.start, 16)?), byte_runs(&b.bytes_at(mapped::offset(mapped.start, 16), 4080)?)];
    drop(descriptor);
    release(b, mapped)?;
    Ok(format!("{taken}, holds {}; {}", held.join(" "), level.recovers(b)?))
}

fn exporter_lets_go(b: &Fixture) -> Answer {
    b.init_context()?;
    let importer = Partner::start_with_context(b)?;
    let level = FreeMemory::now(b)?;
    let ours = mapped::map_new(b, BLOCK)?;
    fill::d8(b, ours.start, 0x5a, 4096)?;
    context::synchronize(b)?;
    let descriptor = allocation::export(b, ours.allocation)?;
    let allocation = importer.number_with_descriptor(&descriptor, PartnerRequest::Import)?;
    let at = importer.address(PartnerRequest::Map { allocation, bytes: BLOCK })?;
    drop(descriptor);
    release(b, ours)?;
    let taken = level.blocks(b)?;
    let held = importer.holds(at, 4096)?;
    importer.run(PartnerRequest::Unmap { at, bytes: BLOCK })?;
    let unmapped = level.blocks(b)?;
    importer.run(PartnerRequest::Release(allocation))?;
    Ok(format!("{taken}, holds {held}; unmapped {unmapped}; released {}", level.recovers(b)?))
}

fn fault_elsewhere(b: &Fixture) -> Answer {
    b.init_context()?;
    let other = Partner::start_with_context(b)?;
    let (ours, descriptor) = exported(b)?;
    let allocation = other.number_with_descriptor(&descriptor, PartnerRequest::Import)?;
    let at = other.address(PartnerRequest::MapReadOnly { allocation, bytes: ours.bytes })?;
    let there = code(other.run(PartnerRequest::Store { at, value: 7 }));
    let again = code(other.run(PartnerRequest::Fill { at, value: 7, bytes: 16 }));
    let held = byte_runs(&b.bytes_at(ours.start, 4096)?);
    Ok(format!("there {there}, then {again}; holds {held}, fill {}", code(fill::d8(b, ours.start, 1, 4096))))
}

fn exported_twice(b: &Fixture) -> Answer {
    let (mapped, first) = begun_and_exported(b)?;
    let second = allocation::export(b, mapped.allocation)?;
    release(b, mapped)?;
    let [one, two] = [allocation::import(b, first.as_fd())?, allocation::import(b, second.as_fd())?];
    let same = choose(one == two, "the same", "two handles");
    let at = mapped::map_existing(b, two, mapped.bytes)?;
    mapping::set_access(b, at, mapped.bytes, &[read_write_access(b)])?;
    Ok(format!("{same}, holds {}", byte_runs(&b.bytes_at(at, 4096)?)))
}

fn imported_others(b: &Fixture) -> Answer {
    b.init_context()?;
    let null = File::open("/dev/null")?;
    let (_, shared) = shared_host::memory()?;
    let numbers: [c_int; 4] = [null.as_raw_fd(), shared.as_raw_fd(), 987, -1];
    Ok(numbers.map(|number| code(imported_as(b, number, HandleType::POSIX_FILE_DESCRIPTOR))).join(", "))
}

fn imported_at_home(b: &Fixture) -> Answer {
    let (mapped, descriptor) = begun_and_exported(b)?;
    let import = allocation::import(b, descriptor.as_fd())?;
    let same = choose(import == mapped.allocation, "the same", "another");
    let releases = [mapped.allocation, import].map(|handle| code(allocation::release(b, handle)));
    Ok(format!("{same}; {}", releases.join(", ")))
}

fn imported_twice(b: &Fixture) -> Answer {
    b.init_context()?;
    let other = Partner::start_with_context(b)?;
    let descriptor = exported_by(&other)?;
    let [one, two] = [allocation::import(b, descriptor.as_fd())?, allocation::import(b, descriptor.as_fd())?];
    let same = choose(one == two, "the same", "two handles");
    Ok(format!("{same}; {}", [one, two].map(|handle| code(allocation::release(b, handle))).join(", ")))
}

fn written_elsewhere(b: &Fixture) -> Answer {
    b.init_context()?;
    let other = Partner::start_with_context(b)?;
    let (ours, descriptor) = exported(b)?;
    let allocation = other.number_with_descriptor(&descriptor, PartnerRequest::Import)?;
    drop(descriptor);
    let at = other.address(PartnerRequest::Map { allocation, bytes: ours.bytes })?;
    let read = other.holds(at, 4096)?;
    other.run(PartnerRequest::Fill { at, value: 0x33, bytes: 4096 })?;
    let filled = byte_runs(&b.bytes_at(ours.start, 4096)?);
    other.run(PartnerRequest::Store { at, value: 7 })?;
    Ok(format!("reads {read}; here {filled}, then word {}", word_at(b, ours.start)?))
}

fn exported_again(b: &Fixture) -> Answer {
    b.init_context()?;
    let other = Partner::start_with_context(b)?;
    let (ours, descriptor) = exported(b)?;
    let allocation = other.number_with_descriptor(&descriptor, PartnerRequest::Import)?;
    let again = match other.descriptor(PartnerRequest::Export(allocation)) {
        Ok(again) => again,
        refused => return Ok(code(refused)),
    };
    let import = allocation::import(b, again.as_fd())?;
    let at = mapped::map_existing(b, import, ours.bytes)?;
    mapping::set_access(b, at, ours.bytes, &[read_write_access(b)])?;
    Ok(format!("SUCCESS, holds {}", byte_runs(&b.bytes_at(at, 4096)?)))
}

fn readable_elsewhere(b: &Fixture) -> Answer {
    b.init_context()?;
    let other = Partner::start_with_context(b)?;
    let (ours, descriptor) = exported(b)?;
    let allocation = other.number_with_descriptor(&descriptor, PartnerRequest::Import)?;
    let at = other.address(PartnerRequest::MapReadOnly { allocation, bytes: ours.bytes })?;
    let read = other.holds(at, 4096)?;
    let filled = code(other.run(PartnerRequest::Fill { at, value: 1, bytes: 4096 }));
    fill::d8(b, ours.start, 0x33, 4096)?;
    context::synchronize(b)?;
    Ok(format!("{read}, {filled}, {}", other.holds(at, 4096)?))
}

fn imported_by_two(b: &Fixture) -> Answer {
    b.init_context()?;
    let others = [Partner::start_with_context(b)?, Partner::start_with_context(b)?];
    let (ours, descriptor) = exported(b)?;
    let mut places = [CUdeviceptr::NULL; 2];
    for (other, place) in others.iter().zip(&mut places) {
        let allocation = other.number_with_descriptor(&descriptor, PartnerRequest::Import)?;
        *place = other.address(PartnerRequest::Map { allocation, bytes: ours.bytes })?;
    }
    others[0].run(PartnerRequest::Fill { at: places[0], value: 0x11, bytes: 4096 })?;
    let second = others[1].holds(places[1], 4096)?;
    others[1].run(PartnerRequest::Fill { at: places[1], value: 0x22, bytes: 4096 })?;
    Ok(format!("{second}, {}, here {}", others[0].holds(places[0], 4096)?, byte_runs(&b.bytes_at(ours.start, 4096)?)))
}

fn by_number_zero(b: &Fixture) -> Answer {
    b.init_context()?;
    let handle = allocation::create(b, PAGE, &shareable_prop(b))?;
    let exported = allocation::export(b, handle)?;
    // SAFETY: the call takes two numbers; nothing in this process uses standard input.
    let zero = unsafe { libc::dup2(exported.as_raw_fd(), 0) };
    if zero != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    let by_zero = code(imported_as(b, 0, HandleType::POSIX_FILE_DESCRIPTOR));
    Ok(format!("{by_zero}, {}", code(allocation::import(b, exported.as_fd()))))
}
