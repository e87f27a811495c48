//! Arrays, textures and surfaces: their memory, descriptions, copies, and rejected parameters.

use std::ffi::c_void;

use crate::common;

use common::{Context, Refused};
use freehold_driver::cuda::{
    Api, CUDA_ARRAY3D_DESCRIPTOR, CUDA_MEMCPY3D, CUDA_RESOURCE_DESC, CUDA_TEXTURE_DESC, CUarray, CUarray_format,
    CUdeviceptr, CUerror, CUfilter_mode, CUfunction, CUmemorytype, CUmipmappedArray, CUresourcetype, CUstream,
    CUtexObject, ResourceMemory, array, array_flags, context, copy, memory, module, texture, texture_flags,
};

fn described(size: [usize; 3], format: CUarray_format, channels: u32, flags: u32) -> CUDA_ARRAY3D_DESCRIPTOR {
    let [width, height, depth] = size;
    CUDA_ARRAY3D_DESCRIPTOR {
        Width: width,
        Height: height,
        Depth: depth,
        Format: format,
        NumChannels: channels,
        Flags: flags,
    }
}

fn floats(size: [usize; 3]) -> CUDA_ARRAY3D_DESCRIPTOR {
    described(size, CUarray_format::FLOAT, 1, 0)
}

/// Copies a box of bytes to an array or from it.
fn copy_box(
    own: &Context,
    array: CUarray,
    host: *mut c_void,
    to_array: bool,
    at: [usize; 3],
    size: [usize; 3],
) -> Result<(), CUerror> {
    let mut copy = CUDA_MEMCPY3D { WidthInBytes: size[0], Height: size[1], Depth: size[2], ..CUDA_MEMCPY3D::default() };
    if to_array {
        (copy.srcMemoryType, copy.srcHost, copy.srcPitch, copy.srcHeight) =
            (CUmemorytype::HOST, host.addr(), size[0], size[1]);
        (copy.dstMemoryType, copy.dstArray) = (CUmemorytype::ARRAY, array);
        [copy.dstXInBytes, copy.dstY, copy.dstZ] = at;
    } else {
        (copy.dstMemoryType, copy.dstHost, copy.dstPitch, copy.dstHeight) =
            (CUmemorytype::HOST, host.addr(), size[0], size[1]);
        (copy.srcMemoryType, copy.srcArray) = (CUmemorytype::ARRAY, array);
        [copy.srcXInBytes, copy.srcY, copy.srcZ] = at;
    }
    // SAFETY: the caller's slice has the bytes of the box, and outlives the call.
    unsafe { copy::volume(&own.api, &copy) }.map_err(|error| error.code)
}

#[test]
fn an_array_keeps_its_description() {
    let own = Context::create();
    let all = [
        floats([7, 0, 0]),
        described([7, 5, 0], CUarray_format::UNSIGNED_INT8, 4, array_flags::SURFACE_LDST),
        described([4, 4, 6], CUarray_format::HALF, 2, array_flags::CUBEMAP),
        described([4, 0, 3], CUarray_format::SIGNED_INT16, 1, array_flags::LAYERED),
    ];
    for descriptor in all {
        let made = array::create(&own.api, &descriptor).unwrap();
        assert_eq!(array::descriptor(&own.api, made).unwrap(), descriptor);
        array::destroy(&own.api, made).unwrap();
    }
}

#[test]
fn a_destroyed_array_is_an_invalid_handle() {
    let own = Context::create();
    let made = array::create(&own.api, &floats([4, 4, 0])).unwrap();
    array::destroy(&own.api, made).unwrap();
    assert_eq!(array::destroy(&own.api, CUarray::NULL).code(), CUerror::INVALID_HANDLE);
    let mipmap = array::create_mipmapped(&own.api, &floats([8, 8, 0]), 3).unwrap();
    assert_eq!(array::level(&own.api, mipmap, 3).code(), CUerror::INVALID_VALUE);
    array::destroy_mipmapped(&own.api, mipmap).unwrap();
    assert_eq!(array::destroy_mipmapped(&own.api, CUmipmappedArray::NULL).code(), CUerror::INVALID_HANDLE);
}

