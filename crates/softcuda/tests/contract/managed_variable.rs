//! Managed variables: the host, and kernels in every context, use one memory.

use crate::common;

use std::sync::atomic::{AtomicU32, Ordering};

use common::managed_variable::{TEXT, word};
use common::{Context, Refused};
use freehold_driver::cuda::launch::LaunchConfig;
use freehold_driver::cuda::module::Options;
use freehold_driver::cuda::{CUcontext, CUdeviceptr, CUerror, CUlibrary, CUstream, context, library, module, pointer};

fn load(own: &Context) -> CUlibrary {
    // SAFETY: the text ends in a NUL, and there are no options.
    unsafe { library::load(&own.api, TEXT.as_ptr().cast(), &mut Options::new()) }.unwrap()
}

fn found(own: &Context, loaded: CUlibrary) -> CUdeviceptr {
    let found = library::managed(&own.api, loaded, c"shared_count").unwrap();
    assert_eq!(found.bytes, 4);
    found.base
}

/// Adds to the variable in the current context, and returns what the host sees then.
fn added(own: &Context, loaded: CUlibrary, word: &AtomicU32) -> u32 {
    let add = library::kernel(&own.api, loaded, c"add").unwrap();
    own.run(add.into(), LaunchConfig::linear(1, 3), CUstream::NULL, &[]).unwrap();
    own.finish(CUstream::NULL);
    word.load(Ordering::Acquire)
}

#[test]
fn a_managed_variable_of_a_library_exists_once_for_the_host_and_all_contexts() {
    let own = Context::create();
    let loaded = load(&own);
    let variable = found(&own, loaded);
    assert_eq!(pointer::is_managed(&own.api, variable), Ok(true));
    let word = word(variable);
    assert_eq!(word.load(Ordering::Acquire), 7);
    assert_eq!(added(&own, loaded, word), 10);
    word.store(100, Ordering::Release);
    assert_eq!(added(&own, loaded, word), 103);
    let other = own.another();
    assert_eq!(found(&other, loaded), variable);
    assert_eq!(added(&other, loaded, word), 106);
    drop(other);
    own.enter();
    assert_eq!(added(&own, loaded, word), 109);
    library::unload(&own.api, loaded).unwrap();
}

#[test]
fn a_managed_variable_is_not_found_before_its_library_is_loaded_into_a_context() {
    let own = Context::create();
    let loaded = load(&own);
    context::set_current(&own.api, CUcontext::NULL).unwrap();
    assert_eq!(library::managed(&own.api, loaded, c"shared_count").code(), CUerror::NOT_FOUND);
    own.enter();
    found(&own, loaded);
    library::unload(&own.api, loaded).unwrap();
}

#[test]
fn only_managed_variables_are_found_as_such() {
    let own = Context::create();
    let loaded = load(&own);
    assert_eq!(library::managed(&own.api, loaded, c"private_count").code(), CUerror::NOT_FOUND);
    assert_eq!(library::managed(&own.api, loaded, c"add").code(), CUerror::NOT_FOUND);
    library::unload(&own.api, loaded).unwrap();
}

#[test]
fn a_managed_variable_of_a_module_is_the_modules_own() {
    let own = Context::create();
    let load = || {
        // SAFETY: the text ends in a NUL.
        unsafe { module::load(&own.api, TEXT.as_ptr().cast()) }.unwrap()
    };
    let (first, second) = (load(), load());
    let word_of = |loaded| word(module::global(&own.api, loaded, c"shared_count").unwrap().base);
    let add = own.function(first, c"add");
    own.run(add, LaunchConfig::linear(1, 5), CUstream::NULL, &[]).unwrap();
    own.finish(CUstream::NULL);
    assert_eq!(word_of(first).load(Ordering::Acquire), 12);
    assert_eq!(word_of(second).load(Ordering::Acquire), 7);
    module::unload(&own.api, first).unwrap();
    assert_eq!(word_of(second).load(Ordering::Acquire), 7);
    module::unload(&own.api, second).unwrap();
}
