//! Host tasks: functions of the program that access device memory in stream order, as kernels do.

use std::ffi::{CStr, c_char, c_void};

use freehold_check::Effect;
use freehold_driver::cuda::extension::{HOST_READ, HOST_WRITE, HostAccess, HostTask};
use freehold_driver::cuda::{CUerror, CUmemAccess_flags, CUresult, CUstream, Function};

use super::dispatch::{catch_panic, dispatch};
use crate::base::check;
use crate::engine::work::{HostCall, HostFunction, TaskAccess, Work};
use crate::memory::mem_ref::MemRef;
use crate::objects::operation::Operation;
use crate::state::driver_state::{DriverState, driver};

/// Maximum number of ranges that one task lists.
const ACCESSES_MAX: usize = 1 << 16;

pub(super) unsafe extern "C" fn launch(
    stream: CUstream,
    name: *const c_char,
    task: HostTask,
    data: *mut c_void,
    accesses: *const HostAccess,
    count: usize,
) -> CUresult {
    dispatch(Function::cuLaunchHostFunc, || {
        if name.is_null() || count > ACCESSES_MAX {
            return Err(CUerror::INVALID_VALUE);
        }
        // SAFETY: the caller guarantees that the name ends with a zero byte and is never freed.
        let name: &'static CStr = unsafe { CStr::from_ptr(name) };
        check::enter(name.to_str().map_err(|_| CUerror::INVALID_VALUE)?);
        let driver = driver()?;
        let stream_ref = driver.stream_ref(stream)?;
        let device = stream_ref.context.device.ordinal;
        let access = |index| {
            let at = accesses.wrapping_add(index);
            // SAFETY: the caller guarantees `count` accesses.
            unsafe { at.read() }
        };
        let noted = (0..count).map(|index| task_accesses(driver, device, access(index)));
        let noted = noted.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
        let call = HostCall::task(HostFunction::Function(task), data as usize, noted);
        stream_ref.submit(Work::HostCall(call), |work| match work {
            Work::HostCall(call) => Operation::Host(call),
            _ => unreachable!("the work was just made"),
        })
    })
}

pub(super) unsafe extern "C" fn view(start: u64, bytes: u64, view: *mut *mut c_void) -> CUresult {
    catch_panic(|| {
        let driver = driver()?;
        let span = driver.space.find_span(start).ok_or(CUerror::INVALID_VALUE)?;
        let mem = resolve(driver, span.device, start, bytes, CUmemAccess_flags::PROT_READ)?;
        // SAFETY: the caller guarantees that `view` is good for one value.
        unsafe { view.write(mem.pointer()) };
        Ok(())
    })
}

/// Returns what the checker is told of a range, and keeps its memory alive.
fn task_accesses(driver: &DriverState, device: usize, access: HostAccess) -> Result<Vec<TaskAccess>, CUerror> {
    let HostAccess { start, bytes, kind, .. } = access;
    let (is_read, is_write) = (kind & HOST_READ != 0, kind & HOST_WRITE != 0);
    if kind & !(HOST_READ | HOST_WRITE) != 0 || !(is_read || is_write) {
        return Err(CUerror::INVALID_VALUE);
    }
    if bytes == 0 {
        return Ok(Vec::new());
    }
    let rights = if is_write { CUmemAccess_flags::PROT_READWRITE } else { CUmemAccess_flags::PROT_READ };
    let mem = resolve(driver, device, start, bytes, rights)?;
    let effects = [(is_read, Effect::Read), (is_write, Effect::Write)];
    let noted = effects.into_iter().filter(|(is_so, _)| *is_so);
    Ok(noted.map(|(_, effect)| TaskAccess { mem: mem.clone(), bytes, effect }).collect())
}

fn resolve(
    driver: &DriverState,
    device: usize,
    start: u64,
    bytes: u64,
    rights: CUmemAccess_flags,
) -> Result<MemRef, CUerror> {
    let last = start.checked_add(bytes.saturating_sub(1)).ok_or(CUerror::INVALID_VALUE)?;
    let (_, mem) = driver.space.resolve(start, last, device, rights)?.ok_or(CUerror::INVALID_VALUE)?;
    Ok(mem)
}
