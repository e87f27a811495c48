//! Kernels without exact bounds, `FREEHOLD_SOFT_CHECKS=0`: an access may go anywhere in the pages of a block, as on hardware.

use crate::common;

use std::ffi::CStr;

use common::kernels::Argument;
use common::{Context, child};
use freehold_driver::cuda::launch::LaunchConfig;
use freehold_driver::cuda::{CUerror, CUstream, memory, module, stream};

const UNCHECKED: (&str, &str) = ("FREEHOLD_SOFT_CHECKS", "0");

/// The size of a page of device memory.
const PAGE: u64 = 2 << 20;

const TEXT: &CStr = c"
.version 8.0
.target sm_80
.address_size 64
.extern .shared .align 4 .b8 dynamic[];

.visible .entry increment(.param .u64 at)
{
    .reg .b64 %at;
    .reg .b32 %r;
    ld.param.u64 %at, [at];
    ld.global.u32 %r, [%at];
    add.u32 %r, %r, 1;
    st.global.u32 [%at], %r;
    ret;
}

.visible .entry shared(.param .u32 at)
{
    .reg .b32 %r<4>;
    mov.u32 %r1, dynamic;
    ld.param.u32 %r2, [at];
    add.u32 %r1, %r1, %r2;
    ld.shared.u32 %r3, [%r1];
    st.shared.u32 [%r1], %r3;
    ret;
}
";

/// In a text of its own, because its variable takes device memory.
const CONSTANT: &CStr = c"
.version 8.0
.target sm_80
.address_size 64
.visible .const .align 4 .u32 fixed = 3;

.visible .entry set_fixed()
{
    .reg .b64 %at<3>;
    mov.u64 %at1, fixed;
    cvta.const.u64 %at2, %at1;
    st.u32 [%at2], 4;
    ret;
}
";

/// Runs the body of the test `name` in its own process, because settings and faults hold for a process.
fn unchecked(name: &str, body: impl FnOnce(&Context)) {
    child::run_in_child_with(name, &[UNCHECKED], || {
        let own = Context::create();
        body(&own);
        std::mem::forget(own);
    });
}

fn run(own: &Context, name: &CStr, shared_bytes: u32, arguments: &[Argument]) -> Result<(), CUerror> {
    let function = own.function(own.load(TEXT).unwrap(), name);
    let shape = LaunchConfig { shared_bytes, ..LaunchConfig::linear(1, 1) };
    own.run(function, shape, CUstream::NULL, arguments).unwrap();
    stream::synchronize(&own.api, CUstream::NULL).map_err(|error| error.code)
}

#[test]
fn an_access_between_blocks_of_a_page_succeeds_and_one_beyond_the_page_faults() {
    unchecked("an_access_between_blocks_of_a_page_succeeds_and_one_beyond_the_page_faults", |own| {
        let block = own.block(40);
        assert_eq!(run(own, c"increment", 0, &[(block.0 + 40).into()]), Ok(()));
        let page = block.0 - block.0 % PAGE;
        assert_eq!(run(own, c"increment", 0, &[(page + PAGE - 4).into()]), Ok(()));
        assert_eq!(run(own, c"increment", 0, &[(page + PAGE).into()]), Err(CUerror::ILLEGAL_ADDRESS));
    });
}

#[test]
fn an_access_to_a_freed_block_of_a_used_page_succeeds_and_to_a_freed_page_faults() {
    unchecked("an_access_to_a_freed_block_of_a_used_page_succeeds_and_to_a_freed_page_faults", |own| {
        let (first, second) = (own.block(512), own.block(512));
        memory::free(&own.api, first).unwrap();
        assert_eq!(run(own, c"increment", 0, &[first.0.into()]), Ok(()));
        memory::free(&own.api, second).unwrap();
        assert_eq!(run(own, c"increment", 0, &[first.0.into()]), Err(CUerror::ILLEGAL_ADDRESS));
    });
}

#[test]
fn a_large_block_ends_at_its_last_page() {
    unchecked("a_large_block_ends_at_its_last_page", |own| {
        let block = own.block((3 << 20) + 4);
        assert_eq!(run(own, c"increment", 0, &[(block.0 + (4 << 20) - 4).into()]), Ok(()));
        assert_eq!(run(own, c"increment", 0, &[(block.0 + (4 << 20)).into()]), Err(CUerror::ILLEGAL_ADDRESS));
    });
}

#[test]
fn shared_memory_ends_at_a_multiple_of_128_bytes() {
    unchecked("shared_memory_ends_at_a_multiple_of_128_bytes", |own| {
        assert_eq!(run(own, c"shared", 28, &[28u32.into()]), Ok(()));
        assert_eq!(run(own, c"shared", 28, &[124u32.into()]), Ok(()));
        assert_eq!(run(own, c"shared", 28, &[128u32.into()]), Err(CUerror::ILLEGAL_ADDRESS));
    });
}

#[test]
fn a_constant_can_be_written_through_its_generic_address() {
    unchecked("a_constant_can_be_written_through_its_generic_address", |own| {
        let loaded = own.load(CONSTANT).unwrap();
        let fixed = module::global(&own.api, loaded, c"fixed").unwrap().base;
        own.run(own.function(loaded, c"set_fixed"), LaunchConfig::linear(1, 1), CUstream::NULL, &[]).unwrap();
        assert_eq!(own.read(fixed, 4), 4u32.to_le_bytes());
    });
}
