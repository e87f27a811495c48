//! Memory without an address.

use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::Arc;

use freehold_driver::cuda::{
    CUdevice, CUerror, CUmemAllocationGranularity_flags, CUmemAllocationHandleType, CUmemAllocationProp,
    CUmemAllocationType, CUmemGenericAllocationHandle, CUmemLocationType, CUresult,
};
use rustix::io::fcntl_dupfd_cloexec;

use crate::boundary::{Any, HostAddress, In, Out};
use crate::device::Device;
use crate::mapping::Allocation;
use crate::memory::PAGE_BYTES;
use crate::memory::backing::{Backing, Content, Label, with_room_for_descriptors};
use crate::span::SpanKind;
use crate::world::{World, world};

/// The device that memory like this would be of.
fn wanted<'w>(world: &'w World, prop: &CUmemAllocationProp) -> Result<&'w Arc<Device>, CUerror> {
    let foreign =
        [CUmemAllocationHandleType::WIN32, CUmemAllocationHandleType::WIN32_KMT, CUmemAllocationHandleType::FABRIC];
    if prop.kind != CUmemAllocationType::PINNED || prop.location.kind != CUmemLocationType::DEVICE {
        return Err(CUerror::INVALID_VALUE);
    }
    let is_foreign = foreign.iter().any(|kind| prop.requestedHandleTypes.0 & kind.0 != 0);
    if is_foreign || prop.compressionType > 1 {
        return Err(CUerror::NOT_SUPPORTED);
    }
    world.device(CUdevice(prop.location.id))
}

pub(crate) fn cuMemCreate(
    allocation: Out<CUmemGenericAllocationHandle>,
    bytes: usize,
    prop: In<CUmemAllocationProp>,
    flags: u64,
) -> CUresult {
    let world = world()?;
    let (bytes, prop) = (bytes as u64, prop.0);
    if flags != 0 || bytes == 0 || !bytes.is_multiple_of(PAGE_BYTES) {
        return Err(CUerror::INVALID_VALUE);
    }
    let device = wanted(world, &prop)?;
    if bytes > device.memory_bytes {
        return Err(CUerror::OUT_OF_MEMORY);
    }
    let create = || Backing::create(&device.book, bytes).map_err(|_| CUerror::OUT_OF_MEMORY);
    let memory = match create()? {
        Some(memory) => Some(memory),
        None => {
            device.trim_pools(|_| 0);
            create()?
        }
    };
    let memory = memory.ok_or(CUerror::OUT_OF_MEMORY)?;
    allocation.set(enter(world, device.ordinal, prop, memory));
    Ok(())
}

fn enter(
    world: &World,
    device: usize,
    prop: CUmemAllocationProp,
    memory: Arc<Backing>,
) -> CUmemGenericAllocationHandle {
    let make = |handle| Arc::new(Allocation::new(handle as u64, device, prop, memory));
    let (handle, _) = world.allocations.insert_with(make);
    CUmemGenericAllocationHandle(handle as u64)
}

pub(super) fn find(world: &World, allocation: CUmemGenericAllocationHandle) -> Result<Arc<Allocation>, CUerror> {
    world.allocations.find(allocation.0 as usize).ok_or(CUerror::INVALID_VALUE)
}

pub(crate) fn cuMemRelease(allocation: CUmemGenericAllocationHandle) -> CUresult {
    let world = world()?;
    if find(world, allocation)?.release()? {
        world.allocations.remove(allocation.0 as usize);
    }
    Ok(())
}

pub(crate) fn cuMemGetAllocationGranularity(
    bytes: Out<usize>,
    prop: In<CUmemAllocationProp>,
    option: CUmemAllocationGranularity_flags,
) -> CUresult {
    world()?;
    // The real driver does not look at the device, nor at the kind of memory.
    if prop.0.location.kind != CUmemLocationType::DEVICE {
        return Err(CUerror::INVALID_VALUE);
    }
    if option.0 > CUmemAllocationGranularity_flags::RECOMMENDED.0 {
        return Err(CUerror::INVALID_VALUE);
    }
    bytes.set(PAGE_BYTES as usize);
    Ok(())
}

