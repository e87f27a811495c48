//! Functions whose arguments differ in CUDA 12, for `libcudart.so.12`, which forwards everything else to this library under
//! the same name.

use std::ffi::c_void;

use freehold_driver::cuda::{CUmem_advise, CUstream, CUsurfObject, CUtexObject};

use super::entry;
use crate::api::{managed, memory, properties, texture};
use crate::code::cudaError_t;
use crate::thread;
use crate::types::cudaPointerAttributes_v12;
use crate::types::device_prop::cudaDeviceProp_v12;
use crate::types::texture::{cudaResourceDesc_v12, cudaResourceViewDesc_v12, cudaTextureDesc};

#[unsafe(no_mangle)]
unsafe extern "C" fn freehold_v12_cudaGetDeviceProperties_v2(
    properties: *mut cudaDeviceProp_v12,
    device: i32,
) -> cudaError_t {
    // SAFETY: the C caller meets the conditions that the runtime API states for this function.
    entry(|| unsafe { properties::cudaGetDeviceProperties_v12(properties, device) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn freehold_v12_cudaChooseDevice(
    device: *mut i32,
    requested: *const cudaDeviceProp_v12,
) -> cudaError_t {
    // SAFETY: the C caller meets the conditions that the runtime API states for this function.
    entry(|| unsafe { properties::cudaChooseDevice_v12(device, requested) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn freehold_v12_cudaPointerGetAttributes(
    attributes: *mut cudaPointerAttributes_v12,
    address: *const c_void,
) -> cudaError_t {
    // SAFETY: the C caller meets the conditions that the runtime API states for this function.
    entry(|| unsafe { memory::cudaPointerGetAttributes_v12(attributes, address) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn freehold_v12_cudaMemAdvise(
    start: *const c_void,
    bytes: usize,
    advice: CUmem_advise,
    device: i32,
) -> cudaError_t {
    // SAFETY: the C caller meets the conditions that the runtime API states for this function.
    entry(|| unsafe { managed::cudaMemAdvise_v12(start, bytes, advice, device) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn freehold_v12_cudaMemPrefetchAsync(
    start: *const c_void,
    bytes: usize,
    device: i32,
    stream: CUstream,
) -> cudaError_t {
    // SAFETY: the C caller meets the conditions that the runtime API states for this function.
    entry(|| unsafe { managed::cudaMemPrefetchAsync_v12(start, bytes, device, stream) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn freehold_v12_cudaMemPrefetchAsync_ptsz(
    start: *const c_void,
    bytes: usize,
    device: i32,
    stream: CUstream,
) -> cudaError_t {
    let prefetch = || {
        // SAFETY: the C caller meets the conditions that the runtime API states for this function.
        unsafe { managed::cudaMemPrefetchAsync_v12(start, bytes, device, stream) }
    };
    entry(|| thread::with_per_thread_stream(prefetch))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn freehold_v12_cudaCreateTextureObject(
    object: *mut CUtexObject,
    from: *const cudaResourceDesc_v12,
    desc: *const cudaTextureDesc,
    view: *const cudaResourceViewDesc_v12,
) -> cudaError_t {
    // SAFETY: the C caller meets the conditions that the runtime API states for this function.
    entry(|| unsafe { texture::cudaCreateTextureObject_v12(object, from, desc, view) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn freehold_v12_cudaGetTextureObjectResourceDesc(
    desc: *mut cudaResourceDesc_v12,
    object: CUtexObject,
) -> cudaError_t {
    // SAFETY: the C caller meets the conditions that the runtime API states for this function.
    entry(|| unsafe { texture::cudaGetTextureObjectResourceDesc_v12(desc, object) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn freehold_v12_cudaGetTextureObjectResourceViewDesc(
    desc: *mut cudaResourceViewDesc_v12,
    object: CUtexObject,
) -> cudaError_t {
    // SAFETY: the C caller meets the conditions that the runtime API states for this function.
    entry(|| unsafe { texture::cudaGetTextureObjectResourceViewDesc_v12(desc, object) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn freehold_v12_cudaCreateSurfaceObject(
    object: *mut CUsurfObject,
    from: *const cudaResourceDesc_v12,
) -> cudaError_t {
    // SAFETY: the C caller meets the conditions that the runtime API states for this function.
    entry(|| unsafe { texture::cudaCreateSurfaceObject_v12(object, from) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn freehold_v12_cudaGetSurfaceObjectResourceDesc(
    desc: *mut cudaResourceDesc_v12,
    object: CUsurfObject,
) -> cudaError_t {
    // SAFETY: the C caller meets the conditions that the runtime API states for this function.
    entry(|| unsafe { texture::cudaGetSurfaceObjectResourceDesc_v12(desc, object) })
}
