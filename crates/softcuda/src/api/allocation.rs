//! Allocation, export and import of memory without an address.

use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::Arc;

use freehold_driver::cuda::{
    CUdevice, CUerror, CUmemAllocationGranularity_flags, CUmemAllocationHandleType, CUmemAllocationProp,
    CUmemAllocationType, CUmemGenericAllocationHandle, CUmemLocationType, CUresult,
};
use rustix::io::fcntl_dupfd_cloexec;

use crate::ffi::args::{HostAddress, In, Out, UntypedPtr};
use crate::memory::backing::{Backing, ShareHeader, ShareKind, with_fd_limit_raised};
use crate::memory::mapping::Allocation;
use crate::memory::page_heap::PAGE_BYTES;
use crate::objects::device::Device;
use crate::space::span::SpanKind;
use crate::state::driver_state::{DriverState, driver};

/// Returns the device for memory with these properties.
fn target_device<'w>(driver: &'w DriverState, prop: &CUmemAllocationProp) -> Result<&'w Arc<Device>, CUerror> {
    let foreign =
        [CUmemAllocationHandleType::WIN32, CUmemAllocationHandleType::WIN32_KMT, CUmemAllocationHandleType::FABRIC];
    if prop.kind != CUmemAllocationType::PINNED || prop.location.kind != CUmemLocationType::DEVICE {
        return Err(CUerror::INVALID_VALUE);
    }
    let is_foreign = foreign.iter().any(|kind| prop.requestedHandleTypes.0 & kind.0 != 0);
    if is_foreign || prop.compressionType > 1 {
        return Err(CUerror::NOT_SUPPORTED);
    }
    driver.space.device(CUdevice(prop.location.id))
}

pub(crate) fn cuMemCreate(
    allocation: Out<CUmemGenericAllocationHandle>,
    bytes: usize,
    prop: In<CUmemAllocationProp>,
    flags: u64,
) -> CUresult {
    let driver = driver()?;
    let (bytes, prop) = (bytes as u64, prop.0);
    if flags != 0 || bytes == 0 || !bytes.is_multiple_of(PAGE_BYTES) {
        return Err(CUerror::INVALID_VALUE);
    }
    let device = target_device(driver, &prop)?;
    if bytes > device.memory.bytes {
        return Err(CUerror::OUT_OF_MEMORY);
    }
    let create = || Backing::create(&device.memory.usage, bytes).map_err(|_| CUerror::OUT_OF_MEMORY);
    let memory = match create()? {
        Some(memory) => Some(memory),
        None => {
            device.trim_pools(|_| 0);
            create()?
        }
    };
    let memory = memory.ok_or(CUerror::OUT_OF_MEMORY)?;
    allocation.set(insert(driver, device.ordinal, prop, memory));
    Ok(())
}

fn insert(
    driver: &DriverState,
    device: usize,
    prop: CUmemAllocationProp,
    memory: Arc<Backing>,
) -> CUmemGenericAllocationHandle {
    let make = |handle| Arc::new(Allocation::new(handle as u64, device, prop, memory));
    let (handle, _) = driver.allocations.insert_with(make);
    CUmemGenericAllocationHandle(handle as u64)
}

pub(crate) fn cuMemRelease(allocation: CUmemGenericAllocationHandle) -> CUresult {
    let driver = driver()?;
    if driver.allocations.get(allocation.0 as usize)?.release()? {
        driver.allocations.remove(allocation.0 as usize);
    }
    Ok(())
}

pub(crate) fn cuMemGetAllocationGranularity(
    bytes: Out<usize>,
    prop: In<CUmemAllocationProp>,
    option: CUmemAllocationGranularity_flags,
) -> CUresult {
    driver()?;
    // The real driver checks neither the device nor the kind of memory.
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
    prop.set(driver()?.allocations.get(allocation.0 as usize)?.prop);
    Ok(())
}

pub(crate) fn cuMemRetainAllocationHandle(
    allocation: Out<CUmemGenericAllocationHandle>,
    start: HostAddress,
) -> CUresult {
    let driver = driver()?;
    let span = driver.space.find_span(start.0).ok_or(CUerror::INVALID_VALUE)?;
    let SpanKind::Mapped(mapping) = &span.kind else { return Err(CUerror::INVALID_VALUE) };
    let mapped = &mapping.allocation;
    let handle = if mapped.retain() {
        CUmemGenericAllocationHandle(mapped.handle)
    } else {
        // The program has released the last reference to the handle: the memory gets another.
        insert(driver, mapped.device, mapped.prop, Arc::clone(&mapped.memory))
    };
    allocation.set(handle);
    Ok(())
}

pub(crate) fn cuMemExportToShareableHandle(
    shareable: UntypedPtr,
    allocation: CUmemGenericAllocationHandle,
    kind: CUmemAllocationHandleType,
    flags: u64,
) -> CUresult {
    let driver = driver()?;
    let found = driver.allocations.get(allocation.0 as usize)?;
    let posix = CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR;
    if flags != 0 || kind != posix || found.prop.requestedHandleTypes.0 & posix.0 == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let index = driver.space.devices[found.device].index;
    let header = ShareHeader::new(ShareKind::Allocation, index, found.memory.bytes());
    found.memory.share(header).map_err(|_| CUerror::OPERATING_SYSTEM)?;
    export_fd(shareable, &found.memory)
}

/// Gives the program a descriptor of shared memory.
pub(super) fn export_fd(shareable: UntypedPtr, memory: &Backing) -> CUresult {
    let descriptor = memory.dup_fd().map_err(|_| CUerror::OPERATING_SYSTEM)?;
    shareable.set(-1i32)?;
    shareable.set(descriptor.into_raw_fd())
}

/// Opens the memory of a descriptor of the program, if it is shared memory of this kind.
pub(super) fn import_fd(shareable: HostAddress, kind: ShareKind) -> Result<(Arc<Backing>, ShareHeader), CUerror> {
    // The descriptor is passed as a pointer; its lower half counts.
    let number = shareable.0 as u32 as i32;
    if number < 0 {
        return Err(CUerror::UNKNOWN);
    }
    // SAFETY: the number is not -1. It is only duplicated, during this call; if the program has no such descriptor, the
    // kernel returns an error.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    let fd: OwnedFd = with_fd_limit_raised(|| fcntl_dupfd_cloexec(borrowed, 0)).map_err(|_| CUerror::UNKNOWN)?;
    let (memory, header) = Backing::import(fd).map_err(|_| CUerror::UNKNOWN)?;
    if !header.is_kind(kind) {
        return Err(CUerror::NOT_SUPPORTED);
    }
    Ok((Arc::new(memory), header))
}

pub(crate) fn cuMemImportFromShareableHandle(
    allocation: Out<CUmemGenericAllocationHandle>,
    shareable: HostAddress,
    kind: CUmemAllocationHandleType,
) -> CUresult {
    let driver = driver()?;
    match kind {
        CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR => {}
        CUmemAllocationHandleType::NONE => return Err(CUerror::INVALID_VALUE),
        _ => return Err(CUerror::NOT_SUPPORTED),
    }
    // Descriptor 0 is a null pointer.
    if shareable.0 == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let (memory, header) = import_fd(shareable, ShareKind::Allocation)?;
    let ordinal = driver.space.device_at_index(header.device)?.ordinal;
    // Imported memory cannot be exported again.
    let prop = CUmemAllocationProp::on_device(CUdevice(ordinal as i32), CUmemAllocationHandleType::NONE);
    allocation.set(insert(driver, ordinal, prop, memory));
    Ok(())
}
