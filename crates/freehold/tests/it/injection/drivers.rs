//! The driver that scenarios run on, and checks that bypass the library: how much memory is free, which context is
//! current. Its table remembers the contexts and the memory that it created, and can lack stream words or mappings.

use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use freehold_driver::cuda::{
    Api, CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUerror, CUmemAllocationHandleType, CUmemAllocationProp,
    CUmemGenericAllocationHandle, CUresult, CUstream, address, allocation, context, mapping, memory, primary,
};

use crate::shared;

/// One test at a time: they look at the memory of all of the device.
static TURN: Mutex<()> = Mutex::new(());

/// The driver itself, for the functions of the tables below.
static PLAIN: OnceLock<Api> = OnceLock::new();

/// The contexts that were created through a table of these and not destroyed.
static CREATED: Mutex<Vec<CUcontext>> = Mutex::new(Vec::new());

/// Addresses, memory and mappings that were made through a table of these and not given back: no context takes them along.
static MADE: Mutex<Made> = Mutex::new(Made { addresses: Vec::new(), memory: Vec::new(), mappings: Vec::new() });

struct Made {
    addresses: Vec<(CUdeviceptr, usize)>,
    memory: Vec<CUmemGenericAllocationHandle>,
    mappings: Vec<(CUdeviceptr, usize)>,
}

pub(crate) struct Machine {
    plain: Api,
    api: Api,
    pub(crate) ordinal: CUdevice,
    primary: Mutex<CUcontext>,
    _turn: MutexGuard<'static, ()>,
}

impl Machine {
    pub(crate) fn open() -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        shared::move_in();
        let opened = crate::own::opened();
        let plain = *PLAIN.get_or_init(|| opened.api);
        let primary = Mutex::new(primary::retain(&plain, opened.device).unwrap());
        let api = Api {
            cuCtxCreate_v2: create,
            cuCtxDestroy_v2: destroy,
            cuMemAddressReserve: reserve,
            cuMemAddressFree: free_addresses,
            cuMemCreate: create_memory,
            cuMemRelease: release_memory,
            cuMemImportFromShareableHandle: import_memory,
            cuMemMap: map,
            cuMemUnmap: unmap,
            ..plain
        };
        Self { plain, api, ordinal: opened.device, primary, _turn: turn }
    }

    pub(crate) fn without_words() -> Self {
        let mut machine = Self::open();
        machine.api = Api { cuDeviceGetAttribute: attribute, cuStreamWriteValue64_v2: write, ..machine.api };
        machine
    }

    pub(crate) fn without_mapping() -> Self {
        let mut machine = Self::open();
        machine.api = Api { cuDeviceGetAttribute: attribute_of_mapping, ..machine.api };
        machine
    }

    /// The table for scenarios.
    pub(crate) fn api(&self) -> &Api {
        &self.api
    }

    /// What the driver has free.
    pub(crate) fn free_bytes(&self) -> usize {
        context::push_current(&self.plain, *self.primary.lock().unwrap()).unwrap();
        let info = memory::info(&self.plain).unwrap();
        context::pop_current(&self.plain).unwrap();
        info.free_bytes
    }

    /// The addresses that were reserved and not given back, and the mappings there.
    pub(crate) fn left(&self) -> (usize, usize) {
        let made = made();
        (made.addresses.len(), made.mappings.len())
    }

    /// The context that is current in this thread.
    pub(crate) fn current(&self) -> CUcontext {
        context::current(&self.plain).unwrap()
    }

    /// Calls `act` in a thread that has a context of its own.
    pub(crate) fn with_context(&self, act: impl FnOnce()) {
        let own = context::create(&self.plain, self.ordinal, 0).unwrap();
        act();
        assert_eq!(context::pop_current(&self.plain).unwrap(), own);
        context::destroy(&self.plain, own).unwrap();
    }

    /// Ends all that scenarios left in the driver.
    pub(crate) fn forget_everything(&self) {
        while context::pop_current(&self.plain).is_ok() {}
        let left = std::mem::take(&mut *created());
        // Work of one context may use memory of another.
        for &context in left.iter().chain([&*self.primary.lock().unwrap()]) {
            context::push_current(&self.plain, context).unwrap();
            context::synchronize(&self.plain).unwrap();
            context::pop_current(&self.plain).unwrap();
        }
        for context in left {
            context::destroy(&self.plain, context).unwrap();
        }
        let made = &mut *made();
        made.mappings.drain(..).for_each(|(start, bytes)| mapping::unmap(&self.plain, start, bytes).unwrap());
        made.memory.drain(..).for_each(|handle| allocation::release(&self.plain, handle).unwrap());
        made.addresses.drain(..).for_each(|(start, bytes)| address::free(&self.plain, start, bytes).unwrap());
        primary::reset(&self.plain, self.ordinal).unwrap();
        *self.primary.lock().unwrap() = primary::retain(&self.plain, self.ordinal).unwrap();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            primary::release(&self.plain, self.ordinal).unwrap();
        }
    }
}

