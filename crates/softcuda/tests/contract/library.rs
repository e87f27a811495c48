//! Libraries: images without a context, and kernels that are launched in any context.

use crate::common;

use common::kernels::{NAMES, TEXT};
use common::{Context, Refused};
use freehold_driver::cuda::launch::LaunchConfig;
use freehold_driver::cuda::module::Options;
use freehold_driver::cuda::{
    CUcontext, CUerror, CUfunction_attribute, CUlibrary, CUstream, context, function, kernel, library, module,
};

fn load(own: &Context) -> CUlibrary {
    // SAFETY: the text ends in a NUL, and there are no options.
    unsafe { library::load(&own.api, TEXT.as_ptr().cast(), &mut Options::new()) }.unwrap()
}

#[test]
fn a_library_is_loaded_without_a_context_and_its_kernel_launched_in_two() {
    let own = Context::create();
    context::set_current(&own.api, CUcontext::NULL).unwrap();
    let loaded = load(&own);
    let multiply = library::kernel(&own.api, loaded, c"multiply").unwrap();
    own.enter();
    own.run(multiply.into(), LaunchConfig::linear(1, 1), CUstream::NULL, &[]).unwrap();
    let mine = library::global(&own.api, loaded, c"counter").unwrap();
    assert_eq!(own.read(mine.base, 4), 21u32.to_le_bytes());
    let other = own.another();
    let yours = library::global(&own.api, loaded, c"counter").unwrap();
    assert_ne!(mine.base, yours.base);
    assert_eq!(other.read(yours.base, 4), 7u32.to_le_bytes());
    own.run(multiply.into(), LaunchConfig::linear(1, 1), CUstream::NULL, &[]).unwrap();
    assert_eq!(other.read(yours.base, 4), 21u32.to_le_bytes());
    drop(other);
    own.enter();
    library::unload(&own.api, loaded).unwrap();
}

#[test]
fn kernels_know_their_names_their_library_and_their_functions() {
    let own = Context::create();
    let loaded = load(&own);
    assert_eq!(library::kernel_count(&own.api, loaded), Ok(NAMES.len() as u32));
    let kernels = library::kernels(&own.api, loaded, NAMES.len() as u32).unwrap();
    let mut names: Vec<_> = kernels.iter().map(|one| kernel::name(&own.api, *one).unwrap()).collect();
    names.sort_unstable();
    let mut expected = NAMES.to_vec();
    expected.sort_unstable();
    assert_eq!(names, expected);
    let store = library::kernel(&own.api, loaded, c"store").unwrap();
    assert_eq!(kernel::library(&own.api, store), Ok(loaded));
    let as_function = kernel::function(&own.api, store).unwrap();
    assert_eq!(function::name(&own.api, as_function).unwrap(), "store");
    assert_eq!(function::module(&own.api, as_function), library::module(&own.api, loaded));
    let second = kernel::parameter(&own.api, store, 1).unwrap();
    assert_eq!((second.offset, second.bytes), (8, 4));
}

#[test]
fn names_that_a_library_has_not_are_not_found() {
    let own = Context::create();
    let loaded = load(&own);
    assert_eq!(library::kernel(&own.api, loaded, c"no_such").code(), CUerror::NOT_FOUND);
    assert_eq!(library::global(&own.api, loaded, c"no_such").code(), CUerror::NOT_FOUND);
    assert_eq!(library::managed(&own.api, loaded, c"counter").code(), CUerror::NOT_FOUND);
}

#[test]
fn the_module_of_a_library_ends_with_the_library_alone() {
    let own = Context::create();
    let loaded = load(&own);
    let inside = library::module(&own.api, loaded).unwrap();
    assert_eq!(library::module(&own.api, loaded), Ok(inside));
    assert_eq!(module::unload(&own.api, inside).code(), CUerror::NOT_PERMITTED);
    let nothing = own.function(inside, c"nothing");
    own.run(nothing, LaunchConfig::linear(1, 1), CUstream::NULL, &[]).unwrap();
    own.finish(CUstream::NULL);
}

#[test]
fn what_is_set_of_a_kernel_counts_for_its_function() {
    let own = Context::create();
    let loaded = load(&own);
    let nothing = library::kernel(&own.api, loaded, c"nothing").unwrap();
    let at = CUfunction_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES;
    assert_eq!(kernel::attribute(&own.api, nothing, at, own.device), Ok(48 << 10));
    kernel::set_attribute(&own.api, nothing, at, 64 << 10, own.device).unwrap();
    assert_eq!(kernel::attribute(&own.api, nothing, at, own.device), Ok(64 << 10));
    let shape = LaunchConfig { shared_bytes: 64 << 10, ..LaunchConfig::linear(1, 1) };
    own.run(nothing.into(), shape, CUstream::NULL, &[]).unwrap();
    own.finish(CUstream::NULL);
}