#[test]
fn the_memory_of_arrays_is_counted_and_ends_with_its_context() {
    let own = Context::create();
    let before = memory::info(&own.api).unwrap().free_bytes;
    let other = context::create(&own.api, own.device, 0).unwrap();
    let bytes = 64 << 20;
    array::create(&own.api, &described([4096, 1024, 0], CUarray_format::FLOAT, 4, 0)).unwrap();
    let free = memory::info(&own.api).unwrap().free_bytes;
    assert!(free + bytes <= before, "{free} bytes are free of {before}");
    context::destroy(&own.api, other).unwrap();
    context::set_current(&own.api, own.handle).unwrap();
    assert!(memory::info(&own.api).unwrap().free_bytes >= free + bytes);
}

#[test]
fn boxes_are_copied_to_and_from_an_array() {
    let own = Context::create();
    let made = array::create(&own.api, &described([6, 4, 3], CUarray_format::UNSIGNED_INT16, 1, 0)).unwrap();
    let mut all: Vec<u8> = (0..144).collect();
    copy_box(&own, made, all.as_mut_ptr().cast(), true, [0; 3], [12, 4, 3]).unwrap();
    let mut part = [0u8; 16];
    copy_box(&own, made, part.as_mut_ptr().cast(), false, [2, 1, 1], [4, 2, 2]).unwrap();
    let expected: Vec<u8> = [62, 74, 110, 122].iter().flat_map(|&first| first..first + 4).collect();
    assert_eq!(part.as_slice(), expected);
    let outside = copy_box(&own, made, part.as_mut_ptr().cast(), false, [10, 0, 0], [4, 1, 1]);
    assert_eq!(outside, Err(CUerror::INVALID_VALUE));
    array::destroy(&own.api, made).unwrap();
}

#[test]
fn a_row_is_copied_by_its_bytes() {
    let own = Context::create();
    let [one, two] = [(); 2].map(|()| array::create(&own.api, &floats([8, 0, 0])).unwrap());
    let bytes: Vec<u8> = (0..32).collect();
    array::host_to_array(&own.api, one, 0, &bytes).unwrap();
    array::host_to_array(&own.api, two, 0, &[0; 32]).unwrap();
    array::array_to_array(&own.api, two, 8, one, 4, 16).unwrap();
    let mut back = [0; 32];
    array::array_to_host(&own.api, &mut back, two, 0).unwrap();
    assert_eq!(back[8..24], bytes[4..20]);
    assert_eq!((back[7], back[24]), (0, 0));
    [one, two].iter().for_each(|&array| array::destroy(&own.api, array).unwrap());
}

const FETCH: &str = ".version 7.8\n.target sm_75\n.address_size 64\n\
    .visible .entry fetch(.param .u64 out, .param .u64 texture)\n{\n.reg .b64 %d<4>; .reg .f32 %f<8>; .reg .b32 %r<4>;\n\
    ld.param.u64 %d1, [out]; ld.param.u64 %d2, [texture];\nmov.u32 %r1, %tid.x; cvt.rn.f32.u32 %f1, %r1; \
    mul.f32 %f1, %f1, 0f3f000000; mov.f32 %f2, 0f3f800000;\n\
    tex.2d.v4.f32.f32 {%f3, %f4, %f5, %f6}, [%d2, {%f1, %f2}];\n\
    mad.wide.u32 %d1, %r1, 4, %d1; st.global.f32 [%d1], %f3;\nret;\n}\n\0";

