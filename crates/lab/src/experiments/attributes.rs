//! Experiments on pointer attributes of mapped, shared and merely reserved addresses (question 6).

use std::os::fd::AsFd;

use freehold_driver::cuda::{
    CUcontext, CUdeviceptr, CUipcMemHandle, CUmemPoolPtrExportData, CUpointer_attribute as Attribute, allocation,
    context, ipc, ipc_flags, mapping, memory, pointer, pool,
};

use crate::answer_text::{choose, or_code, size};
use crate::experiment::{Answer, Experiment};
use crate::failure::Failure;
use crate::fixture::Fixture;
use crate::id::Id;
use crate::mapped::{PAGE, map_existing, offset, read_access, read_write_access, reserve, shareable_prop};
use crate::partner::Partner;
use crate::partner_request::{PartnerRequest, token};

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: Id(1, 11, 20),
        did: "whose a block of an imported pool is: context, type, device, pool, access, managed",
        run: |b| of_imported_block(b, &WHOSE),
    },
    Experiment {
        id: Id(1, 11, 21),
        did: "where a block of an imported pool lies: start, size, mapped, handle types, legacy IPC, mapping",
        run: |b| of_imported_block(b, &WHERE),
    },
    Experiment {
        id: Id(1, 12, 1),
        did: "whose memory opened by its handle is: context, type, device, pool, access, managed",
        run: |b| of_opened(b, &WHOSE),
    },
    Experiment {
        id: Id(1, 12, 2),
        did: "where memory opened by its handle lies: start, size, mapped, handle types, legacy IPC, mapping",
        run: |b| of_opened(b, &WHERE),
    },
    Experiment {
        id: Id(6, 7, 1),
        did: "the context of mapped, of inaccessible, of readable and of reserved addresses",
        run: |b| of_each(b, Attribute::CONTEXT),
    },
    Experiment {
        id: Id(6, 7, 2),
        did: "the memory type of mapped, of inaccessible, of readable and of reserved addresses",
        run: |b| of_each(b, Attribute::MEMORY_TYPE),
    },
    Experiment {
        id: Id(6, 7, 3),
        did: "the start of the range of mapped, of inaccessible, of readable and of reserved addresses",
        run: |b| of_each(b, Attribute::RANGE_START_ADDR),
    },
    Experiment {
        id: Id(6, 7, 4),
        did: "the size of the range of mapped, of inaccessible, of readable and of reserved addresses",
        run: |b| of_each(b, Attribute::RANGE_SIZE),
    },
    Experiment {
        id: Id(6, 7, 5),
        did: "whether something is mapped to mapped, to inaccessible, to readable and to reserved addresses",
        run: |b| of_each(b, Attribute::MAPPED),
    },
    Experiment {
        id: Id(6, 7, 6),
        did: "the allowed handle types of mapped, of inaccessible, of readable and of reserved addresses",
        run: |b| of_each(b, Attribute::ALLOWED_HANDLE_TYPES),
    },
    Experiment {
        id: Id(6, 7, 7),
        did: "whether mapped, inaccessible, readable and reserved addresses are capable of legacy IPC",
        run: |b| of_each(b, Attribute::IS_LEGACY_CUDA_IPC_CAPABLE),
    },
    Experiment {
        id: Id(6, 7, 8),
        did: "the size of the mapping of mapped, of inaccessible, of readable and of reserved addresses",
        run: |b| of_each(b, Attribute::MAPPING_SIZE),
    },
    Experiment {
        id: Id(6, 7, 9),
        did: "the start of the mapping of mapped, of inaccessible, of readable and of reserved addresses",
        run: |b| of_each(b, Attribute::MAPPING_BASE_ADDR),
    },
    Experiment {
        id: Id(6, 7, 10),
        did: "the access flags of mapped, of inaccessible, of readable and of reserved addresses",
        run: |b| of_each(b, Attribute::ACCESS_FLAGS),
    },
    Experiment {
        id: Id(6, 7, 11),
        did: "the device of mapped, of inaccessible, of readable and of reserved addresses",
        run: |b| of_each(b, Attribute::DEVICE_ORDINAL),
    },
    Experiment {
        id: Id(6, 7, 12),
        did: "the pool of mapped, of inaccessible, of readable and of reserved addresses",
        run: |b| of_each(b, Attribute::MEMPOOL_HANDLE),
    },
    Experiment {
        id: Id(6, 7, 13),
        did: "the device pointer of mapped, of inaccessible, of readable and of reserved addresses",
        run: |b| of_each(b, Attribute::DEVICE_POINTER),
    },
    Experiment {
        id: Id(6, 7, 14),
        did: "the host pointer of mapped, of inaccessible, of readable and of reserved addresses",
        run: |b| of_each(b, Attribute::HOST_POINTER),
    },
    Experiment {
        id: Id(6, 7, 15),
        did: "cuMemGetAddressRange of mapped, of inaccessible, of readable and of reserved addresses",
        run: |b| {
            let Blocks { start, addresses, .. } = alloc_blocks(b)?;
            Ok(addresses.map(|(name, at)| format!("{name} {}", range(b, start, at))).join(", "))
        },
    },
    Experiment {
        id: Id(6, 7, 16),
        did: "the context of mapped memory with another context current",
        run: |b| {
            let Blocks { start, addresses, context } = alloc_blocks(b)?;
            b.second_context()?;
            Ok(say(b, context, start, Attribute::CONTEXT, addresses[0].1))
        },
    },
    Experiment {
        id: Id(6, 7, 17),
        did: "the block id of two mappings of one handle, and of another handle",
        run: block_ids,
    },
];

