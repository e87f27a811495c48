//! Texture and surface objects: the driver's, with the runtime's descriptions.

use freehold_driver::cuda::{
    Api, CUDA_RESOURCE_DESC, CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC, CUaddress_mode, CUarray, CUarray_format,
    CUdeviceptr, CUfilter_mode, CUmipmappedArray, CUresourcetype, CUsurfObject, CUtexObject, ResourceMemory,
    texture_flags,
};

use super::array::{desc_of, describe, format_of};
use crate::code::{CudaError, cudaError_t};
use crate::process;
use crate::types::texture::{
    cudaResourceDesc, cudaResourceDesc_v12, cudaResourceMemory, cudaResourceViewDesc_v12, cudaTextureDesc,
};
use crate::types::{check, read, write};

/// The values of `readMode`.
const READ_ELEMENT: u32 = 0;
const READ_NORMALIZED: u32 = 1;

/// Returns the driver's description of a resource.
fn resource(desc: &cudaResourceDesc_v12) -> Result<CUDA_RESOURCE_DESC, CudaError> {
    let address = desc.memory.devPtr;
    Ok(match desc.resType {
        CUresourcetype::ARRAY => CUDA_RESOURCE_DESC::array(CUarray(address as usize)),
        CUresourcetype::MIPMAPPED_ARRAY => CUDA_RESOURCE_DESC::mipmapped(CUmipmappedArray(address as usize)),
        CUresourcetype::LINEAR | CUresourcetype::PITCH2D => {
            let (format, channels) = format_of(&desc.memory.desc)?;
            let memory = ResourceMemory {
                start: CUdeviceptr(address),
                format,
                channels,
                width: desc.memory.width,
                height: desc.memory.height,
                pitch_bytes: desc.memory.pitchInBytes,
            };
            CUDA_RESOURCE_DESC::memory(desc.resType, memory)
        }
        _ => return Err(CudaError::INVALID_VALUE),
    })
}

/// Returns the runtime's description of a resource.
fn resource_of(desc: &CUDA_RESOURCE_DESC) -> cudaResourceDesc_v12 {
    let memory = match desc.resType {
        CUresourcetype::ARRAY | CUresourcetype::MIPMAPPED_ARRAY => {
            cudaResourceMemory { devPtr: desc.res[0], ..cudaResourceMemory::default() }
        }
        _ => {
            let memory = desc.as_memory();
            cudaResourceMemory {
                devPtr: memory.start.0,
                desc: desc_of(memory.format, memory.channels),
                width: memory.width,
                height: memory.height,
                pitchInBytes: memory.pitch_bytes,
            }
        }
    };
    cudaResourceDesc_v12 { resType: desc.resType, memory }
}

/// Returns the driver's description of how a texture is sampled.
fn sampling(desc: &cudaTextureDesc) -> Result<CUDA_TEXTURE_DESC, CudaError> {
    let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
    if desc.readMode > READ_NORMALIZED {
        return Err(CudaError::INVALID_VALUE);
    }
    let flags = flag(desc.readMode == READ_ELEMENT, texture_flags::READ_AS_INTEGER)
        | flag(desc.normalizedCoords != 0, texture_flags::NORMALIZED_COORDINATES)
        | flag(desc.sRGB != 0, texture_flags::SRGB)
        | flag(desc.disableTrilinearOptimization != 0, texture_flags::DISABLE_TRILINEAR_OPTIMIZATION)
        | flag(desc.seamlessCubemap != 0, texture_flags::SEAMLESS_CUBEMAP);
    Ok(CUDA_TEXTURE_DESC {
        addressMode: desc.addressMode.map(CUaddress_mode),
        filterMode: CUfilter_mode(desc.filterMode),
        flags,
        maxAnisotropy: desc.maxAnisotropy,
        mipmapFilterMode: CUfilter_mode(desc.mipmapFilterMode),
        mipmapLevelBias: desc.mipmapLevelBias,
        minMipmapLevelClamp: desc.minMipmapLevelClamp,
        maxMipmapLevelClamp: desc.maxMipmapLevelClamp,
        borderColor: desc.borderColor,
        reserved: [0; 12],
    })
}

