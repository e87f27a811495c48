//! Textures and surfaces, whose handles kernels get as arguments.

use super::api::Api;
use super::array_types::{CUDA_RESOURCE_DESC, CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC, CUsurfObject, CUtexObject};
use super::call::{DriverError, call};

/// Creates a texture.
pub fn create(
    api: &Api,
    resource: &CUDA_RESOURCE_DESC,
    sampling: &CUDA_TEXTURE_DESC,
    view: Option<&CUDA_RESOURCE_VIEW_DESC>,
) -> Result<CUtexObject, DriverError> {
    let mut texture = CUtexObject::NULL;
    let view = view.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the place and the descriptions outlive the call, which writes one handle and reads them.
    unsafe { call!(api.cuTexObjectCreate(&mut texture, resource, sampling, view)) }?;
    Ok(texture)
}

/// Destroys a texture.
pub fn destroy(api: &Api, texture: CUtexObject) -> Result<(), DriverError> {
    // SAFETY: the call takes no host pointer.
    unsafe { call!(api.cuTexObjectDestroy(texture)) }
}

/// Returns the memory of a texture.
pub fn resource(api: &Api, texture: CUtexObject) -> Result<CUDA_RESOURCE_DESC, DriverError> {
    let mut resource = CUDA_RESOURCE_DESC::default();
    // SAFETY: the place outlives the call, which writes it.
    unsafe { call!(api.cuTexObjectGetResourceDesc(&mut resource, texture)) }?;
    Ok(resource)
}

/// Returns how a texture is sampled.
pub fn sampling(api: &Api, texture: CUtexObject) -> Result<CUDA_TEXTURE_DESC, DriverError> {
    let mut sampling = CUDA_TEXTURE_DESC::default();
    // SAFETY: the place outlives the call, which writes it.
    unsafe { call!(api.cuTexObjectGetTextureDesc(&mut sampling, texture)) }?;
    Ok(sampling)
}

/// Creates a surface.
pub fn create_surface(api: &Api, resource: &CUDA_RESOURCE_DESC) -> Result<CUsurfObject, DriverError> {
    let mut surface = CUsurfObject::NULL;
    // SAFETY: the place and the description outlive the call, which writes one handle and reads it.
    unsafe { call!(api.cuSurfObjectCreate(&mut surface, resource)) }?;
    Ok(surface)
}

/// Destroys a surface.
pub fn destroy_surface(api: &Api, surface: CUsurfObject) -> Result<(), DriverError> {
    // SAFETY: the call takes no host pointer.
    unsafe { call!(api.cuSurfObjectDestroy(surface)) }
}

/// Returns the view that a texture was created with.
pub fn view(api: &Api, texture: CUtexObject) -> Result<CUDA_RESOURCE_VIEW_DESC, DriverError> {
    let mut view = CUDA_RESOURCE_VIEW_DESC::default();
    // SAFETY: the driver writes a descriptor.
    unsafe { call!(api.cuTexObjectGetResourceViewDesc(&mut view, texture)) }?;
    Ok(view)
}

/// Returns the memory of a surface.
pub fn surface_resource(api: &Api, surface: CUsurfObject) -> Result<CUDA_RESOURCE_DESC, DriverError> {
    let mut resource = CUDA_RESOURCE_DESC::default();
    // SAFETY: the driver writes a descriptor.
    unsafe { call!(api.cuSurfObjectGetResourceDesc(&mut resource, surface)) }?;
    Ok(resource)
}
