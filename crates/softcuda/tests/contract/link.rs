//! The linker: PTX texts that refer to each other become one image.

use crate::common;

use std::ffi::CStr;

use common::kernels::TEXT;
use common::{Context, Refused};
use freehold_driver::cuda::launch::LaunchConfig;
use freehold_driver::cuda::module::Options;
use freehold_driver::cuda::{CUerror, CUjitInputType, CUlinkState, CUstream, DriverError, link, module};

/// A kernel that calls a function of another text.
const CALLER: &CStr = c"
.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b32 result) twice(.param .b32 value);
.visible .entry call(.param .u64 to, .param .u32 value)
{
    .reg .b64 %at;
    .reg .b32 %r<3>;
    ld.param.u64 %at, [to];
    ld.param.u32 %r1, [value];
    {
        .param .b32 given;
        .param .b32 taken;
        st.param.b32 [given], %r1;
        call (taken), twice, (given);
        ld.param.b32 %r2, [taken];
    }
    st.global.u32 [%at], %r2;
    ret;
}
";

const CALLED: &CStr = c"
.version 8.0
.target sm_80
.address_size 64
.visible .func (.param .b32 result) twice(.param .b32 value)
{
    .reg .b32 %r<3>;
    ld.param.b32 %r1, [value];
    add.u32 %r2, %r1, %r1;
    st.param.b32 [result], %r2;
    ret;
}
";

fn begin(own: &Context) -> CUlinkState {
    // SAFETY: there are no options.
    unsafe { link::create(&own.api, &mut Options::new()) }.unwrap()
}

fn add(own: &Context, state: CUlinkState, text: &CStr) -> Result<(), DriverError> {
    let kind = CUjitInputType::PTX;
    // SAFETY: there are no options.
    unsafe { link::add(&own.api, state, kind, text.to_bytes_with_nul(), c"text", &mut Options::new()) }
}

#[test]
fn texts_that_need_each_other_are_linked() {
    let own = Context::create();
    let state = begin(&own);
    add(&own, state, CALLER).unwrap();
    add(&own, state, CALLED).unwrap();
    let linked = link::complete(&own.api, state).unwrap();
    assert!(linked.bytes > 0);
    // SAFETY: the image lives until the link is destroyed.
    let loaded = unsafe { module::load(&own.api, linked.start) }.unwrap();
    link::destroy(&own.api, state).unwrap();
    let (call, to) = (own.function(loaded, c"call"), own.block(4));
    own.run(call, LaunchConfig::linear(1, 1), CUstream::NULL, &[to.0.into(), 21u32.into()]).unwrap();
    assert_eq!(own.read(to, 4), 42u32.to_le_bytes());
}

#[test]
fn one_text_is_linked_by_itself() {
    let own = Context::create();
    let state = begin(&own);
    add(&own, state, TEXT).unwrap();
    let linked = link::complete(&own.api, state).unwrap();
    // SAFETY: the image lives until the link is destroyed.
    let loaded = unsafe { module::load(&own.api, linked.start) }.unwrap();
    own.run(own.function(loaded, c"nothing"), LaunchConfig::linear(1, 1), CUstream::NULL, &[]).unwrap();
    own.finish(CUstream::NULL);
    link::destroy(&own.api, state).unwrap();
}

#[test]
fn a_wrong_text_is_refused_when_it_is_added() {
    let own = Context::create();
    let state = begin(&own);
    let wrong = c".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry wrong() { nonsense; }\n";
    assert_eq!(add(&own, state, wrong).code(), CUerror::INVALID_PTX);
    link::destroy(&own.api, state).unwrap();
}

#[test]
fn a_name_that_no_text_has_keeps_the_image_from_being_made() {
    let own = Context::create();
    let state = begin(&own);
    add(&own, state, CALLER).unwrap();
    link::complete(&own.api, state).code();
    link::destroy(&own.api, state).unwrap();
}

#[test]
fn a_file_that_is_not_there_is_not_found() {
    let own = Context::create();
    let state = begin(&own);
    // SAFETY: there are no options.
    let answer =
        unsafe { link::add_file(&own.api, state, CUjitInputType::PTX, c"/nowhere/text.ptx", &mut Options::new()) };
    assert_eq!(answer.code(), CUerror::FILE_NOT_FOUND);
    link::destroy(&own.api, state).unwrap();
}
