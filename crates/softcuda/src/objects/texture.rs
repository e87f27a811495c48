//! Textures and surfaces: their descriptions, and how kernels access them.

use std::sync::Arc;

use freehold_driver::cuda::{
    CUDA_RESOURCE_DESC, CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC, CUaddress_mode, CUarray_format, CUerror,
    CUfilter_mode, ResourceMemory, texture_flags,
};
use freehold_ptx::{AddressMode, Filter, Format, ReadMode, Sampling, Surface, Texels, Texture};

use super::array::format_of;

/// What the handle of a texture names.
#[derive(Debug)]
pub(crate) struct TextureObject {
    /// The context that it belongs to.
    pub(crate) context_id: u64,
    pub(crate) resource: CUDA_RESOURCE_DESC,
    pub(crate) sampling: CUDA_TEXTURE_DESC,
    pub(crate) view: Option<CUDA_RESOURCE_VIEW_DESC>,
    pub(crate) texture: Arc<Texture>,
}

/// What the handle of a surface names.
#[derive(Debug)]
pub(crate) struct SurfaceObject {
    /// The context that it belongs to.
    pub(crate) context_id: u64,
    pub(crate) resource: CUDA_RESOURCE_DESC,
    pub(crate) surface: Arc<Surface>,
}

/// The alignment of a texture's memory.
const START_BYTES: u64 = 512;
/// The alignment of the distance between its rows.
const PITCH_BYTES: usize = 32;
/// The largest number of elements of linear memory.
const ELEMENTS_MAX: usize = 1 << 28;

/// Returns how a texture of a format is sampled.
pub(crate) fn sampling(desc: &CUDA_TEXTURE_DESC, format: Format) -> Result<Sampling, CUerror> {
    let mode = |mode: CUaddress_mode| match mode {
        CUaddress_mode::WRAP => Ok(AddressMode::Wrap),
        CUaddress_mode::CLAMP => Ok(AddressMode::Clamp),
        CUaddress_mode::MIRROR => Ok(AddressMode::Mirror),
        CUaddress_mode::BORDER => Ok(AddressMode::Border),
        _ => Err(CUerror::INVALID_VALUE),
    };
    let filter = |filter: CUfilter_mode| match filter {
        CUfilter_mode::POINT => Ok(Filter::Point),
        CUfilter_mode::LINEAR => Ok(Filter::Linear),
        _ => Err(CUerror::INVALID_VALUE),
    };
    let known = texture_flags::READ_AS_INTEGER
        | texture_flags::NORMALIZED_COORDINATES
        | texture_flags::SRGB
        | texture_flags::DISABLE_TRILINEAR_OPTIMIZATION
        | texture_flags::SEAMLESS_CUBEMAP;
    if desc.flags & !known != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    if desc.flags & texture_flags::SRGB != 0 {
        return Err(CUerror::NOT_SUPPORTED);
    }
    let is_integer = desc.flags & texture_flags::READ_AS_INTEGER != 0;
    let read = if is_integer { ReadMode::Element } else { ReadMode::Fraction };
    let sampling = Sampling {
        address: [mode(desc.addressMode[0])?, mode(desc.addressMode[1])?, mode(desc.addressMode[2])?],
        filter: filter(desc.filterMode)?,
        level_filter: filter(desc.mipmapFilterMode)?,
        read,
        is_normalized: desc.flags & texture_flags::NORMALIZED_COORDINATES != 0,
        is_seamless: desc.flags & texture_flags::SEAMLESS_CUBEMAP != 0,
        border: desc.borderColor,
        level_bias: desc.mipmapLevelBias,
        level_min: desc.minMipmapLevelClamp,
        level_max: desc.maxMipmapLevelClamp,
    };
    // Integers are not filtered.
    if sampling.filter == Filter::Linear && !format.returns_float(read) {
        return Err(CUerror::INVALID_VALUE);
    }
    Ok(sampling)
}

/// Returns linear memory as a row of texels.
pub(crate) fn linear(memory: &ResourceMemory) -> Result<(Format, Texels), CUerror> {
    let format = format_of(memory.format, memory.channels)?;
    let elements = memory.width / format.bytes() as usize;
    if !is_aligned(memory) || elements == 0 || elements > ELEMENTS_MAX {
        return Err(CUerror::INVALID_VALUE);
    }
    let bytes = memory.width as u64;
    let texels = Texels {
        start: memory.start.0,
        width: elements as u32,
        height: 1,
        depth: 1,
        row_bytes: bytes,
        slice_bytes: bytes,
    };
    Ok((format, texels))
}

/// Returns rows with a pitch as texels.
pub(crate) fn pitched(memory: &ResourceMemory) -> Result<(Format, Texels), CUerror> {
    let format = format_of(memory.format, memory.channels)?;
    let (width, height) = (memory.width, memory.height);
    let is_sized = width <= 131_072 && height <= 65000;
    if !is_aligned(memory) || !is_sized || !memory.pitch_bytes.is_multiple_of(PITCH_BYTES) {
        return Err(CUerror::INVALID_VALUE);
    }
    let pitch = memory.pitch_bytes as u64;
    let texels = Texels {
        start: memory.start.0,
        width: width.max(1) as u32,
        height: height.max(1) as u32,
        depth: 1,
        row_bytes: pitch,
        slice_bytes: pitch * height as u64,
    };
    Ok((format, texels))
}

fn is_aligned(memory: &ResourceMemory) -> bool {
    memory.start.0 != 0 && memory.start.0.is_multiple_of(START_BYTES)
}

/// Returns the format of a view; that of the array if it names none.
pub(crate) fn view_format(number: u32, array: Format) -> Result<Format, CUerror> {
    const KINDS: [CUarray_format; 8] = [
        CUarray_format::UNSIGNED_INT8,
        CUarray_format::SIGNED_INT8,
        CUarray_format::UNSIGNED_INT16,
        CUarray_format::SIGNED_INT16,
        CUarray_format::UNSIGNED_INT32,
        CUarray_format::SIGNED_INT32,
        CUarray_format::HALF,
        CUarray_format::FLOAT,
    ];
    let Some(index) = number.checked_sub(1) else { return Ok(array) };
    // Formats with compressed blocks follow.
    let kind = *KINDS.get(index as usize / 3).ok_or(CUerror::NOT_SUPPORTED)?;
    let format = format_of(kind, [1, 2, 4][index as usize % 3])?;
    if format.bytes() == array.bytes() { Ok(format) } else { Err(CUerror::INVALID_VALUE) }
}