/// Returns the runtime's description of how a texture is sampled.
fn sampling_of(desc: &CUDA_TEXTURE_DESC) -> cudaTextureDesc {
    let has = |flag: u32| i32::from(desc.flags & flag != 0);
    let is_element = desc.flags & texture_flags::READ_AS_INTEGER != 0;
    cudaTextureDesc {
        addressMode: desc.addressMode.map(|mode| mode.0),
        filterMode: desc.filterMode.0,
        readMode: if is_element { READ_ELEMENT } else { READ_NORMALIZED },
        sRGB: has(texture_flags::SRGB),
        borderColor: desc.borderColor,
        normalizedCoords: has(texture_flags::NORMALIZED_COORDINATES),
        maxAnisotropy: desc.maxAnisotropy,
        mipmapFilterMode: desc.mipmapFilterMode.0,
        mipmapLevelBias: desc.mipmapLevelBias,
        minMipmapLevelClamp: desc.minMipmapLevelClamp,
        maxMipmapLevelClamp: desc.maxMipmapLevelClamp,
        disableTrilinearOptimization: has(texture_flags::DISABLE_TRILINEAR_OPTIMIZATION),
        seamlessCubemap: has(texture_flags::SEAMLESS_CUBEMAP),
    }
}

/// Returns the format of a resource.
fn format_of_resource(api: &Api, resource: &CUDA_RESOURCE_DESC) -> Result<CUarray_format, CudaError> {
    let mut array = resource.as_array();
    match resource.resType {
        CUresourcetype::LINEAR | CUresourcetype::PITCH2D => return Ok(resource.as_memory().format),
        CUresourcetype::MIPMAPPED_ARRAY => {
            if resource.as_mipmapped() == CUmipmappedArray::NULL {
                return Err(CudaError::INVALID_RESOURCE_HANDLE);
            }
            // SAFETY: the driver writes one handle, and the C caller guarantees that the array is valid.
            unsafe { (api.cuMipmappedArrayGetLevel)(&raw mut array, resource.as_mipmapped(), 0) }?;
        }
        _ => {}
    }
    Ok(describe(api, array)?.Format)
}

/// Checks that elements of a format can be read and filtered as described: only integers of 8 and 16 bits become fractions,
/// and integers are not filtered.
fn check_reading(desc: &cudaTextureDesc, format: CUarray_format) -> cudaError_t {
    const LINEAR: u32 = 1;
    let is_fraction = matches!(
        format,
        CUarray_format::UNSIGNED_INT8
            | CUarray_format::UNSIGNED_INT16
            | CUarray_format::SIGNED_INT8
            | CUarray_format::SIGNED_INT16
    );
    let is_integer = is_fraction || matches!(format, CUarray_format::UNSIGNED_INT32 | CUarray_format::SIGNED_INT32);
    let is_float = matches!(format, CUarray_format::HALF | CUarray_format::FLOAT);
    if desc.readMode == READ_NORMALIZED && !is_fraction && (is_integer || is_float) {
        return Err(CudaError::INVALID_NORM_SETTING);
    }
    if desc.readMode == READ_ELEMENT && is_integer && desc.filterMode == LINEAR {
        return Err(CudaError::INVALID_FILTER_SETTING);
    }
    Ok(())
}

/// Creates a texture.
unsafe fn create_texture(
    texture: *mut CUtexObject,
    resource: &CUDA_RESOURCE_DESC,
    desc: *const cudaTextureDesc,
    view: Option<CUDA_RESOURCE_VIEW_DESC>,
) -> cudaError_t {
    check(texture)?;
    if desc.is_null() {
        return Err(CudaError::INVALID_RESOURCE_HANDLE);
    }
    // SAFETY: the C caller guarantees that the struct is valid.
    let desc = unsafe { read(desc) }?;
    let sampling = sampling(&desc)?;
    let process = process::with_context()?;
    if view.is_none_or(|view| view.format == 0) {
        check_reading(&desc, format_of_resource(&process.api, resource)?)?;
    }
    let view = view.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the C caller guarantees that the output pointer and the resource are valid.
    Ok(unsafe { (process.api.cuTexObjectCreate)(texture, resource, &raw const sampling, view) }?)
}