fn created() -> MutexGuard<'static, Vec<CUcontext>> {
    CREATED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn plain() -> &'static Api {
    PLAIN.get().expect("a table is made of a driver that was opened")
}

unsafe extern "C" fn create(to: *mut CUcontext, flags: u32, device: CUdevice) -> CUresult {
    // SAFETY: the caller's arguments are handed on as they are.
    unsafe { (plain().cuCtxCreate_v2)(to, flags, device) }?;
    // SAFETY: the driver wrote a handle there.
    created().push(unsafe { *to });
    Ok(())
}

unsafe extern "C" fn destroy(context: CUcontext) -> CUresult {
    // SAFETY: as above.
    unsafe { (plain().cuCtxDestroy_v2)(context) }?;
    created().retain(|&other| other != context);
    Ok(())
}

fn made() -> MutexGuard<'static, Made> {
    MADE.lock().unwrap_or_else(PoisonError::into_inner)
}

unsafe extern "C" fn reserve(
    to: *mut CUdeviceptr,
    bytes: usize,
    alignment: usize,
    hint: CUdeviceptr,
    flags: u64,
) -> CUresult {
    // SAFETY: the caller's arguments are handed on as they are.
    unsafe { (plain().cuMemAddressReserve)(to, bytes, alignment, hint, flags) }?;
    // SAFETY: the driver wrote an address there.
    made().addresses.push((unsafe { *to }, bytes));
    Ok(())
}

unsafe extern "C" fn free_addresses(start: CUdeviceptr, bytes: usize) -> CUresult {
    // SAFETY: as above.
    unsafe { (plain().cuMemAddressFree)(start, bytes) }?;
    made().addresses.retain(|&(other, _)| other != start);
    Ok(())
}

unsafe extern "C" fn create_memory(
    to: *mut CUmemGenericAllocationHandle,
    bytes: usize,
    prop: *const CUmemAllocationProp,
    flags: u64,
) -> CUresult {
    // SAFETY: as above.
    unsafe { (plain().cuMemCreate)(to, bytes, prop, flags) }?;
    // SAFETY: the driver wrote a handle there.
    made().memory.push(unsafe { *to });
    Ok(())
}

unsafe extern "C" fn import_memory(
    to: *mut CUmemGenericAllocationHandle,
    shareable: *mut c_void,
    kind: CUmemAllocationHandleType,
) -> CUresult {
    // SAFETY: as above.
    unsafe { (plain().cuMemImportFromShareableHandle)(to, shareable, kind) }?;
    // SAFETY: the driver wrote a handle there.
    made().memory.push(unsafe { *to });
    Ok(())
}

unsafe extern "C" fn release_memory(handle: CUmemGenericAllocationHandle) -> CUresult {
    // SAFETY: as above.
    unsafe { (plain().cuMemRelease)(handle) }?;
    made().memory.retain(|&other| other != handle);
    Ok(())
}

unsafe extern "C" fn map(
    start: CUdeviceptr,
    bytes: usize,
    offset: usize,
    handle: CUmemGenericAllocationHandle,
    flags: u64,
) -> CUresult {
    // SAFETY: as above.
    unsafe { (plain().cuMemMap)(start, bytes, offset, handle, flags) }?;
    made().mappings.push((start, bytes));
    Ok(())
}

unsafe extern "C" fn unmap(start: CUdeviceptr, bytes: usize) -> CUresult {
    // SAFETY: as above.
    unsafe { (plain().cuMemUnmap)(start, bytes) }?;
    made().mappings.retain(|&(other, _)| other.0 < start.0 || other.0 >= start.0 + bytes as u64);
    Ok(())
}

unsafe extern "C" fn attribute(to: *mut i32, attribute: CUdevice_attribute, device: CUdevice) -> CUresult {
    // SAFETY: as above.
    unsafe { (plain().cuDeviceGetAttribute)(to, attribute, device) }?;
    if attribute == CUdevice_attribute::CAN_USE_64_BIT_STREAM_MEM_OPS {
        // SAFETY: the driver wrote a number there.
        unsafe { *to = 0 };
    }
    Ok(())
}

unsafe extern "C" fn attribute_of_mapping(to: *mut i32, attribute: CUdevice_attribute, device: CUdevice) -> CUresult {
    // SAFETY: as above.
    unsafe { (plain().cuDeviceGetAttribute)(to, attribute, device) }?;
    if attribute == CUdevice_attribute::VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED {
        // SAFETY: the driver wrote a number there.
        unsafe { *to = 0 };
    }
    Ok(())
}

unsafe extern "C" fn write(_: CUstream, _: CUdeviceptr, _: u64, _: u32) -> CUresult {
    Err(CUerror::NOT_SUPPORTED)
}
