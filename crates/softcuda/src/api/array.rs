//! Arrays: creation, descriptions, and copies of their rows. Copies of boxes are in `copy`.

use std::sync::Arc;

use freehold_driver::cuda::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR, CUarray, CUdeviceptr, CUerror, CUmipmappedArray, CUresult, CUstream,
};

use super::copy::{AddressRole, Call, Region, transfer};
use crate::engine::work::Extent;
use crate::ffi::args::{HostAddress, In, Out};
use crate::objects::array::{self, Array, ArrayBox, MipmappedArray};
use crate::objects::context::current;
use crate::space::span::SpanKind;
use crate::state::driver_state::{DriverState, driver};

/// The alignment of a level.
const LEVEL_BYTES: u64 = 512;

pub(crate) fn cuArrayCreate_v2(array: Out<CUarray>, descriptor: In<CUDA_ARRAY_DESCRIPTOR>) -> CUresult {
    let CUDA_ARRAY_DESCRIPTOR { Width, Height, Format, NumChannels } = descriptor.0;
    let descriptor = CUDA_ARRAY3D_DESCRIPTOR { Width, Height, Depth: 0, Format, NumChannels, Flags: 0 };
    cuArray3DCreate_v2(array, In(descriptor))
}

pub(crate) fn cuArray3DCreate_v2(array: Out<CUarray>, descriptor: In<CUDA_ARRAY3D_DESCRIPTOR>) -> CUresult {
    let (driver, context) = (driver()?, current()?);
    let descriptor = descriptor.0;
    let format = array::check(&descriptor)?;
    let mut texels = array::layout(&descriptor, format, 0);
    texels.start = driver.space.alloc(&context, array::bytes(&texels), SpanKind::Internal { from_malloc: false })?;
    let make = |handle| {
        let context = Arc::clone(&context);
        Arc::new(Array { handle: CUarray(handle), context, descriptor, format, texels, is_level: false })
    };
    array.set(driver.arrays.insert_with(make).1.handle);
    Ok(())
}

pub(crate) fn cuArrayGetDescriptor_v2(descriptor: Out<CUDA_ARRAY_DESCRIPTOR>, array: CUarray) -> CUresult {
    let CUDA_ARRAY3D_DESCRIPTOR { Width, Height, Format, NumChannels, .. } = driver()?.arrays.get(array.0)?.descriptor;
    descriptor.set(CUDA_ARRAY_DESCRIPTOR { Width, Height, Format, NumChannels });
    Ok(())
}

pub(crate) fn cuArray3DGetDescriptor_v2(descriptor: Out<CUDA_ARRAY3D_DESCRIPTOR>, array: CUarray) -> CUresult {
    descriptor.set(driver()?.arrays.get(array.0)?.descriptor);
    Ok(())
}

pub(crate) fn cuArrayDestroy(array: CUarray) -> CUresult {
    let driver = driver()?;
    if driver.arrays.get(array.0)?.is_level {
        return Err(CUerror::INVALID_VALUE);
    }
    let array = driver.arrays.remove(array.0).ok_or(CUerror::INVALID_HANDLE)?;
    array.context.synchronize(&driver.engine);
    driver.space.free_internal(array.texels.start);
    Ok(())
}

pub(crate) fn cuMipmappedArrayCreate(
    mipmap: Out<CUmipmappedArray>,
    descriptor: In<CUDA_ARRAY3D_DESCRIPTOR>,
    levels: u32,
) -> CUresult {
    let (driver, context) = (driver()?, current()?);
    let descriptor = descriptor.0;
    let format = array::check(&descriptor)?;
    let count = levels.clamp(1, array::levels_max(&descriptor));
    let mut bytes = 0;
    let mut layouts = Vec::new();
    for level in 0..count {
        let described = array::level(&descriptor, level);
        let texels = array::layout(&described, format, bytes);
        bytes += array::bytes(&texels).next_multiple_of(LEVEL_BYTES);
        layouts.push((described, texels));
    }
    let start = driver.space.alloc(&context, bytes, SpanKind::Internal { from_malloc: false })?;
    let levels = layouts.into_iter().map(|(descriptor, mut texels)| {
        texels.start += start;
        let make = |handle| {
            let context = Arc::clone(&context);
            Arc::new(Array { handle: CUarray(handle), context, descriptor, format, texels, is_level: true })
        };
        driver.arrays.insert_with(make).1
    });
    let levels = levels.collect();
    let make = |handle| Arc::new(MipmappedArray { handle: CUmipmappedArray(handle), context, start, levels });
    mipmap.set(driver.mipmaps.insert_with(make).1.handle);
    Ok(())
}