pub(crate) unsafe fn cudaCreateTextureObject(
    texture: *mut CUtexObject,
    from: *const cudaResourceDesc,
    desc: *const cudaTextureDesc,
    view: *const CUDA_RESOURCE_VIEW_DESC,
) -> cudaError_t {
    // SAFETY: the C caller guarantees that the struct is valid.
    let from = unsafe { read(from) }?;
    let mut from_driver = resource(&from.known)?;
    from_driver.flags = from.flags;
    let view = if view.is_null() {
        None
    } else {
        // SAFETY: as above.
        Some(unsafe { read(view) }?)
    };
    // SAFETY: the conditions are the same.
    unsafe { create_texture(texture, &from_driver, desc, view) }
}

/// As [`cudaCreateTextureObject`], with the structs of CUDA 12.
pub(crate) unsafe fn cudaCreateTextureObject_v12(
    texture: *mut CUtexObject,
    from: *const cudaResourceDesc_v12,
    desc: *const cudaTextureDesc,
    view: *const cudaResourceViewDesc_v12,
) -> cudaError_t {
    // SAFETY: the C caller guarantees that the struct is valid.
    let from = resource(&unsafe { read(from) }?)?;
    let view = if view.is_null() {
        None
    } else {
        // SAFETY: as above.
        Some(unsafe { read(view) }?.into())
    };
    // SAFETY: the conditions are the same.
    unsafe { create_texture(texture, &from, desc, view) }
}

pub(crate) unsafe fn cudaDestroyTextureObject(texture: CUtexObject) -> cudaError_t {
    let process = process::with_context()?;
    if texture == CUtexObject::NULL {
        return Ok(());
    }
    // SAFETY: the C caller guarantees that the texture is valid.
    Ok(unsafe { (process.api.cuTexObjectDestroy)(texture) }?)
}

/// Asks the driver for the resource of a texture.
unsafe fn texture_resource(texture: CUtexObject) -> Result<cudaResourceDesc_v12, CudaError> {
    let mut desc = CUDA_RESOURCE_DESC::default();
    // SAFETY: the driver writes one struct, and the C caller guarantees that the texture is valid.
    unsafe { (process::with_context()?.api.cuTexObjectGetResourceDesc)(&raw mut desc, texture) }?;
    Ok(resource_of(&desc))
}

pub(crate) unsafe fn cudaGetTextureObjectResourceDesc(
    desc: *mut cudaResourceDesc,
    texture: CUtexObject,
) -> cudaError_t {
    check(desc)?;
    // SAFETY: the C caller guarantees that the texture is valid.
    let known = unsafe { texture_resource(texture) }?;
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { write(desc, known.into()) }?)
}

/// As [`cudaGetTextureObjectResourceDesc`], with the struct of CUDA 12.
pub(crate) unsafe fn cudaGetTextureObjectResourceDesc_v12(
    desc: *mut cudaResourceDesc_v12,
    texture: CUtexObject,
) -> cudaError_t {
    check(desc)?;
    // SAFETY: the C caller guarantees that the texture is valid.
    let known = unsafe { texture_resource(texture) }?;
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { write(desc, known) }?)
}

pub(crate) unsafe fn cudaGetTextureObjectTextureDesc(desc: *mut cudaTextureDesc, texture: CUtexObject) -> cudaError_t {
    if desc.is_null() {
        return Err(CudaError::INVALID_RESOURCE_HANDLE);
    }
    let mut found = CUDA_TEXTURE_DESC::default();
    // SAFETY: the driver writes one struct, and the C caller guarantees that the texture is valid.
    unsafe { (process::with_context()?.api.cuTexObjectGetTextureDesc)(&raw mut found, texture) }?;
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { write(desc, sampling_of(&found)) }?)
}

