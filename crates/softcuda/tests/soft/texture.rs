//! A texture that is destroyed while a kernel that was launched with it has not run yet.

use std::ffi::CStr;

use crate::common;

use common::{Context, Gate, Refused, child};
use freehold_driver::cuda::launch::LaunchConfig;
use freehold_driver::cuda::{
    CUDA_RESOURCE_DESC, CUDA_TEXTURE_DESC, CUarray_format, CUdeviceptr, CUerror, CUresourcetype, CUtexObject,
    ResourceMemory, stream, texture, texture_flags,
};

/// A kernel that writes the third texel.
const FETCH: &CStr = c"
.version 7.8
.target sm_75
.address_size 64
.visible .entry fetch(.param .u64 out, .param .u64 texture)
{
    .reg .b64 %d<3>;
    .reg .b32 %r<6>;
    ld.param.u64 %d1, [out];
    ld.param.u64 %d2, [texture];
    mov.u32 %r1, 2;
    tex.1d.v4.u32.s32 {%r2, %r3, %r4, %r5}, [%d2, {%r1}];
    st.global.u32 [%d1], %r2;
    ret;
}
";

/// Returns a texture of four words.
fn words(own: &Context, start: CUdeviceptr) -> CUtexObject {
    let format = CUarray_format::UNSIGNED_INT32;
    let memory = ResourceMemory { start, format, channels: 1, width: 16, ..ResourceMemory::default() };
    let resource = CUDA_RESOURCE_DESC::memory(CUresourcetype::LINEAR, memory);
    let sampling = CUDA_TEXTURE_DESC { flags: texture_flags::READ_AS_INTEGER, ..CUDA_TEXTURE_DESC::default() };
    texture::create(&own.api, &resource, &sampling, None).unwrap()
}

#[test]
fn a_texture_that_is_destroyed_after_the_launch_is_still_read() {
    let own = Context::create();
    let (block, out) = (own.block(16), own.block(4));
    own.write(block, &[1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0]);
    let (texture, stream, gate) = (words(&own, block), own.stream(), Gate::closed(&own));
    let fetch = own.function(own.load(FETCH).unwrap(), c"fetch");
    gate.hold(&own.api, stream);
    own.run(fetch, LaunchConfig::linear(1, 1), stream, &[out.0.into(), (texture.0 as u64).into()]).unwrap();
    texture::destroy(&own.api, texture).unwrap();
    assert_eq!(texture::resource(&own.api, texture).code(), CUerror::INVALID_VALUE);
    gate.open();
    own.finish(stream);
    assert_eq!(own.read(out, 4), [3, 0, 0, 0]);
}

#[test]
fn a_texture_that_was_destroyed_before_the_launch_is_a_fault() {
    child::run_in_child("a_texture_that_was_destroyed_before_the_launch_is_a_fault", || {
        let own = Context::create();
        let (block, out, stream) = (own.block(16), own.block(4), own.stream());
        let texture = words(&own, block);
        let fetch = own.function(own.load(FETCH).unwrap(), c"fetch");
        texture::destroy(&own.api, texture).unwrap();
        own.run(fetch, LaunchConfig::linear(1, 1), stream, &[out.0.into(), (texture.0 as u64).into()]).unwrap();
        assert_eq!(stream::synchronize(&own.api, stream).code(), CUerror::ILLEGAL_INSTRUCTION);
        std::mem::forget(own);
    });
}
