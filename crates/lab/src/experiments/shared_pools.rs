//! Experiments on pools that another process has imported, and on their blocks (question 1).

use std::ffi::c_void;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::ptr;

use freehold_driver::cuda::{
    CUdeviceptr, CUmemAllocationHandleType, CUmemPool_attribute, CUmemPoolProps, CUmemPoolPtrExportData, CUmemoryPool,
    DriverError, Function, allocation, context, device, fill, memory, pool,
};

use crate::answer_text::{byte_runs, choose, code, or_code};
use crate::experiment::{Answer, Experiment};
use crate::failure::Failure;
use crate::fixture::{Fixture, check};
use crate::free_memory::{BLOCK, FreeMemory};
use crate::id::Id;
use crate::kernels::{DEFAULT, word_at};
use crate::mapped::{self, PAGE, exportable_pool, offset, read_access, read_write_access, shareable_prop};
use crate::partner::Partner;
use crate::partner_request::{PartnerRequest, token};

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: Id(1, 11, 1),
        did: "export a pool that was made for it, one that was not, and the default pool",
        run: |b| {
            b.init_context()?;
            let private = pool::create(b, &CUmemPoolProps::on_device(b.device))?;
            let pools = [exportable_pool(b)?, private, device::default_pool(b, b.device)?];
            Ok(pools.map(|pool| code(pool::export(b, pool))).join(", "))
        },
    },
    Experiment {
        id: Id(1, 11, 2),
        did: "import a pool of another process and a block of it: what is read",
        run: |b| {
            let shared = shared(b, PAGE)?;
            Ok(byte_runs(&b.bytes_at(shared.here, 4096)?))
        },
    },
    Experiment {
        id: Id(1, 11, 3),
        did: "fill a block of an imported pool: what the exporter reads; its kernel writes a word: what is read here",
        run: |b| {
            let Shared { other, there, here, .. } = shared(b, PAGE)?;
            fill::d8(b, here, 0x33, 4096)?;
            context::synchronize(b)?;
            let read = other.holds(there, 4096)?;
            other.run(PartnerRequest::Store { at: there, value: 7 })?;
            Ok(format!("{read}, word {}", word_at(b, here)?))
        },
    },
    Experiment {
        id: Id(1, 11, 4),
        did: "allocate from an imported pool",
        run: |b| {
            let shared = shared(b, PAGE)?;
            Ok(code(memory::alloc_from_pool_async(b, PAGE, shared.pool, DEFAULT)))
        },
    },
    Experiment {
        id: Id(1, 11, 5),
        did: "an imported pool: ask for used memory and for the release threshold, set the threshold, trim",
        run: |b| {
            let Shared { pool, other: _other, .. } = shared(b, PAGE)?;
            let used = code(pool::attribute(b, pool, CUmemPool_attribute::USED_MEM_CURRENT));
            let threshold = code(pool::release_threshold_bytes(b, pool));
            let set = code(pool::set_release_threshold(b, pool, 1 << 20));
            Ok(format!("{used}, {threshold}, {set}, {}", code(pool::trim(b, pool, 0))))
        },
    },
    Experiment {
        id: Id(1, 11, 6),
        did: "an imported pool: ask for the access, set it to read, and to read and write",
        run: |b| {
            let Shared { pool, other: _other, .. } = shared(b, PAGE)?;
            let asked = or_code(pool::access(b, pool, mapped::on_device(b)), |flags| flags.0.to_string());
            let set = [read_access(b), read_write_access(b)].map(|access| code(pool::set_access(b, pool, &[access])));
            Ok(format!("{asked}, {}", set.join(", ")))
        },
    },
    Experiment {
        id: Id(1, 11, 7),
        did: "cuMemFreeAsync of a block of an imported pool: here, read here, read by the exporter, freed by it",
        run: |b| freed_here_first(b, |at| memory::free_async(b, at, DEFAULT)),
    },
    Experiment {
        id: Id(1, 11, 8),
        did: "cuMemFree of a block of an imported pool: here, read here, read by the exporter, freed by it",
        run: |b| freed_here_first(b, |at| memory::free(b, at)),
    },
    Experiment {
        id: Id(1, 11, 9),
        did: "export a block of cuMemAlloc, of the default pool, of a pool that cannot be exported, and a mapping",
        run: |b| {
            b.init_context()?;
            let private = pool::create(b, &CUmemPoolProps::on_device(b.device))?;
            let blocks = [
                memory::alloc(b, PAGE)?,
                memory::alloc_async(b, PAGE, DEFAULT)?,
                memory::alloc_from_pool_async(b, PAGE, private, DEFAULT)?,
                mapped::map_new(b, PAGE)?.start,
            ];
            Ok(blocks.map(|block| code(pool::export_block(b, block))).join(", "))
        },
    },
    Experiment {
        id: Id(1, 11, 10),
        did: "import a block by data whose bytes are all 0",
        run: |b| imported_by_bytes(b, 0),
    },
    Experiment {
        id: Id(1, 11, 24),
        did: "import a block by data whose bytes are all 0xff",
        run: |b| imported_by_bytes(b, 0xff),
    },
    Experiment { id: Id(1, 11, 11), did: "import one's own pool, and one's own block of it", run: imported_at_home },
    Experiment {
        id: Id(1, 11, 12),
        did: "the exporter destroys a pool of which a block is imported: the code, and what is read here",
        run: |b| {
            let Shared { other, theirs, here, .. } = shared(b, PAGE)?;
            let destroyed = code(other.run(PartnerRequest::DestroyPool(theirs)));
            Ok(format!("{destroyed}, {}", or_code(b.bytes_at(here, 4096), |bytes| byte_runs(&bytes))))
        },
    },
    Experiment {
        id: Id(1, 11, 13),
        did: "the exporter of an imported block exits: memory taken, what is read, and when it is freed here",
        run: |b| exporter_ends(b, Partner::exit),
    },
    Experiment {
        id: Id(1, 11, 14),
        did: "the exporter of an imported block is killed: memory taken, what is read, and when it is freed here",
        run: |b| exporter_ends(b, |exporter| exporter.kill().map(drop)),
    },
    Experiment {
        id: Id(1, 11, 15),
        did: "import as a pool /dev/null, -1, and memory of cuMemCreate; import a pool as memory",
        run: imported_others,
    },
    Experiment {
        id: Id(1, 11, 16),
        did: "import a block twice: whether the address is the same; free it, read it, free it",
        run: imported_twice,
    },
    Experiment {
        id: Id(1, 11, 17),
        did: "export an imported pool, and an imported block",
        run: |b| {
            let Shared { pool, here, other: _other, .. } = shared(b, PAGE)?;
            Ok(format!("{}, {}", code(pool::export(b, pool)), code(pool::export_block(b, here))))
        },
    },
    Experiment {
        id: Id(1, 11, 18),
        did: "destroy an imported pool: the code, and what is read of its block",
        run: |b| {
            let Shared { pool, here, other: _other, .. } = shared(b, PAGE)?;
            let destroyed = code(pool::destroy(b, pool));
            Ok(format!("{destroyed}, {}", or_code(b.bytes_at(here, 4096), |bytes| byte_runs(&bytes))))
        },
    },
    Experiment {
        id: Id(1, 11, 19),
        did: "make an imported pool the device's current one, and allocate",
        run: |b| {
            let Shared { pool, other: _other, .. } = shared(b, PAGE)?;
            let set = code(device::set_pool(b, b.device, pool));
            Ok(format!("{set}, {}", code(memory::alloc_async(b, PAGE, DEFAULT))))
        },
    },
    Experiment {
        id: Id(1, 11, 22),
        did: "export the midst of a block of a pool: what is read where it is imported",
        run: interior,
    },
    Experiment {
        id: Id(1, 11, 23),
        did: "import a pool twice: whether the pools are the same; destroy one and import a block of the other",
        run: |b| {
            b.init_context()?;
            let other = Partner::start_with_context(b)?;
            let theirs = other.number(PartnerRequest::CreatePool)?;
            let there = other.address(PartnerRequest::AllocOf { pool: theirs, bytes: PAGE })?;
            let descriptor = other.descriptor(PartnerRequest::ExportPool(theirs))?;
            let [first, second] = [pool::import(b, descriptor.as_fd())?, pool::import(b, descriptor.as_fd())?];
            let same = choose(first == second, "the same", "two pools");
            let data = CUmemPoolPtrExportData { bytes: token(&other.bytes(PartnerRequest::ExportBlock(there))?)? };
            let destroyed = code(pool::destroy(b, first));
            Ok(format!("{same}; {destroyed}, {}", code(pool::import_block(b, second, data))))
        },
    },
];

