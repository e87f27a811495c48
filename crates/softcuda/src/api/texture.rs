//! Textures and surfaces: objects whose handles kernels get as arguments.

use std::sync::Arc;

use freehold_driver::cuda::{
    CUDA_RESOURCE_DESC, CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC, CUerror, CUmemAccess_flags, CUresourcetype,
    CUresult, CUsurfObject, CUtexObject,
};
use freehold_ptx::{Format, Surface, Texels, Texture};

use crate::ffi::args::{In, Out};
use crate::objects::context::{Context, current};
use crate::objects::texture::{self, SurfaceObject, TextureObject};
use crate::state::driver_state::{DriverState, driver};

/// The memory of a texture.
struct Resource {
    format: Format,
    levels: Vec<Texels>,
    is_buffer: bool,
}

pub(crate) fn cuTexObjectCreate(
    texture: Out<CUtexObject>,
    resource: In<CUDA_RESOURCE_DESC>,
    sampling: In<CUDA_TEXTURE_DESC>,
    view: Option<In<CUDA_RESOURCE_VIEW_DESC>>,
) -> CUresult {
    let (driver, context) = (driver()?, current()?);
    let (resource, desc, view) = (resource.0, sampling.0, view.map(|view| view.0));
    let mut memory = find_memory(driver, &context, &resource)?;
    if let Some(view) = &view {
        apply_view(&mut memory, view)?;
    }
    let Resource { format, levels, is_buffer } = memory;
    let sampling = texture::sampling(&desc, format)?;
    let object = TextureObject {
        context_id: context.id,
        resource,
        sampling: desc,
        view,
        texture: Arc::new(Texture { format, levels, is_buffer, sampling }),
    };
    texture.set(CUtexObject(driver.space.textures.insert(object)));
    Ok(())
}

/// Returns the texels of a resource.
fn find_memory(driver: &DriverState, context: &Context, resource: &CUDA_RESOURCE_DESC) -> Result<Resource, CUerror> {
    if resource.flags != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    match resource.resType {
        CUresourcetype::ARRAY => {
            let array = driver.arrays.get(resource.as_array().0)?;
            Ok(Resource { format: array.format, levels: vec![array.texels], is_buffer: false })
        }
        CUresourcetype::MIPMAPPED_ARRAY => {
            let mipmap = driver.mipmaps.get(resource.as_mipmapped().0)?;
            let levels = mipmap.levels.iter().map(|level| level.texels).collect();
            Ok(Resource { format: mipmap.levels[0].format, levels, is_buffer: false })
        }
        CUresourcetype::LINEAR => {
            let (format, texels) = texture::linear(&resource.as_memory())?;
            check_memory(driver, context, &texels)?;
            Ok(Resource { format, levels: vec![texels], is_buffer: true })
        }
        CUresourcetype::PITCH2D => {
            let (format, texels) = texture::pitched(&resource.as_memory())?;
            check_memory(driver, context, &texels)?;
            Ok(Resource { format, levels: vec![texels], is_buffer: false })
        }
        _ => Err(CUerror::INVALID_VALUE),
    }
}

/// Checks that the driver knows the memory of a texture.
fn check_memory(driver: &DriverState, context: &Context, texels: &Texels) -> CUresult {
    let device = context.device.ordinal;
    let found = driver.space.resolve(texels.start, texels.start, device, CUmemAccess_flags::PROT_READ)?;
    if found.is_some() { Ok(()) } else { Err(CUerror::INVALID_VALUE) }
}

/// Narrows a resource to what a view shows.
fn apply_view(memory: &mut Resource, view: &CUDA_RESOURCE_VIEW_DESC) -> CUresult {
    if memory.is_buffer {
        return Err(CUerror::INVALID_VALUE);
    }
    memory.format = texture::view_format(view.format, memory.format)?;
    let (first, last) = (view.firstMipmapLevel as usize, view.lastMipmapLevel as usize);
    if first > last || last >= memory.levels.len() || view.firstLayer > view.lastLayer {
        return Err(CUerror::INVALID_VALUE);
    }
    let top = memory.levels[0];
    let size = [view.width, view.height.max(1), view.depth.max(1)];
    if size != [top.width, top.height, top.depth].map(|size| size as usize) {
        return Err(CUerror::INVALID_VALUE);
    }
    memory.levels = memory.levels[first..=last].to_vec();
    if view.lastLayer > 0 {
        let layers = view.lastLayer - view.firstLayer + 1;
        for level in &mut memory.levels {
            if view.lastLayer >= level.depth {
                return Err(CUerror::INVALID_VALUE);
            }
            level.start += u64::from(view.firstLayer) * level.slice_bytes;
            level.depth = layers;
        }
    }
    Ok(())
}

pub(crate) fn cuTexObjectDestroy(texture: CUtexObject) -> CUresult {
    driver()?.space.textures.remove(texture.0).map(drop).ok_or(CUerror::INVALID_VALUE)
}

pub(crate) fn cuTexObjectGetResourceDesc(resource: Out<CUDA_RESOURCE_DESC>, texture: CUtexObject) -> CUresult {
    resource.set(driver()?.space.textures.get(texture.0)?.resource);
    Ok(())
}

pub(crate) fn cuTexObjectGetTextureDesc(sampling: Out<CUDA_TEXTURE_DESC>, texture: CUtexObject) -> CUresult {
    sampling.set(driver()?.space.textures.get(texture.0)?.sampling);
    Ok(())
}

pub(crate) fn cuTexObjectGetResourceViewDesc(view: Out<CUDA_RESOURCE_VIEW_DESC>, texture: CUtexObject) -> CUresult {
    // The real driver describes no view with zeros.
    view.set(driver()?.space.textures.get(texture.0)?.view.unwrap_or_default());
    Ok(())
}

pub(crate) fn cuSurfObjectCreate(surface: Out<CUsurfObject>, resource: In<CUDA_RESOURCE_DESC>) -> CUresult {
    let (driver, context) = (driver()?, current()?);
    let resource = resource.0;
    if resource.resType != CUresourcetype::ARRAY || resource.flags != 0 {
        return Err(CUerror::INVALID_VALUE);
    }
    let array = driver.arrays.get(resource.as_array().0)?;
    let object = SurfaceObject {
        context_id: context.id,
        resource,
        surface: Arc::new(Surface { format: array.format, texels: array.texels }),
    };
    surface.set(CUsurfObject(driver.space.surfaces.insert(object)));
    Ok(())
}

pub(crate) fn cuSurfObjectDestroy(surface: CUsurfObject) -> CUresult {
    driver()?.space.surfaces.remove(surface.0).map(drop).ok_or(CUerror::INVALID_VALUE)
}

pub(crate) fn cuSurfObjectGetResourceDesc(resource: Out<CUDA_RESOURCE_DESC>, surface: CUsurfObject) -> CUresult {
    resource.set(driver()?.space.surfaces.get(surface.0)?.resource);
    Ok(())
}
