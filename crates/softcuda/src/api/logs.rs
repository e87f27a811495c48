//! The error log: callbacks, and dumps to a file or to memory.

use std::ffi::c_char;
use std::path::Path;

use freehold_driver::cuda::{CUerror, CUlogIterator, CUlogsCallback, CUlogsCallbackHandle, CUresult};

use crate::base::handle_table::HandleKind;
use crate::ffi::args::{HostAddress, InOut, InStr, Out};
use crate::state::driver_state::driver;

pub(crate) fn cuLogsRegisterCallback(
    callback: CUlogsCallback,
    data: HostAddress,
    handle: Option<Out<CUlogsCallbackHandle>>,
) -> CUresult {
    let driver = driver()?;
    let number = driver.log.register(callback.ok_or(CUerror::INVALID_VALUE)?, data.0 as usize);
    if let Some(handle) = handle {
        handle.set(CUlogsCallbackHandle(driver.handle_range.space(HandleKind::LogsCallback).handle(number)));
    }
    Ok(())
}

pub(crate) fn cuLogsUnregisterCallback(handle: CUlogsCallbackHandle) -> CUresult {
    let driver = driver()?;
    let number = driver.handle_range.space(HandleKind::LogsCallback).index(handle.0);
    driver.log.unregister(number.ok_or(CUerror::INVALID_VALUE)?)
}

fn check_flags(flags: u32) -> CUresult {
    if flags == 0 { Ok(()) } else { Err(CUerror::INVALID_VALUE) }
}

pub(crate) fn cuLogsCurrent(iterator: Out<CUlogIterator>, _flags: u32) -> CUresult {
    // NVIDIA's driver accepts any flags here, unlike in the calls below.
    iterator.set(driver()?.log.next_index());
    Ok(())
}

pub(crate) fn cuLogsDumpToFile(iterator: Option<InOut<CUlogIterator>>, path: InStr, flags: u32) -> CUresult {
    let log = &driver()?.log;
    check_flags(flags)?;
    let lines = log.since(iterator.as_ref().map(InOut::read));
    log.write_to(Path::new(&path.0), &lines)?;
    if let Some(iterator) = iterator {
        iterator.set(lines.end);
    }
    Ok(())
}

pub(crate) fn cuLogsDumpToMemory(
    iterator: Option<InOut<CUlogIterator>>,
    text: Out<c_char>,
    bytes: InOut<usize>,
    flags: u32,
) -> CUresult {
    let log = &driver()?.log;
    check_flags(flags)?;
    let lines = log.since(iterator.as_ref().map(InOut::read));
    let dumped = match lines.newest_fitting(bytes.read()) {
        Ok(dumped) => dumped,
        Err(code) => {
            bytes.set(0);
            return Err(code);
        }
    };
    let characters: Vec<_> = dumped.bytes().chain([0]).map(|byte| byte as c_char).collect();
    text.set_slice(&characters);
    bytes.set(dumped.len());
    if let Some(iterator) = iterator {
        iterator.set(lines.end);
    }
    Ok(())
}
