//! The C types of arrays, textures, surfaces and tensor maps. Their layout is asserted.

#![allow(missing_docs, reason = "NVIDIA documents what cuda.h declares")]
#![allow(non_camel_case_types, non_snake_case, reason = "the types and fields are named as C names them")]

use std::ffi::c_void;
use std::fmt;

use super::types::{CUarray, CUdeviceptr, c_enums, handles};

handles! {
    /// An array and its smaller copies.
    CUmipmappedArray;
    /// A texture: memory and how it is sampled. Kernels get it as an argument.
    CUtexObject;
    /// A surface: an array that kernels read and write.
    CUsurfObject;
}

const _: () = assert!(size_of::<CUtexObject>() == 8);

/// A tensor map: what a kernel needs to copy boxes of a tensor. Its format is the driver's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C, align(64))]
pub struct CUtensorMap {
    pub opaque: [u64; 16],
}

const _: () = assert!(size_of::<CUtensorMap>() == 128);

c_enums! {
    /// The type of an element of a tensor.
    CUtensorMapDataType {
        UINT8 = 0,
        UINT16 = 1,
        UINT32 = 2,
        INT32 = 3,
        UINT64 = 4,
        INT64 = 5,
        FLOAT16 = 6,
        FLOAT32 = 7,
        FLOAT64 = 8,
        BFLOAT16 = 9,
        FLOAT32_FTZ = 10,
        TFLOAT32 = 11,
        TFLOAT32_FTZ = 12,
    }
    /// The type of an element's channel.
    CUarray_format {
        UNSIGNED_INT8 = 0x01,
        UNSIGNED_INT16 = 0x02,
        UNSIGNED_INT32 = 0x03,
        SIGNED_INT8 = 0x08,
        SIGNED_INT16 = 0x09,
        SIGNED_INT32 = 0x0a,
        HALF = 0x10,
        FLOAT = 0x20,
        UNORM_INT8X1 = 0xc0,
        UNORM_INT8X2 = 0xc1,
        UNORM_INT8X4 = 0xc2,
        UNORM_INT16X1 = 0xc3,
        UNORM_INT16X2 = 0xc4,
        UNORM_INT16X4 = 0xc5,
        SNORM_INT8X1 = 0xc6,
        SNORM_INT8X2 = 0xc7,
        SNORM_INT8X4 = 0xc8,
        SNORM_INT16X1 = 0xc9,
        SNORM_INT16X2 = 0xca,
        SNORM_INT16X4 = 0xcb,
    }
    CUresourcetype {
        ARRAY = 0,
        MIPMAPPED_ARRAY = 1,
        LINEAR = 2,
        PITCH2D = 3,
    }
    CUaddress_mode {
        WRAP = 0,
        CLAMP = 1,
        MIRROR = 2,
        BORDER = 3,
    }
    CUfilter_mode {
        POINT = 0,
        LINEAR = 1,
    }
}

/// Flags of `cuArray3DCreate`.
pub mod array_flags {
    pub const LAYERED: u32 = 0x01;
    pub const SURFACE_LDST: u32 = 0x02;
    pub const CUBEMAP: u32 = 0x04;
    pub const TEXTURE_GATHER: u32 = 0x08;
    pub const COLOR_ATTACHMENT: u32 = 0x20;
}

/// Flags of [`CUDA_TEXTURE_DESC`].
pub mod texture_flags {
    pub const READ_AS_INTEGER: u32 = 0x01;
    pub const NORMALIZED_COORDINATES: u32 = 0x02;
    pub const SRGB: u32 = 0x10;
    pub const DISABLE_TRILINEAR_OPTIMIZATION: u32 = 0x20;
    pub const SEAMLESS_CUBEMAP: u32 = 0x40;
}

/// The size and format of an array of one or two dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct CUDA_ARRAY_DESCRIPTOR {
    pub Width: usize,
    pub Height: usize,
    pub Format: CUarray_format,
    pub NumChannels: u32,
}

const _: () = assert!(size_of::<CUDA_ARRAY_DESCRIPTOR>() == 24);

/// The size and format of an array. A dimension that it lacks is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct CUDA_ARRAY3D_DESCRIPTOR {
    pub Width: usize,
    pub Height: usize,
    pub Depth: usize,
    pub Format: CUarray_format,
    pub NumChannels: u32,
    pub Flags: u32,
}