pub(crate) fn cuMemGetAllocationPropertiesFromHandle(
    prop: Out<CUmemAllocationProp>,
    allocation: CUmemGenericAllocationHandle,
) -> CUresult {
    prop.set(find(world()?, allocation)?.prop);
    Ok(())
}

pub(crate) fn cuMemRetainAllocationHandle(
    allocation: Out<CUmemGenericAllocationHandle>,
    start: HostAddress,
) -> CUresult {
    let world = world()?;
    let span = world.span(start.0).ok_or(CUerror::INVALID_VALUE)?;
    let SpanKind::Mapped(mapping) = &span.kind else { return Err(CUerror::INVALID_VALUE) };
    let mapped = &mapping.allocation;
    let handle = if mapped.retain() {
        CUmemGenericAllocationHandle(mapped.handle)
    } else {
        // Its handle was given back for good: the memory gets another.
        enter(world, mapped.device, mapped.prop, Arc::clone(&mapped.memory))
    };
    allocation.set(handle);
    Ok(())
}

pub(crate) fn cuMemExportToShareableHandle(
    shareable: Any,
    allocation: CUmemGenericAllocationHandle,
    kind: CUmemAllocationHandleType,
    flags: u64,
) -> CUresult {
    let world = world()?;
    let found = find(world, allocation)?;
    let posix = CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR;
    if flags != 0 || kind != posix || found.prop.requestedHandleTypes.0 & posix.0 == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let label = Label::new(Content::Allocation, found.device, found.memory.bytes());
    found.memory.share(label).map_err(|_| CUerror::OPERATING_SYSTEM)?;
    hand_out(shareable, &found.memory)
}

/// Gives the program a descriptor of shared memory.
pub(super) fn hand_out(shareable: Any, memory: &Backing) -> CUresult {
    let descriptor = memory.descriptor().map_err(|_| CUerror::OPERATING_SYSTEM)?;
    shareable.set(-1i32)?;
    shareable.set(descriptor.into_raw_fd())
}

/// What a descriptor of the program's names, if it is shared memory of this content.
pub(super) fn take_in(shareable: HostAddress, content: Content) -> Result<(Arc<Backing>, Label), CUerror> {
    // A number is handed over as a pointer, of which the lower half counts.
    let number = shareable.0 as u32 as i32;
    if number < 0 {
        return Err(CUerror::UNKNOWN);
    }
    // SAFETY: the number is not -1. It is only copied, during this call; where the program has nothing open under it, the
    // kernel says so.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    let own: OwnedFd = with_room_for_descriptors(|| fcntl_dupfd_cloexec(borrowed, 0)).map_err(|_| CUerror::UNKNOWN)?;
    let (memory, label) = Backing::adopt(own).map_err(|_| CUerror::UNKNOWN)?;
    if !label.is(content) {
        return Err(CUerror::NOT_SUPPORTED);
    }
    Ok((Arc::new(memory), label))
}

pub(crate) fn cuMemImportFromShareableHandle(
    allocation: Out<CUmemGenericAllocationHandle>,
    shareable: HostAddress,
    kind: CUmemAllocationHandleType,
) -> CUresult {
    let world = world()?;
    match kind {
        CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR => {}
        CUmemAllocationHandleType::NONE => return Err(CUerror::INVALID_VALUE),
        _ => return Err(CUerror::NOT_SUPPORTED),
    }
    // Descriptor 0 is a null pointer.
    if shareable.0 == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let (memory, label) = take_in(shareable, Content::Allocation)?;
    let device = i32::try_from(label.device).map(CUdevice).map_err(|_| CUerror::INVALID_VALUE)?;
    let ordinal = world.device(device).map_err(|_| CUerror::INVALID_VALUE)?.ordinal;
    // What was imported is not exported again.
    let prop = CUmemAllocationProp::on_device(device, CUmemAllocationHandleType::NONE);
    allocation.set(enter(world, ordinal, prop, memory));
    Ok(())
}
