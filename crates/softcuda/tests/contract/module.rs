//! Modules: the forms of an image, its contents, and its lifetime.

use crate::common;

use std::ffi::CStr;

use common::kernels::{NAMES, TEXT};
use common::{Context, Gate, Refused, at};
use freehold_driver::cuda::launch::LaunchConfig;
use freehold_driver::cuda::module::Options;
use freehold_driver::cuda::{
    CUcontext, CUerror, CUjit_option, CUmemorytype, CUmodule, CUstream, context, function, memory, module, pointer,
};

#[test]
fn an_image_may_be_overwritten_as_soon_as_it_is_loaded() {
    let own = Context::create();
    let mut text = TEXT.to_bytes_with_nul().to_vec();
    // SAFETY: the text ends in a NUL.
    let loaded = unsafe { module::load(&own.api, text.as_ptr().cast()) }.unwrap();
    text.fill(0xff);
    let to = own.block(128);
    let store = own.function(loaded, c"store");
    own.run(store, LaunchConfig::linear(1, 32), CUstream::NULL, &[to.0.into(), 5u32.into()]).unwrap();
    assert_eq!(own.read(at(to, 124), 4), 36u32.to_le_bytes());
}

#[test]
fn the_same_image_loaded_twice_has_separate_variables() {
    let own = Context::create();
    let (one, two) = (own.module(), own.module());
    assert_ne!(one, two);
    let (mine, yours) = (module::global(&own.api, one, c"counter"), module::global(&own.api, two, c"counter"));
    assert_ne!(mine.unwrap().base, yours.unwrap().base);
    own.run(own.function(one, c"multiply"), LaunchConfig::linear(1, 1), CUstream::NULL, &[]).unwrap();
    assert_eq!(own.read(mine.unwrap().base, 4), 21u32.to_le_bytes());
    assert_eq!(own.read(yours.unwrap().base, 4), 7u32.to_le_bytes());
    module::unload(&own.api, one).unwrap();
    own.run(own.function(two, c"multiply"), LaunchConfig::linear(1, 1), CUstream::NULL, &[]).unwrap();
    assert_eq!(own.read(yours.unwrap().base, 4), 21u32.to_le_bytes());
}

#[test]
fn a_function_of_an_unloaded_module_is_an_invalid_handle() {
    let own = Context::create();
    let loaded = own.module();
    let nothing = own.function(loaded, c"nothing");
    module::unload(&own.api, loaded).unwrap();
    assert_eq!(own.run(nothing, LaunchConfig::linear(1, 1), CUstream::NULL, &[]).code(), CUerror::INVALID_HANDLE);
}

#[test]
fn unloading_waits_for_pending_launches() {
    let own = Context::create();
    let (gate, stream, done) = (Gate::closed(&own), own.stream(), own.block(4));
    own.write(done, &[0; 4]);
    let loaded = own.module();
    let store = own.function(loaded, c"store");
    // Once without a gate: the first launch may wait for the whole device.
    own.run(store, LaunchConfig::linear(1, 1), stream, &[done.0.into(), 0u32.into()]).unwrap();
    own.finish(stream);
    gate.hold(&own.api, stream);
    own.run(store, LaunchConfig::linear(1, 1), stream, &[done.0.into(), 9u32.into()]).unwrap();
    gate.opened_during(|| module::unload(&own.api, loaded)).unwrap();
    own.finish(stream);
    assert_eq!(own.read(done, 4), 9u32.to_le_bytes());
}

#[test]
fn names_that_a_module_has_not_are_not_found() {
    let own = Context::create();
    let loaded = own.module();
    assert_eq!(module::function(&own.api, loaded, c"no_such").code(), CUerror::NOT_FOUND);
    assert_eq!(module::function(&own.api, loaded, c"counter").code(), CUerror::NOT_FOUND);
    assert_eq!(module::global(&own.api, loaded, c"no_such").code(), CUerror::NOT_FOUND);
}

#[test]
fn no_name_and_the_name_of_a_kernel_are_an_invalid_value() {
    let own = Context::create();
    let loaded = own.module();
    assert_eq!(module::function(&own.api, loaded, c"").code(), CUerror::INVALID_VALUE);
    assert_eq!(module::global(&own.api, loaded, c"").code(), CUerror::INVALID_VALUE);
    assert_eq!(module::global(&own.api, loaded, c"store").code(), CUerror::INVALID_VALUE);
}

#[test]
fn a_variable_is_memory_of_the_modules_context_with_its_initial_value() {
    let own = Context::create();
    let loaded = own.module();
    let counter = module::global(&own.api, loaded, c"counter").unwrap();
    assert_eq!(counter.bytes, 4);
    assert_eq!(own.read(counter.base, 4), 7u32.to_le_bytes());
    let table = module::global(&own.api, loaded, c"table").unwrap();
    assert_eq!(table.bytes, 24);
    assert_eq!(own.byte(table.base, 24), 0);
    assert_eq!(pointer::context(&own.api, counter.base), Ok(own.handle));
    assert_eq!(pointer::memory_type(&own.api, counter.base), Ok(CUmemorytype::DEVICE));
    assert_eq!(memory::free(&own.api, counter.base).code(), CUerror::INVALID_VALUE);
}