const _: () = assert!(size_of::<CUDA_ARRAY3D_DESCRIPTOR>() == 40);

/// The memory of a texture or a surface. C has a union; `res` has its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct CUDA_RESOURCE_DESC {
    pub resType: CUresourcetype,
    pub res: [u64; 16],
    pub flags: u32,
}

const _: () = assert!(size_of::<CUDA_RESOURCE_DESC>() == 144);
const _: () = assert!(std::mem::offset_of!(CUDA_RESOURCE_DESC, res) == 8);

/// Memory of a texture that is not an array. Linear memory has a size in bytes, and no pitch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ResourceMemory {
    pub start: CUdeviceptr,
    pub format: CUarray_format,
    pub channels: u32,
    /// Elements of a row; bytes of linear memory.
    pub width: usize,
    pub height: usize,
    pub pitch_bytes: usize,
}

impl CUDA_RESOURCE_DESC {
    /// An array.
    pub fn array(array: CUarray) -> Self {
        Self { resType: CUresourcetype::ARRAY, res: words([array.0 as u64, 0, 0, 0, 0]), flags: 0 }
    }

    /// A mipmapped array.
    pub fn mipmapped(array: CUmipmappedArray) -> Self {
        Self { resType: CUresourcetype::MIPMAPPED_ARRAY, res: words([array.0 as u64, 0, 0, 0, 0]), flags: 0 }
    }

    /// Linear memory, or rows with a pitch, as `kind` says.
    pub fn memory(kind: CUresourcetype, memory: ResourceMemory) -> Self {
        let format = u64::from(memory.format.0) | u64::from(memory.channels) << 32;
        let (width, height, pitch) = (memory.width as u64, memory.height as u64, memory.pitch_bytes as u64);
        Self { resType: kind, res: words([memory.start.0, format, width, height, pitch]), flags: 0 }
    }

    /// The array that the words name, if this is an array.
    pub fn as_array(&self) -> CUarray {
        CUarray(self.res[0] as usize)
    }

    /// The mipmapped array that the words name, if this is one.
    pub fn as_mipmapped(&self) -> CUmipmappedArray {
        CUmipmappedArray(self.res[0] as usize)
    }

    /// The memory that the words describe, if this is not an array.
    pub fn as_memory(&self) -> ResourceMemory {
        ResourceMemory {
            start: CUdeviceptr(self.res[0]),
            format: CUarray_format(self.res[1] as u32),
            channels: (self.res[1] >> 32) as u32,
            width: self.res[2] as usize,
            height: self.res[3] as usize,
            pitch_bytes: self.res[4] as usize,
        }
    }
}

fn words(used: [u64; 5]) -> [u64; 16] {
    let mut words = [0; 16];
    words[..5].copy_from_slice(&used);
    words
}

/// How a texture is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
#[repr(C)]
pub struct CUDA_TEXTURE_DESC {
    pub addressMode: [CUaddress_mode; 3],
    pub filterMode: CUfilter_mode,
    pub flags: u32,
    pub maxAnisotropy: u32,
    pub mipmapFilterMode: CUfilter_mode,
    pub mipmapLevelBias: f32,
    pub minMipmapLevelClamp: f32,
    pub maxMipmapLevelClamp: f32,
    pub borderColor: [f32; 4],
    pub reserved: [i32; 12],
}

const _: () = assert!(size_of::<CUDA_TEXTURE_DESC>() == 104);
const _: () = assert!(std::mem::offset_of!(CUDA_TEXTURE_DESC, borderColor) == 40);

/// The part of an array that a texture shows, and the format in which it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct CUDA_RESOURCE_VIEW_DESC {
    pub format: u32,
    pub width: usize,
    pub height: usize,
    pub depth: usize,
    pub firstMipmapLevel: u32,
    pub lastMipmapLevel: u32,
    pub firstLayer: u32,
    pub lastLayer: u32,
    pub reserved: [u32; 16],
}

const _: () = assert!(size_of::<CUDA_RESOURCE_VIEW_DESC>() == 112);
const _: () = assert!(std::mem::offset_of!(CUDA_RESOURCE_VIEW_DESC, firstMipmapLevel) == 32);