/// Samples a texture at x = 0, 1/2, 1, ... and y = 1.
fn fetch(api: &Api, texture: CUtexObject) -> Vec<f32> {
    // SAFETY: the text ends in a NUL and outlives the call.
    let module = unsafe { module::load(api, FETCH.as_ptr().cast()) }.unwrap();
    let function: CUfunction = module::function(api, module, c"fetch").unwrap();
    let out = memory::alloc(api, 32).unwrap();
    launch_fetch(api, function, out, texture);
    let mut bytes = [0; 32];
    copy::device_to_host(api, &mut bytes, out).unwrap();
    memory::free(api, out).unwrap();
    module::unload(api, module).unwrap();
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

fn launch_fetch(api: &Api, function: CUfunction, out: CUdeviceptr, texture: CUtexObject) {
    let (mut out, mut texture) = (out.0, texture.0 as u64);
    let mut arguments = [(&raw mut out).cast::<c_void>(), (&raw mut texture).cast()];
    // SAFETY: the kernel has two parameters of 64 bits, which outlive the call.
    unsafe {
        (api.cuLaunchKernel)(
            function,
            1,
            1,
            1,
            8,
            1,
            1,
            0,
            CUstream::NULL,
            arguments.as_mut_ptr(),
            std::ptr::null_mut(),
        )
    }
    .unwrap();
}

#[test]
fn a_texture_is_sampled_by_its_filter() {
    let own = Context::create();
    let made = array::create(&own.api, &floats([4, 2, 0])).unwrap();
    let mut texels = [1.0f32, 2.0, 4.0, 8.0, 1.0, 2.0, 4.0, 8.0];
    copy_box(&own, made, texels.as_mut_ptr().cast(), true, [0; 3], [16, 2, 1]).unwrap();
    let from = CUDA_RESOURCE_DESC::array(made);
    let point = CUDA_TEXTURE_DESC { flags: texture_flags::READ_AS_INTEGER, ..CUDA_TEXTURE_DESC::default() };
    let linear = CUDA_TEXTURE_DESC { filterMode: CUfilter_mode::LINEAR, ..point };
    for (sampling, expected) in
        [(point, [1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 8.0, 8.0]), (linear, [1.0, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0])]
    {
        let texture = texture::create(&own.api, &from, &sampling, None).unwrap();
        assert_eq!(texture::resource(&own.api, texture).unwrap().as_array(), made);
        assert_eq!(texture::sampling(&own.api, texture).unwrap().filterMode, sampling.filterMode);
        assert_eq!(fetch(&own.api, texture), expected);
        texture::destroy(&own.api, texture).unwrap();
    }
    array::destroy(&own.api, made).unwrap();
}

#[test]
fn textures_of_wrong_memory_are_refused() {
    let own = Context::create();
    let block = memory::alloc(&own.api, 4096).unwrap();
    let memory_of =
        |start, format, channels| ResourceMemory { start, format, channels, width: 64, height: 4, pitch_bytes: 256 };
    let create = |kind, memory: ResourceMemory| {
        texture::create(&own.api, &CUDA_RESOURCE_DESC::memory(kind, memory), &CUDA_TEXTURE_DESC::default(), None)
    };
    let good = memory_of(block, CUarray_format::FLOAT, 1);
    texture::destroy(&own.api, create(CUresourcetype::LINEAR, good).unwrap()).unwrap();
    let three = memory_of(block, CUarray_format::FLOAT, 3);
    assert_eq!(create(CUresourcetype::LINEAR, three).code(), CUerror::INVALID_VALUE);
    let uneven = ResourceMemory { width: 8, pitch_bytes: 40, ..good };
    assert_eq!(create(CUresourcetype::PITCH2D, uneven).code(), CUerror::INVALID_VALUE);
    memory::free(&own.api, block).unwrap();
}

#[test]
fn a_surface_is_of_an_array() {
    let own = Context::create();
    let made = array::create(&own.api, &floats([4, 4, 0])).unwrap();
    let surface = texture::create_surface(&own.api, &CUDA_RESOURCE_DESC::array(made)).unwrap();
    texture::destroy_surface(&own.api, surface).unwrap();
    let block = memory::alloc(&own.api, 4096).unwrap();
    let rows = ResourceMemory {
        start: block,
        format: CUarray_format::FLOAT,
        channels: 1,
        width: 8,
        height: 4,
        pitch_bytes: 64,
    };
    let rows = CUDA_RESOURCE_DESC::memory(CUresourcetype::PITCH2D, rows);
    assert_eq!(texture::create_surface(&own.api, &rows).code(), CUerror::INVALID_VALUE);
    memory::free(&own.api, block).unwrap();
    array::destroy(&own.api, made).unwrap();
}