pub(crate) unsafe fn cudaGetTextureObjectResourceViewDesc(
    desc: *mut CUDA_RESOURCE_VIEW_DESC,
    texture: CUtexObject,
) -> cudaError_t {
    check(desc)?;
    // SAFETY: the C caller guarantees that the output pointer and the texture are valid.
    Ok(unsafe { (process::with_context()?.api.cuTexObjectGetResourceViewDesc)(desc, texture) }?)
}

/// As [`cudaGetTextureObjectResourceViewDesc`], with the struct of CUDA 12.
pub(crate) unsafe fn cudaGetTextureObjectResourceViewDesc_v12(
    desc: *mut cudaResourceViewDesc_v12,
    texture: CUtexObject,
) -> cudaError_t {
    check(desc)?;
    let mut found = CUDA_RESOURCE_VIEW_DESC::default();
    // SAFETY: the driver writes one struct, and the C caller guarantees that the texture is valid.
    unsafe { (process::with_context()?.api.cuTexObjectGetResourceViewDesc)(&raw mut found, texture) }?;
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { write(desc, found.into()) }?)
}

unsafe fn create_surface(surface: *mut CUsurfObject, resource: &CUDA_RESOURCE_DESC) -> cudaError_t {
    check(surface)?;
    // SAFETY: the C caller guarantees that the output pointer and the resource are valid.
    Ok(unsafe { (process::with_context()?.api.cuSurfObjectCreate)(surface, resource) }?)
}

pub(crate) unsafe fn cudaCreateSurfaceObject(surface: *mut CUsurfObject, from: *const cudaResourceDesc) -> cudaError_t {
    // SAFETY: the C caller guarantees that the struct is valid.
    let from = unsafe { read(from) }?;
    let mut from_driver = resource(&from.known)?;
    from_driver.flags = from.flags;
    // SAFETY: the conditions are the same.
    unsafe { create_surface(surface, &from_driver) }
}

/// As [`cudaCreateSurfaceObject`], with the struct of CUDA 12.
pub(crate) unsafe fn cudaCreateSurfaceObject_v12(
    surface: *mut CUsurfObject,
    from: *const cudaResourceDesc_v12,
) -> cudaError_t {
    // SAFETY: the C caller guarantees that the struct is valid.
    let from = resource(&unsafe { read(from) }?)?;
    // SAFETY: the conditions are the same.
    unsafe { create_surface(surface, &from) }
}

pub(crate) unsafe fn cudaDestroySurfaceObject(surface: CUsurfObject) -> cudaError_t {
    let process = process::with_context()?;
    if surface == CUsurfObject::NULL {
        return Ok(());
    }
    // SAFETY: the C caller guarantees that the surface is valid.
    Ok(unsafe { (process.api.cuSurfObjectDestroy)(surface) }?)
}

/// Asks the driver for the resource of a surface.
unsafe fn surface_resource(surface: CUsurfObject) -> Result<cudaResourceDesc_v12, CudaError> {
    let mut desc = CUDA_RESOURCE_DESC::default();
    // SAFETY: the driver writes one struct, and the C caller guarantees that the surface is valid.
    unsafe { (process::with_context()?.api.cuSurfObjectGetResourceDesc)(&raw mut desc, surface) }?;
    Ok(resource_of(&desc))
}

pub(crate) unsafe fn cudaGetSurfaceObjectResourceDesc(
    desc: *mut cudaResourceDesc,
    surface: CUsurfObject,
) -> cudaError_t {
    check(desc)?;
    // SAFETY: the C caller guarantees that the surface is valid.
    let known = unsafe { surface_resource(surface) }?;
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { write(desc, known.into()) }?)
}

/// As [`cudaGetSurfaceObjectResourceDesc`], with the struct of CUDA 12.
pub(crate) unsafe fn cudaGetSurfaceObjectResourceDesc_v12(
    desc: *mut cudaResourceDesc_v12,
    surface: CUsurfObject,
) -> cudaError_t {
    check(desc)?;
    // SAFETY: the C caller guarantees that the surface is valid.
    let known = unsafe { surface_resource(surface) }?;
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { write(desc, known) }?)
}
