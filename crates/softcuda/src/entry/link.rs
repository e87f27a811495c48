//! Links.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Instant;

use freehold_driver::cuda::{CUerror, CUjit_option, CUjitInputType, CUlinkState, CUresult};

use super::module::file_bytes;
use crate::boundary::{HostAddress, List, Out, Text, Words};
use crate::context::current;
use crate::image::is_binary;
use crate::jit::Options;
use crate::link::Link;
use crate::memory::place::Place;
use crate::world::{World, world};

/// An input that says it is longer is none.
const INPUT_BYTES_MAX: usize = 1 << 30;

pub(crate) fn cuLinkCreate_v2(
    count: u32,
    options: List<CUjit_option>,
    values: Words,
    link: Out<CUlinkState>,
) -> CUresult {
    let world = world()?;
    current()?;
    let options = Options::read(count, &options, values)?;
    let (handle, _) = world.links.insert_with(|_| Arc::new(Link::new(options)));
    link.set(CUlinkState(handle));
    Ok(())
}

fn find(world: &World, link: CUlinkState) -> Result<Arc<Link>, CUerror> {
    world.links.find(link.0).ok_or(CUerror::INVALID_HANDLE)
}

#[expect(clippy::too_many_arguments, reason = "as many as C has")]
pub(crate) fn cuLinkAddData_v2(
    link: CUlinkState,
    kind: CUjitInputType,
    data: HostAddress,
    bytes: usize,
    _name: Option<Text>,
    count: u32,
    options: List<CUjit_option>,
    values: Words,
) -> CUresult {
    let link = find(world()?, link)?;
    if data.0 == 0 || bytes == 0 || bytes > INPUT_BYTES_MAX {
        return Err(CUerror::INVALID_VALUE);
    }
    let mut input = vec![0; bytes];
    Place::program(data.0).read(0, &mut input).map_err(|_| CUerror::INVALID_IMAGE)?;
    add(&link, kind, &input, count, &options, values)
}

pub(crate) fn cuLinkAddFile_v2(
    link: CUlinkState,
    kind: CUjitInputType,
    path: Text,
    count: u32,
    options: List<CUjit_option>,
    values: Words,
) -> CUresult {
    let link = find(world()?, link)?;
    let input = file_bytes(&path)?;
    add(&link, kind, &input, count, &options, values)
}

fn add(
    link: &Link,
    kind: CUjitInputType,
    input: &[u8],
    count: u32,
    options: &List<CUjit_option>,
    values: Words,
) -> CUresult {
    let start = Instant::now();
    Options::read(count, options, values)?;
    match kind {
        CUjitInputType::CUBIN if !is_binary(input) => Err(CUerror::INVALID_IMAGE),
        CUjitInputType::PTX | CUjitInputType::CUBIN | CUjitInputType::FATBINARY => {
            link.options.finish(link.add(input), start.elapsed())
        }
        CUjitInputType::OBJECT | CUjitInputType::LIBRARY => Err(CUerror::UNKNOWN),
        CUjitInputType::NVVM => Err(CUerror::INVALID_IMAGE),
        _ => Err(CUerror::INVALID_VALUE),
    }
}

pub(crate) fn cuLinkComplete(link: CUlinkState, image: Out<*mut c_void>, bytes: Option<Out<usize>>) -> CUresult {
    let link = find(world()?, link)?;
    let start = Instant::now();
    let (address, length) = link.options.finish(link.complete(), start.elapsed())?;
    image.set(address as *mut c_void);
    if let Some(bytes) = bytes {
        bytes.set(length);
    }
    Ok(())
}

pub(crate) fn cuLinkDestroy(link: CUlinkState) -> CUresult {
    world()?.links.remove(link.0).map(|_| ()).ok_or(CUerror::INVALID_HANDLE)
}
