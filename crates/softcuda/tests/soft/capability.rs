//! The compute capability that `FREEHOLD_SOFT_CC` selects, and the device functions that every image can use.

use crate::common;

use std::ffi::CStr;

use common::kernels::pointers;
use common::{Context, Refused, child, untouched};
use freehold_driver::cuda::launch::{self, LaunchConfig};
use freehold_driver::cuda::{CUdevice_attribute, CUerror, CUfunction_attribute, CUstream, device, driver, function};

const NEWER: &CStr = c".version 8.7\n.target sm_120\n.address_size 64\n.visible .entry k() { ret; }\n";
const OTHER: &CStr = c".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry k() { ret; }\n";

/// Each block writes its word, all wait for each other, and each reads the word of the next.
const GRID_SYNC: &CStr = c"
.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b64 handle) cudaCGGetIntrinsicHandle(.param .b32 scope);
.extern .func (.param .b32 status) cudaCGSynchronize(.param .b64 handle, .param .b32 flags);
.visible .entry rotate(.param .u64 words, .param .u64 results)
{
    .reg .b64 %a, %b, %handle, %word, %result;
    .reg .b32 %block, %blocks, %next, %value, %status;
    .param .b32 scope;
    .param .b64 handle;
    .param .b32 flags;
    .param .b32 status;
    ld.param.u64 %a, [words];
    ld.param.u64 %b, [results];
    mov.u32 %block, %ctaid.x;
    mov.u32 %blocks, %nctaid.x;
    mad.wide.u32 %word, %block, 4, %a;
    add.u32 %value, %block, 100;
    st.global.u32 [%word], %value;
    st.param.b32 [scope], 1;
    call (handle), cudaCGGetIntrinsicHandle, (scope);
    ld.param.b64 %handle, [handle];
    st.param.b64 [handle], %handle;
    st.param.b32 [flags], 0;
    call (status), cudaCGSynchronize, (handle, flags);
    ld.param.b32 %status, [status];
    add.u32 %next, %block, 1;
    rem.u32 %next, %next, %blocks;
    mad.wide.u32 %word, %next, 4, %a;
    ld.global.u32 %value, [%word];
    mad.lo.u32 %value, %status, 1000, %value;
    mad.wide.u32 %result, %block, 4, %b;
    st.global.u32 [%result], %value;
    ret;
}
";

fn rotated(blocks: u32, is_cooperative: bool) -> Vec<u32> {
    let own = Context::create();
    let module = own.load(GRID_SYNC).expect("the functions are known");
    let rotate = own.function(module, c"rotate");
    let bytes = 4 * blocks as usize;
    let (words, results) = (own.block(bytes), own.block(bytes));
    own.write(words, &vec![0; bytes]);
    let mut arguments = [words.0.into(), results.0.into()];
    let config = LaunchConfig::linear(blocks, 64);
    let mut arguments = pointers(&mut arguments);
    let launched = if is_cooperative {
        // SAFETY: the kernel takes two addresses, of words that live until it has run.
        unsafe { launch::cooperative(&own.api, rotate, config, CUstream::NULL, &mut arguments) }
    } else {
        // SAFETY: as above.
        unsafe { launch::kernel(&own.api, rotate, config, CUstream::NULL, &mut arguments) }
    };
    launched.expect("the launch is valid");
    let read = own.read(results, bytes);
    read.chunks(4).map(|word| u32::from_le_bytes(word.try_into().expect("four bytes"))).collect()
}

#[test]
fn a_grid_synchronizes_through_the_functions_of_cooperative_groups() {
    assert_eq!(rotated(5, true), [101, 102, 103, 104, 100]);
    assert_eq!(rotated(1, true), [100]);
}

#[test]
fn a_grid_that_is_not_cooperative_is_told_so() {
    assert_eq!(rotated(1, false), [1100]);
}

#[test]
fn the_environment_selects_the_compute_capability() {
    child::run_in_child_with("the_environment_selects_the_compute_capability", &[("FREEHOLD_SOFT_CC", "12.0")], || {
        let own = Context::create();
        let attribute = |attribute| device::attribute(&own.api, own.device, attribute).expect("it is an attribute");
        assert_eq!(attribute(CUdevice_attribute::COMPUTE_CAPABILITY_MAJOR), 12);
        assert_eq!(attribute(CUdevice_attribute::COMPUTE_CAPABILITY_MINOR), 0);
        assert_eq!(attribute(CUdevice_attribute(39)), 1536);
        let module = own.load(NEWER).expect("the target is that of the device");
        let kernel = own.function(module, c"k");
        let of_kernel = |attribute| function::attribute(&own.api, kernel, attribute).expect("it is an attribute");
        assert_eq!(of_kernel(CUfunction_attribute::PTX_VERSION), 120);
        assert_eq!(of_kernel(CUfunction_attribute::BINARY_VERSION), 120);
        assert_eq!(own.load(OTHER).code(), CUerror::INVALID_PTX);
    });
}

#[test]
fn without_the_variable_the_compute_capability_is_9_0() {
    let own = Context::create();
    assert_eq!(own.load(NEWER).code(), CUerror::INVALID_PTX);
    own.load(OTHER).expect("the target is that of the device");
}

#[test]
fn a_wrong_compute_capability_prevents_initialization() {
    child::run_in_child_with(
        "a_wrong_compute_capability_prevents_initialization",
        &[("FREEHOLD_SOFT_CC", "hopper")],
        || {
            let (api, _) = untouched();
            assert_eq!(driver::init(&api, 0).code(), CUerror::INVALID_VALUE);
        },
    );
}