pub(crate) fn cuMipmappedArrayGetLevel(array: Out<CUarray>, mipmap: CUmipmappedArray, level: u32) -> CUresult {
    let mipmap = driver()?.mipmaps.get(mipmap.0)?;
    array.set(mipmap.levels.get(level as usize).ok_or(CUerror::INVALID_VALUE)?.handle);
    Ok(())
}

pub(crate) fn cuMipmappedArrayDestroy(mipmap: CUmipmappedArray) -> CUresult {
    let driver = driver()?;
    let mipmap = driver.mipmaps.remove(mipmap.0).ok_or(CUerror::INVALID_HANDLE)?;
    mipmap.context.synchronize(&driver.engine);
    for level in &mipmap.levels {
        driver.arrays.remove(level.handle.0);
    }
    driver.space.free_internal(mipmap.start);
    Ok(())
}

/// Returns bytes of the first row of an array.
fn row(driver: &DriverState, array: CUarray, offset: usize, bytes: usize) -> Result<Region, CUerror> {
    let size = [bytes as u64, 1, 1];
    Region::of_array(driver.arrays.get(array.0)?, ArrayBox { at: [offset as u64, 0, 0], size })
}

fn copy_row(from: Region, to: Region, bytes: usize, stream: Option<CUstream>) -> CUresult {
    let call = if stream.is_some() { Call::Async } else { Call::Sync };
    transfer(from, to, Extent::linear(bytes as u64), stream.unwrap_or(CUstream::NULL), call)
}

pub(crate) fn cuMemcpyDtoA_v2(to: CUarray, to_offset: usize, from: CUdeviceptr, bytes: usize) -> CUresult {
    copy_row(Region::linear(AddressRole::Device, from.0), row(driver()?, to, to_offset, bytes)?, bytes, None)
}

pub(crate) fn cuMemcpyAtoD_v2(to: CUdeviceptr, from: CUarray, from_offset: usize, bytes: usize) -> CUresult {
    copy_row(row(driver()?, from, from_offset, bytes)?, Region::linear(AddressRole::Device, to.0), bytes, None)
}

pub(crate) fn cuMemcpyHtoA_v2(to: CUarray, to_offset: usize, from: HostAddress, bytes: usize) -> CUresult {
    copy_row(Region::linear(AddressRole::Any, from.0), row(driver()?, to, to_offset, bytes)?, bytes, None)
}

pub(crate) fn cuMemcpyHtoAAsync_v2(
    to: CUarray,
    to_offset: usize,
    from: HostAddress,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    copy_row(Region::linear(AddressRole::Any, from.0), row(driver()?, to, to_offset, bytes)?, bytes, Some(stream))
}

pub(crate) fn cuMemcpyAtoH_v2(to: HostAddress, from: CUarray, from_offset: usize, bytes: usize) -> CUresult {
    copy_row(row(driver()?, from, from_offset, bytes)?, Region::linear(AddressRole::Any, to.0), bytes, None)
}

pub(crate) fn cuMemcpyAtoHAsync_v2(
    to: HostAddress,
    from: CUarray,
    from_offset: usize,
    bytes: usize,
    stream: CUstream,
) -> CUresult {
    copy_row(row(driver()?, from, from_offset, bytes)?, Region::linear(AddressRole::Any, to.0), bytes, Some(stream))
}

pub(crate) fn cuMemcpyAtoA_v2(
    to: CUarray,
    to_offset: usize,
    from: CUarray,
    from_offset: usize,
    bytes: usize,
) -> CUresult {
    let driver = driver()?;
    copy_row(row(driver, from, from_offset, bytes)?, row(driver, to, to_offset, bytes)?, bytes, None)
}
