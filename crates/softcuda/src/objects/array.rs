//! Arrays: the memory of textures and surfaces, in rows without gaps. Kernels have no address of it.

use std::sync::Arc;

use freehold_driver::cuda::{CUDA_ARRAY3D_DESCRIPTOR, CUarray, CUarray_format, CUerror, CUmipmappedArray, array_flags};
use freehold_ptx::{Channel, Format, Texels};

use super::context::Context;

/// An array of one, two or three dimensions, with layers, or of the faces of cubes.
#[derive(Debug)]
pub(crate) struct Array {
    pub(crate) handle: CUarray,
    pub(crate) context: Arc<Context>,
    pub(crate) descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    pub(crate) format: Format,
    pub(crate) texels: Texels,
    /// Whether it is a level of a mipmapped array, which owns the memory.
    pub(crate) is_level: bool,
}

/// An array and its smaller copies, in one block of memory.
#[derive(Debug)]
pub(crate) struct MipmappedArray {
    pub(crate) handle: CUmipmappedArray,
    pub(crate) context: Arc<Context>,
    /// The address of the memory.
    pub(crate) start: u64,
    /// The largest first.
    pub(crate) levels: Vec<Arc<Array>>,
}

/// The formats whose channels textures know.
pub(crate) fn format_of(format: CUarray_format, channels: u32) -> Result<Format, CUerror> {
    let channel = match format {
        CUarray_format::UNSIGNED_INT8 => Channel::Unsigned8,
        CUarray_format::UNSIGNED_INT16 => Channel::Unsigned16,
        CUarray_format::UNSIGNED_INT32 => Channel::Unsigned32,
        CUarray_format::SIGNED_INT8 => Channel::Signed8,
        CUarray_format::SIGNED_INT16 => Channel::Signed16,
        CUarray_format::SIGNED_INT32 => Channel::Signed32,
        CUarray_format::HALF => Channel::Half,
        CUarray_format::FLOAT => Channel::Float,
        _ => return Err(CUerror::INVALID_VALUE),
    };
    if !matches!(channels, 1 | 2 | 4) {
        return Err(CUerror::INVALID_VALUE);
    }
    Ok(Format { channel, channels })
}

const KNOWN_FLAGS: u32 = array_flags::LAYERED
    | array_flags::SURFACE_LDST
    | array_flags::CUBEMAP
    | array_flags::TEXTURE_GATHER
    | array_flags::COLOR_ATTACHMENT;

/// Checks a description by the rules of `cuArray3DCreate`, with the sizes of an H200.
pub(crate) fn check(descriptor: &CUDA_ARRAY3D_DESCRIPTOR) -> Result<Format, CUerror> {
    let format = format_of(descriptor.Format, descriptor.NumChannels)?;
    let CUDA_ARRAY3D_DESCRIPTOR { Width: width, Height: height, Depth: depth, Flags: flags, .. } = *descriptor;
    let (is_layered, is_cube) = (flags & array_flags::LAYERED != 0, flags & array_flags::CUBEMAP != 0);
    if flags & !KNOWN_FLAGS != 0 || width == 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let is_gather = flags & array_flags::TEXTURE_GATHER != 0;
    let is_valid = match (is_cube, is_layered) {
        (true, false) => width == height && depth == 6 && width <= 32768,
        (true, true) => width == height && depth > 0 && depth % 6 == 0 && depth <= 2046 && width <= 32768,
        (false, true) => depth > 0 && depth <= 2048 && width <= 32768 && height <= 32768,
        (false, false) if depth > 16384 => height > 0 && width <= 8192 && height <= 8192 && depth <= 32768,
        (false, false) if depth > 0 => height > 0 && width <= 16384 && height <= 16384,
        (false, false) => width <= 131_072 && height <= 65536,
    };
    if !is_valid || is_gather && (height == 0 || depth > 0 && !is_layered || width > 32768 || height > 32768) {
        return Err(CUerror::INVALID_VALUE);
    }
    Ok(format)
}

/// Returns the layout of a described box at an address.
pub(crate) fn layout(descriptor: &CUDA_ARRAY3D_DESCRIPTOR, format: Format, start: u64) -> Texels {
    // The sizes were checked, and are far below 2^32.
    let [width, height, depth] = [descriptor.Width, descriptor.Height, descriptor.Depth].map(|size| size.max(1) as u32);
    let row_bytes = u64::from(width) * format.bytes();
    Texels { start, width, height, depth, row_bytes, slice_bytes: row_bytes * u64::from(height) }
}