#[test]
fn a_constant_is_written_by_the_host_for_kernels_to_read() {
    let own = Context::create();
    let loaded = own.module();
    let factor = module::global(&own.api, loaded, c"factor").unwrap();
    assert_eq!(factor.bytes, 4);
    own.write(factor.base, &10u32.to_le_bytes());
    own.run(own.function(loaded, c"multiply"), LaunchConfig::linear(1, 1), CUstream::NULL, &[]).unwrap();
    let counter = module::global(&own.api, loaded, c"counter").unwrap();
    assert_eq!(own.read(counter.base, 4), 70u32.to_le_bytes());
}

#[test]
fn every_kernel_of_a_module_is_counted_and_listed() {
    let own = Context::create();
    let loaded = own.module();
    assert_eq!(module::function_count(&own.api, loaded), Ok(NAMES.len() as u32));
    let listed = module::functions(&own.api, loaded, NAMES.len() as u32).unwrap();
    let mut names: Vec<_> = listed.iter().map(|one| function::name(&own.api, *one).unwrap()).collect();
    names.sort_unstable();
    let mut expected = NAMES.to_vec();
    expected.sort_unstable();
    assert_eq!(names, expected);
    assert_eq!(function::module(&own.api, listed[0]), Ok(loaded));
}

#[test]
fn an_invalid_image_is_refused() {
    let own = Context::create();
    for garbage in [c"", c"not an image at all"] {
        let code = own.load(garbage).code();
        assert!(matches!(code, CUerror::INVALID_IMAGE | CUerror::INVALID_PTX), "{garbage:?}: {code}");
    }
    // SAFETY: null is refused unread.
    assert_eq!(unsafe { module::load(&own.api, std::ptr::null()) }.code(), CUerror::INVALID_VALUE);
    assert_eq!(module::load_file(&own.api, c"/nowhere/image.ptx").code(), CUerror::FILE_NOT_FOUND);
}

/// A text with a mistake in its eighth line.
const WRONG: &CStr = c"
.version 8.0
.target sm_80
.address_size 64
.visible .entry wrong()
{
    .reg .b32 %r<2>;
    add.nonsense %r1, %r1, 1;
    ret;
}
";

#[test]
fn a_wrong_text_is_invalid_ptx_and_the_log_names_the_line() {
    let own = Context::create();
    assert_eq!(own.load(WRONG).code(), CUerror::INVALID_PTX);
    let mut log = vec![0u8; 4096];
    let mut options = Options::new()
        .with(CUjit_option::ERROR_LOG_BUFFER, log.as_mut_ptr() as usize)
        .with(CUjit_option::ERROR_LOG_BUFFER_SIZE_BYTES, log.len());
    // SAFETY: the text ends in a NUL, and the log has as many bytes as the options say.
    let refused = unsafe { module::load_with(&own.api, WRONG.as_ptr().cast(), &mut options) };
    assert_eq!(refused.code(), CUerror::INVALID_PTX);
    let log = CStr::from_bytes_until_nul(&log).unwrap().to_str().unwrap();
    assert!(log.contains("line 8; error"), "{log}");
    let written = options.value(CUjit_option::ERROR_LOG_BUFFER_SIZE_BYTES).unwrap() & 0xffff_ffff;
    assert!((log.len()..=log.len() + 1).contains(&written), "{written} of {}", log.len());
}

#[test]
fn a_text_that_is_too_new_is_refused() {
    let own = Context::create();
    let text = c".version 99.0\n.target sm_80\n.address_size 64\n";
    assert_eq!(own.load(text).code(), CUerror::UNSUPPORTED_PTX_VERSION);
}

#[test]
fn a_second_unload_is_an_invalid_handle() {
    let own = Context::create();
    let loaded = own.module();
    module::unload(&own.api, loaded).unwrap();
    assert_eq!(module::unload(&own.api, CUmodule::NULL).code(), CUerror::INVALID_HANDLE);
}

#[test]
fn a_module_needs_a_context() {
    let own = Context::create();
    context::set_current(&own.api, CUcontext::NULL).unwrap();
    assert_eq!(own.load(TEXT).code(), CUerror::INVALID_CONTEXT);
    own.enter();
}

#[test]
fn a_module_gives_its_memory_back() {
    let own = Context::create();
    let loaded = own.module();
    let counter = module::global(&own.api, loaded, c"counter").unwrap();
    module::unload(&own.api, loaded).unwrap();
    assert_eq!(pointer::memory_type(&own.api, counter.base).code(), CUerror::INVALID_VALUE);
}