const WHOSE: [Attribute; 6] = [
    Attribute::CONTEXT,
    Attribute::MEMORY_TYPE,
    Attribute::DEVICE_ORDINAL,
    Attribute::MEMPOOL_HANDLE,
    Attribute::ACCESS_FLAGS,
    Attribute::IS_MANAGED,
];

const WHERE: [Attribute; 7] = [
    Attribute::RANGE_START_ADDR,
    Attribute::RANGE_SIZE,
    Attribute::MAPPED,
    Attribute::ALLOWED_HANDLE_TYPES,
    Attribute::IS_LEGACY_CUDA_IPC_CAPABLE,
    Attribute::MAPPING_BASE_ADDR,
    Attribute::MAPPING_SIZE,
];

/// The offset into a mapping, or a block, that is queried.
const INSIDE: usize = 12345;

/// Eight pages of addresses: two with writable memory, two with memory without access, two with read-only memory, and
/// two without memory.
struct Blocks {
    context: CUcontext,
    start: CUdeviceptr,
    /// One address inside each.
    addresses: [(&'static str, CUdeviceptr); 4],
}

fn alloc_blocks(b: &Fixture) -> Result<Blocks, Failure> {
    let context = b.init_context()?;
    let start = reserve(b, 8 * PAGE)?;
    let places = [start, offset(start, 2 * PAGE), offset(start, 4 * PAGE)];
    for (place, access) in places.into_iter().zip([Some(read_write_access(b)), None, Some(read_access(b))]) {
        let handle = allocation::create(b, 2 * PAGE, &shareable_prop(b))?;
        mapping::map(b, place, 2 * PAGE, 0, handle)?;
        if let Some(access) = access {
            mapping::set_access(b, place, 2 * PAGE, &[access])?;
        }
    }
    let [mapped, inaccessible, readable] = places.map(|place| offset(place, INSIDE));
    let reserved = offset(start, 6 * PAGE + INSIDE);
    let addresses =
        [("mapped", mapped), ("inaccessible", inaccessible), ("readable", readable), ("reserved", reserved)];
    Ok(Blocks { context, start, addresses })
}

fn of_each(b: &Fixture, which: Attribute) -> Answer {
    let Blocks { context, start, addresses } = alloc_blocks(b)?;
    Ok(addresses.map(|(name, at)| format!("{name} {}", say(b, context, start, which, at))).join(", "))
}

/// Formats an attribute of `at` without addresses: positions are relative to `base`.
fn say(b: &Fixture, context: CUcontext, base: CUdeviceptr, which: Attribute, at: CUdeviceptr) -> String {
    or_code(pointer::attribute(b, at, which), |value| match which {
        Attribute::CONTEXT if value == 0 => "null".to_owned(),
        Attribute::CONTEXT => choose(value as usize == context.0, "the context", "another context"),
        Attribute::MEMPOOL_HANDLE => choose(value == 0, "null", "a pool"),
        Attribute::DEVICE_ORDINAL => match value as u32 as i32 {
            ordinal if ordinal == b.device.0 => "this device".to_owned(),
            ordinal => format!("device {ordinal}"),
        },
        Attribute::RANGE_SIZE | Attribute::MAPPING_SIZE => size(value),
        Attribute::RANGE_START_ADDR
        | Attribute::MAPPING_BASE_ADDR
        | Attribute::DEVICE_POINTER
        | Attribute::HOST_POINTER => place(base, CUdeviceptr(value)),
        _ => value.to_string(),
    })
}

fn place(base: CUdeviceptr, at: CUdeviceptr) -> String {
    match at.0.checked_sub(base.0) {
        _ if at == CUdeviceptr::NULL => "null".to_owned(),
        Some(offset) => format!("+{offset}"),
        None => format!("-{}", base.0 - at.0),
    }
}

fn range(b: &Fixture, base: CUdeviceptr, at: CUdeviceptr) -> String {
    or_code(memory::range(b, at), |range| format!("{} of {}", place(base, range.base), size(range.bytes as u64)))
}

fn told(b: &Fixture, context: CUcontext, base: CUdeviceptr, which: &[Attribute]) -> String {
    let at = offset(base, INSIDE);
    let told: Vec<String> = which.iter().map(|&which| say(b, context, base, which, at)).collect();
    format!("{}; range {}", told.join(", "), range(b, base, at))
}

fn of_opened(b: &Fixture, which: &[Attribute]) -> Answer {
    let context = b.init_context()?;
    let other = Partner::start_with_context(b)?;
    let block = other.address(PartnerRequest::Alloc(3 * PAGE))?;
    let handle = CUipcMemHandle { bytes: token(&other.bytes(PartnerRequest::MemoryHandle(block))?)? };
    let base = ipc::open_memory(b, handle, ipc_flags::LAZY_ENABLE_PEER_ACCESS)?;
    Ok(told(b, context, base, which))
}

fn of_imported_block(b: &Fixture, which: &[Attribute]) -> Answer {
    let context = b.init_context()?;
    let other = Partner::start_with_context(b)?;
    let theirs = other.number(PartnerRequest::CreatePool)?;
    let block = other.address(PartnerRequest::AllocOf { pool: theirs, bytes: 3 * PAGE })?;
    let ours = pool::import(b, other.descriptor(PartnerRequest::ExportPool(theirs))?.as_fd())?;
    let data = token(&other.bytes(PartnerRequest::ExportBlock(block))?)?;
    let base = pool::import_block(b, ours, CUmemPoolPtrExportData { bytes: data })?;
    context::synchronize(b)?;
    Ok(told(b, context, base, which))
}

fn block_ids(b: &Fixture) -> Answer {
    b.init_context()?;
    let [one, two] =
        [allocation::create(b, PAGE, &shareable_prop(b))?, allocation::create(b, PAGE, &shareable_prop(b))?];
    let mut ids = Vec::new();
    for handle in [one, one, two] {
        let at = map_existing(b, handle, PAGE)?;
        mapping::set_access(b, at, PAGE, &[read_write_access(b)])?;
        ids.push(pointer::memory_block_id(b, at)?);
    }
    let same = |holds| choose(holds, "the same", "another");
    Ok(format!("{}, {}", same(ids[0] == ids[1]), same(ids[0] == ids[2])))
}
