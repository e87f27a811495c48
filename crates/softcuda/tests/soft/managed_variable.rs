//! Managed variables: the lifetime of their memory, and their use on two devices.

use crate::common;

use std::sync::atomic::Ordering;

use common::managed_variable::{TEXT, word};
use common::{Context, Refused, child};
use freehold_driver::cuda::launch::LaunchConfig;
use freehold_driver::cuda::module::Options;
use freehold_driver::cuda::{CUdevice, CUdeviceptr, CUerror, CUlibrary, CUstream, fill, library, memory, pointer};

fn load(own: &Context) -> (CUlibrary, CUdeviceptr) {
    // SAFETY: the text ends in a NUL, and there are no options.
    let loaded = unsafe { library::load(&own.api, TEXT.as_ptr().cast(), &mut Options::new()) }.unwrap();
    (loaded, library::managed(&own.api, loaded, c"shared_count").unwrap().base)
}

#[test]
fn a_managed_variable_is_freed_with_its_library_and_not_otherwise() {
    let own = Context::create();
    let (loaded, variable) = load(&own);
    assert_eq!(memory::free(&own.api, variable).code(), CUerror::INVALID_VALUE);
    assert_eq!(pointer::is_managed(&own.api, variable), Ok(true));
    library::unload(&own.api, loaded).unwrap();
    assert_eq!(pointer::is_managed(&own.api, variable).code(), CUerror::INVALID_VALUE);
}

#[test]
fn a_managed_variable_outlives_the_context_that_its_library_was_loaded_into_first() {
    let own = Context::create();
    let other = own.another();
    let (loaded, variable) = load(&other);
    word(variable).store(40, Ordering::Release);
    drop(other);
    own.enter();
    assert_eq!(library::managed(&own.api, loaded, c"shared_count").unwrap().base, variable);
    assert_eq!(word(variable).load(Ordering::Acquire), 40);
    library::unload(&own.api, loaded).unwrap();
}

#[test]
fn kernels_and_fills_of_both_devices_use_one_managed_variable() {
    let name = "kernels_and_fills_of_both_devices_use_one_managed_variable";
    child::run_in_child_with(name, &[("FREEHOLD_SOFT_DEVICES", "2")], || {
        let first = Context::create();
        let (loaded, variable) = load(&first);
        let second = first.on_device(CUdevice(1));
        let add = library::kernel(&second.api, loaded, c"add").unwrap();
        second.run(add.into(), LaunchConfig::linear(1, 4), CUstream::NULL, &[]).unwrap();
        second.finish(CUstream::NULL);
        assert_eq!(word(variable).load(Ordering::Acquire), 11);
        fill::d8(&second.api, variable, 1, 4).unwrap();
        second.finish(CUstream::NULL);
        assert_eq!(word(variable).load(Ordering::Acquire), 0x0101_0101);
        library::unload(&second.api, loaded).unwrap();
    });
}
