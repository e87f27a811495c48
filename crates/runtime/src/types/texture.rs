//! The structs of textures and surfaces. The description of a view is the driver's.

use std::mem::offset_of;

use freehold_driver::cuda::{CUDA_RESOURCE_VIEW_DESC, CUresourcetype};

use super::cudaChannelFormatDesc;

/// The memory of a resource. C has a union: an array is in place of the address, and linear memory has a size in bytes in
/// place of the width.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct cudaResourceMemory {
    pub(crate) devPtr: u64,
    pub(crate) desc: cudaChannelFormatDesc,
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) pitchInBytes: usize,
}

const _: () = assert!(size_of::<cudaResourceMemory>() == 56);
const _: () = assert!(offset_of!(cudaResourceMemory, width) == 32);

/// A resource as CUDA 12 lays it out.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct cudaResourceDesc_v12 {
    pub(crate) resType: CUresourcetype,
    pub(crate) memory: cudaResourceMemory,
}

const _: () = assert!(size_of::<cudaResourceDesc_v12>() == 64);
const _: () = assert!(offset_of!(cudaResourceDesc_v12, memory) == 8);

/// A resource.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct cudaResourceDesc {
    pub(crate) known: cudaResourceDesc_v12,
    pub(crate) reserved: [u64; 9],
    pub(crate) flags: u32,
}

const _: () = assert!(size_of::<cudaResourceDesc>() == 144);
const _: () = assert!(offset_of!(cudaResourceDesc, flags) == 136);

impl From<cudaResourceDesc_v12> for cudaResourceDesc {
    fn from(known: cudaResourceDesc_v12) -> Self {
        Self { known, reserved: [0; 9], flags: 0 }
    }
}

/// How a texture is sampled.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct cudaTextureDesc {
    pub(crate) addressMode: [u32; 3],
    pub(crate) filterMode: u32,
    pub(crate) readMode: u32,
    pub(crate) sRGB: i32,
    pub(crate) borderColor: [f32; 4],
    pub(crate) normalizedCoords: i32,
    pub(crate) maxAnisotropy: u32,
    pub(crate) mipmapFilterMode: u32,
    pub(crate) mipmapLevelBias: f32,
    pub(crate) minMipmapLevelClamp: f32,
    pub(crate) maxMipmapLevelClamp: f32,
    pub(crate) disableTrilinearOptimization: i32,
    pub(crate) seamlessCubemap: i32,
}

const _: () = assert!(size_of::<cudaTextureDesc>() == 72);
const _: () = assert!(offset_of!(cudaTextureDesc, normalizedCoords) == 40);

/// A view as CUDA 12 lays it out.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct cudaResourceViewDesc_v12 {
    pub(crate) format: u32,
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
    pub(crate) firstMipmapLevel: u32,
    pub(crate) lastMipmapLevel: u32,
    pub(crate) firstLayer: u32,
    pub(crate) lastLayer: u32,
}

const _: () = assert!(size_of::<cudaResourceViewDesc_v12>() == 48);
const _: () = assert!(offset_of!(cudaResourceViewDesc_v12, firstMipmapLevel) == 32);

impl From<cudaResourceViewDesc_v12> for CUDA_RESOURCE_VIEW_DESC {
    fn from(view: cudaResourceViewDesc_v12) -> Self {
        Self {
            format: view.format,
            width: view.width,
            height: view.height,
            depth: view.depth,
            firstMipmapLevel: view.firstMipmapLevel,
            lastMipmapLevel: view.lastMipmapLevel,
            firstLayer: view.firstLayer,
            lastLayer: view.lastLayer,
            reserved: [0; 16],
        }
    }
}

impl From<CUDA_RESOURCE_VIEW_DESC> for cudaResourceViewDesc_v12 {
    fn from(view: CUDA_RESOURCE_VIEW_DESC) -> Self {
        Self {
            format: view.format,
            width: view.width,
            height: view.height,
            depth: view.depth,
            firstMipmapLevel: view.firstMipmapLevel,
            lastMipmapLevel: view.lastMipmapLevel,
            firstLayer: view.firstLayer,
            lastLayer: view.lastLayer,
        }
    }
}
