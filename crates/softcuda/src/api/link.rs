//! Links: creating one, adding inputs, and completing it.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Instant;

use freehold_driver::cuda::{CUerror, CUjit_option, CUjitInputType, CUlinkState, CUresult};

use super::module::file_bytes;
use crate::ffi::args::{HostAddress, InArray, InStr, Out, WordArray};
use crate::memory::mem_ref::MemRef;
use crate::modules::image::is_binary;
use crate::modules::jit::JitOptions;
use crate::modules::link::Link;
use crate::objects::context::current;
use crate::state::driver_state::driver;

/// An input that declares a greater length is invalid.
const INPUT_BYTES_MAX: usize = 1 << 30;

pub(crate) fn cuLinkCreate_v2(
    count: u32,
    options: InArray<CUjit_option>,
    values: WordArray,
    link: Out<CUlinkState>,
) -> CUresult {
    let driver = driver()?;
    current()?;
    let options = JitOptions::read(count, &options, values)?;
    let (handle, _) = driver.links.insert_with(|_| Arc::new(Link::new(options)));
    link.set(CUlinkState(handle));
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "as many as C has")]
pub(crate) fn cuLinkAddData_v2(
    link: CUlinkState,
    kind: CUjitInputType,
    data: HostAddress,
    bytes: usize,
    _name: Option<InStr>,
    count: u32,
    options: InArray<CUjit_option>,
    values: WordArray,
) -> CUresult {
    let link = driver()?.links.get(link.0)?;
    if data.0 == 0 || bytes == 0 || bytes > INPUT_BYTES_MAX {
        return Err(CUerror::INVALID_VALUE);
    }
    let mut input = vec![0; bytes];
    MemRef::host(data.0).read(0, &mut input).map_err(|_| CUerror::INVALID_IMAGE)?;
    add(&link, kind, &input, count, &options, values)
}

pub(crate) fn cuLinkAddFile_v2(
    link: CUlinkState,
    kind: CUjitInputType,
    path: InStr,
    count: u32,
    options: InArray<CUjit_option>,
    values: WordArray,
) -> CUresult {
    let link = driver()?.links.get(link.0)?;
    let input = file_bytes(&path)?;
    add(&link, kind, &input, count, &options, values)
}

fn add(
    link: &Link,
    kind: CUjitInputType,
    input: &[u8],
    count: u32,
    options: &InArray<CUjit_option>,
    values: WordArray,
) -> CUresult {
    let start = Instant::now();
    JitOptions::read(count, options, values)?;
    match kind {
        CUjitInputType::CUBIN if !is_binary(input) => Err(CUerror::INVALID_IMAGE),
        CUjitInputType::PTX | CUjitInputType::CUBIN | CUjitInputType::FATBINARY => {
            link.options.write_logs(link.add(input), start.elapsed())
        }
        CUjitInputType::OBJECT | CUjitInputType::LIBRARY => Err(CUerror::UNKNOWN),
        CUjitInputType::NVVM => Err(CUerror::INVALID_IMAGE),
        _ => Err(CUerror::INVALID_VALUE),
    }
}

pub(crate) fn cuLinkComplete(link: CUlinkState, image: Out<*mut c_void>, bytes: Option<Out<usize>>) -> CUresult {
    let link = driver()?.links.get(link.0)?;
    let start = Instant::now();
    let (address, length) = link.options.write_logs(link.complete(), start.elapsed())?;
    image.set(address as *mut c_void);
    if let Some(bytes) = bytes {
        bytes.set(length);
    }
    Ok(())
}

pub(crate) fn cuLinkDestroy(link: CUlinkState) -> CUresult {
    driver()?.links.remove(link.0).map(|_| ()).ok_or(CUerror::INVALID_HANDLE)
}