/// Returns the bytes of a box.
pub(crate) fn bytes(texels: &Texels) -> u64 {
    texels.slice_bytes * u64::from(texels.depth)
}

/// Returns the largest number of levels that an array has.
pub(crate) fn levels_max(descriptor: &CUDA_ARRAY3D_DESCRIPTOR) -> u32 {
    let has_slices = descriptor.Flags & (array_flags::LAYERED | array_flags::CUBEMAP) == 0;
    let depth = if has_slices { descriptor.Depth } else { 0 };
    descriptor.Width.max(descriptor.Height).max(depth).max(1).ilog2() + 1
}

/// Returns the description of a level: each dimension is halved, but not the number of layers.
pub(crate) fn level(descriptor: &CUDA_ARRAY3D_DESCRIPTOR, level: u32) -> CUDA_ARRAY3D_DESCRIPTOR {
    let halved = |size: usize| if size == 0 { 0 } else { (size >> level).max(1) };
    let has_slices = descriptor.Flags & (array_flags::LAYERED | array_flags::CUBEMAP) == 0;
    CUDA_ARRAY3D_DESCRIPTOR {
        Width: halved(descriptor.Width),
        Height: halved(descriptor.Height),
        Depth: if has_slices { halved(descriptor.Depth) } else { descriptor.Depth },
        ..*descriptor
    }
}

/// The position and the size of a copy in an array, in bytes, rows and slices.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ArrayBox {
    pub(crate) at: [u64; 3],
    pub(crate) size: [u64; 3],
}

impl Array {
    /// Checks that a box lies in the array. Returns the address of its first byte.
    pub(crate) fn locate(&self, ArrayBox { at, size }: ArrayBox) -> Result<u64, CUerror> {
        let texels = &self.texels;
        let ends = [texels.row_bytes, texels.height.into(), texels.depth.into()];
        let fits = |axis: usize| at[axis].checked_add(size[axis]).is_some_and(|end| end <= ends[axis]);
        if !(0..3).all(fits) {
            return Err(CUerror::INVALID_VALUE);
        }
        Ok(texels.start + at[2] * texels.slice_bytes + at[1] * texels.row_bytes + at[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(size: [usize; 3], flags: u32) -> CUDA_ARRAY3D_DESCRIPTOR {
        CUDA_ARRAY3D_DESCRIPTOR {
            Width: size[0],
            Height: size[1],
            Depth: size[2],
            Format: CUarray_format::FLOAT,
            NumChannels: 2,
            Flags: flags,
        }
    }

    #[test]
    fn sizes_follow_the_kind_of_array() {
        let is_valid = |size, flags| check(&described(size, flags)).is_ok();
        assert!(is_valid([131_072, 0, 0], 0) && !is_valid([131_073, 0, 0], 0));
        assert!(is_valid([4, 65536, 0], 0) && !is_valid([4, 65537, 0], 0));
        assert!(is_valid([4, 4, 4], 0) && !is_valid([4, 0, 4], 0));
        assert!(is_valid([4, 4, 32768], 0) && !is_valid([8193, 4, 32768], 0));
        assert!(is_valid([4, 0, 4], array_flags::LAYERED) && !is_valid([4, 4, 0], array_flags::LAYERED));
        assert!(is_valid([4, 4, 6], array_flags::CUBEMAP) && !is_valid([4, 5, 6], array_flags::CUBEMAP));
        assert!(!is_valid([4, 4, 7], array_flags::CUBEMAP | array_flags::LAYERED));
        assert!(!is_valid([0, 4, 0], 0) && !is_valid([4, 4, 0], 0x800));
    }

    #[test]
    fn levels_end_at_one_texel_and_keep_their_layers() {
        let layered = described([16, 5, 3], array_flags::LAYERED);
        assert_eq!(levels_max(&layered), 5);
        assert_eq!(level(&layered, 3), described([2, 1, 3], array_flags::LAYERED));
        assert_eq!(level(&described([8, 0, 0], 0), 1), described([4, 0, 0], 0));
    }
}