/// A block of 0x5a of another process's pool, imported here.
struct Shared {
    other: Partner,
    /// The pool in the other process.
    theirs: u64,
    /// The block's address in the other process.
    there: CUdeviceptr,
    pool: CUmemoryPool,
    /// The block's address here.
    here: CUdeviceptr,
    data: CUmemPoolPtrExportData,
}

fn shared(b: &Fixture, bytes: usize) -> Result<Shared, Failure> {
    b.init_context()?;
    let other = Partner::start_with_context(b)?;
    let theirs = other.number(PartnerRequest::CreatePool)?;
    let there = other.address(PartnerRequest::AllocOf { pool: theirs, bytes })?;
    other.run(PartnerRequest::Fill { at: there, value: 0x5a, bytes: 4096 })?;
    let pool = pool::import(b, other.descriptor(PartnerRequest::ExportPool(theirs))?.as_fd())?;
    let data = CUmemPoolPtrExportData { bytes: token(&other.bytes(PartnerRequest::ExportBlock(there))?)? };
    let here = pool::import_block(b, pool, data)?;
    Ok(Shared { other, theirs, there, pool, here, data })
}

fn freed_here_first(b: &Fixture, free: impl FnOnce(CUdeviceptr) -> Result<(), DriverError>) -> Answer {
    let Shared { other, there, here, .. } = shared(b, PAGE)?;
    let freed = code(free(here));
    context::synchronize(b)?;
    let read = or_code(b.bytes_at(here, 4096), |bytes| byte_runs(&bytes));
    let read_there = other.holds(there, 4096)?;
    Ok(format!("{freed}, {read}, {read_there}, {}", code(other.run(PartnerRequest::FreeAsync(there)))))
}

