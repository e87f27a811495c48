//! The software driver's extension of the CUDA API, as `freehold_driver::cuda::extension` specifies it.

use std::ffi::c_void;

use freehold_driver::cuda::extension::{
    DeviceReport, Entry, FaultReport, FindBlock, ReadArgument, ShortText, Table, VERSION,
};
use freehold_driver::cuda::{CUerror, CUresult};
use freehold_ptx::{Fault, FaultKind};

use super::announce;
use super::dispatch::catch_panic;
use super::host_task;
use crate::base::config::Config;
use crate::memory::usage_file::UsageFile;
use crate::objects::attributes;
use crate::space::block_lookup::set_read_only;
use crate::state::driver_state::{driver, is_forked};

/// Maximum number of arguments in a call, more than a launch can have.
const ARGUMENTS_MAX: usize = 8192;

static TABLE: Table = Table {
    describe,
    forget,
    read_only,
    fault,
    device,
    is_checked,
    handed_out,
    freed,
    resized,
    launch_host: host_task::launch,
    host_view: host_task::view,
};

/// Returns the address that `cuGetProcAddress` reports for the extension.
pub(crate) fn address() -> usize {
    let entry: Entry = entry;
    entry as usize
}

unsafe extern "C" fn entry(version: u32) -> *const Table {
    if version == VERSION { &raw const TABLE } else { std::ptr::null() }
}

unsafe extern "C" fn describe(
    start: u64,
    bytes: u64,
    find: FindBlock,
    data: *mut c_void,
    number: *mut u64,
) -> CUresult {
    catch_panic(|| {
        let found = driver()?.block_lookup.register(start, bytes, find, data as usize)?;
        // SAFETY: the caller guarantees that `number` is good for one value.
        unsafe { number.write(found) };
        Ok(())
    })
}

unsafe extern "C" fn forget(number: u64) -> CUresult {
    // In the child of a fork there are no look-ups, and the lock may be held forever.
    if is_forked() { Ok(()) } else { catch_panic(|| driver()?.block_lookup.unregister(number)) }
}

unsafe extern "C" fn read_only(arguments: *const ReadArgument, count: usize) -> CUresult {
    catch_panic(|| {
        if count > ARGUMENTS_MAX {
            return Err(CUerror::INVALID_VALUE);
        }
        let argument = |index| {
            let at = arguments.wrapping_add(index);
            // SAFETY: the caller guarantees `count` arguments.
            unsafe { at.read() }
        };
        set_read_only((0..count).map(argument).collect());
        Ok(())
    })
}

unsafe extern "C" fn fault(report: *mut FaultReport) -> CUresult {
    catch_panic(|| {
        let fault = driver()?.log.first_fault().ok_or(CUerror::NOT_FOUND)?;
        // SAFETY: the caller guarantees that `report` is good for one value.
        unsafe { report.write(report_of(fault)) };
        Ok(())
    })
}

unsafe extern "C" fn device(index: u32, report: *mut DeviceReport) -> CUresult {
    catch_panic(|| {
        let config = Config::from_env().map_err(|_| CUerror::INVALID_VALUE)?;
        let index = index as usize;
        if index >= config.devices {
            return Err(CUerror::INVALID_DEVICE);
        }
        let capability = config.compute_capability as i32;
        let found = DeviceReport {
            name: ShortText::new(&attributes::name(index)),
            bus_id: ShortText::new(&attributes::bus_id(index)),
            uuid: attributes::uuid(index),
            total_bytes: config.memory_bytes,
            free_bytes: free_bytes(&config, index)?,
            major: capability / 10,
            minor: capability % 10,
        };
        // SAFETY: the caller guarantees that `report` is good for one value.
        unsafe { report.write(found) };
        Ok(())
    })
}

unsafe extern "C" fn is_checked() -> u32 {
    announce::is_on().into()
}

unsafe extern "C" fn handed_out(address: u64, bytes: u64) {
    announce::handed_out(address, bytes);
}

unsafe extern "C" fn freed(address: u64) {
    announce::freed(address);
}

unsafe extern "C" fn resized(address: u64, bytes: u64) {
    announce::resized(address, bytes);
}

/// Returns the memory of a device that no process uses. A device that this process has not opened is opened for the
/// question alone.
fn free_bytes(config: &Config, index: usize) -> Result<u64, CUerror> {
    let opened =
        driver().ok().filter(|_| !is_forked()).and_then(|driver| driver.space.device_at_index(index as u32).ok());
    if let Some(device) = opened {
        return device.free_bytes();
    }
    let ask = || {
        let usage = UsageFile::open(&config.machine, index, config.memory_bytes)?;
        let free = usage.free_bytes()?;
        usage.close()?;
        Ok::<_, std::io::Error>(free)
    };
    ask().map_err(|_| CUerror::OPERATING_SYSTEM)
}

fn report_of(fault: &Fault) -> FaultReport {
    let address = match fault.kind {
        FaultKind::Address { address, .. }
        | FaultKind::Misaligned { address, .. }
        | FaultKind::Space { address }
        | FaultKind::Call { address } => Some(address),
        _ => None,
    };
    FaultReport {
        kernel: ShortText::new(&fault.kernel),
        message: ShortText::new(&fault.to_string()),
        address: address.unwrap_or(0),
        has_address: address.is_some().into(),
        line: fault.line,
        block: fault.block,
        thread: fault.thread,
    }
}