fn exporter_ends(b: &Fixture, end: impl FnOnce(Partner) -> Result<(), Failure>) -> Answer {
    b.init_context()?;
    let level = FreeMemory::now(b)?;
    let Shared { other, here, .. } = shared(b, BLOCK)?;
    end(other)?;
    let taken = level.settles_to_one_block(b)?;
    let held = or_code(b.bytes_at(here, 4096), |bytes| byte_runs(&bytes));
    let freed = code(memory::free_async(b, here, DEFAULT));
    context::synchronize(b)?;
    Ok(format!("{taken}, holds {held}; free {freed}, {}", level.recovers(b)?))
}

fn imported_by_bytes(b: &Fixture, byte: u8) -> Answer {
    let Shared { pool, other: _other, .. } = shared(b, PAGE)?;
    Ok(code(pool::import_block(b, pool, CUmemPoolPtrExportData { bytes: [byte; 64] })))
}

fn imported_at_home(b: &Fixture) -> Answer {
    b.init_context()?;
    let ours = exportable_pool(b)?;
    let block = memory::alloc_from_pool_async(b, PAGE, ours, DEFAULT)?;
    context::synchronize(b)?;
    let descriptor = pool::export(b, ours)?;
    let data = pool::export_block(b, block)?;
    let import = pool::import(b, descriptor.as_fd());
    let imported = or_code(import, |import| choose(import == ours, "the same pool", "another pool"));
    Ok(format!("{imported}, {}", code(pool::import_block(b, import.unwrap_or(ours), data))))
}

/// Returns the result of importing a number as a pool.
fn imported_as_pool(b: &Fixture, descriptor: RawFd) -> Result<(), DriverError> {
    let mut pool = CUmemoryPool::NULL;
    let shareable = ptr::without_provenance_mut::<c_void>(descriptor as usize);
    let kind = CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR;
    // SAFETY: `pool` outlives the call, which writes one handle to it; the pointer is a number for this kind.
    let outcome = unsafe { (b.cuMemPoolImportFromShareableHandle)(&mut pool, shareable, kind, 0) };
    check(Function::cuMemPoolImportFromShareableHandle, outcome)
}

fn imported_others(b: &Fixture) -> Answer {
    b.init_context()?;
    let null = File::open("/dev/null")?;
    let memory = allocation::export(b, allocation::create(b, PAGE, &shareable_prop(b))?)?;
    let pool = pool::export(b, exportable_pool(b)?)?;
    let codes = [null.as_raw_fd(), -1, memory.as_raw_fd()].map(|number| code(imported_as_pool(b, number)));
    Ok(format!("{}; {}", codes.join(", "), code(allocation::import(b, pool.as_fd()))))
}

fn imported_twice(b: &Fixture) -> Answer {
    let Shared { pool, here, data, other: _other, .. } = shared(b, PAGE)?;
    let again = match pool::import_block(b, pool, data) {
        Ok(again) => again,
        refused => return Ok(code(refused)),
    };
    let same = choose(again == here, "the same", "two addresses");
    let first = code(memory::free_async(b, here, DEFAULT));
    context::synchronize(b)?;
    let read = or_code(b.bytes_at(again, 4096), |bytes| byte_runs(&bytes));
    Ok(format!("{same}; {first}, reads {read}, {}", code(memory::free_async(b, again, DEFAULT))))
}

fn interior(b: &Fixture) -> Answer {
    b.init_context()?;
    let other = Partner::start_with_context(b)?;
    let theirs = other.number(PartnerRequest::CreatePool)?;
    let there = other.address(PartnerRequest::AllocOf { pool: theirs, bytes: 8192 })?;
    other.run(PartnerRequest::Fill { at: there, value: 0x11, bytes: 4096 })?;
    other.run(PartnerRequest::Fill { at: offset(there, 4096), value: 0x22, bytes: 4096 })?;
    let data = match other.bytes(PartnerRequest::ExportBlock(offset(there, 4096))) {
        Ok(data) => CUmemPoolPtrExportData { bytes: token(&data)? },
        refused => return Ok(code(refused)),
    };
    let pool = pool::import(b, other.descriptor(PartnerRequest::ExportPool(theirs))?.as_fd())?;
    let here = pool::import_block(b, pool, data)?;
    Ok(byte_runs(&b.bytes_at(here, 16)?))
}
