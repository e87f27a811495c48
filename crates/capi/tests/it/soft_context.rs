//! The adopted context: a program that made its own, and never the primary one, still has no primary context
//! afterwards.

use crate::fixture;

use fixture::{alloc, free, handle};
use freehold_capi::*;
use freehold_driver::cuda::{Api, CUcontext, CUdevice, context, driver, primary, stream, stream_flags};
use freehold_testing::child::{run_in_child, run_in_child_with};

const DEVICE: CUdevice = CUdevice(0);

fn api() -> Api {
    // SAFETY: the tests pass only contexts and streams that they made to the driver.
    let api = unsafe { freehold::open::open(None) }.unwrap().api;
    driver::init(&api, 0).unwrap();
    api
}

/// Uses the interface in the default stream, in a stream of the program, and without a current context.
fn use_all(api: &Api) {
    let own = handle(stream::create(api, stream_flags::NON_BLOCKING).unwrap().0);
    for stream in [handle(0), own] {
        for bytes in [512, 2 << 20] {
            let zeroed = freehold_alloc_zeroed(bytes, 0, stream);
            free(freehold_realloc(zeroed, 2 * bytes, 0, stream), stream);
        }
    }
    let block = alloc(512, own);
    assert_eq!(freehold_record_use(block, handle(0)), 0);
    let current = context::current(api).unwrap();
    context::set_current(api, CUcontext::NULL).unwrap();
    free(block, handle(0));
    free(alloc(512, handle(0)), handle(0));
    assert_eq!(freehold_stream_retire(own), 0);
    assert_eq!(freehold_trim(0, 0), 0);
    assert_eq!(context::current(api).unwrap(), CUcontext::NULL);
    context::set_current(api, current).unwrap();
}

#[test]
fn a_programs_own_context_is_adopted() {
    run_in_child("a_programs_own_context_is_adopted", || {
        let api = api();
        let own = context::create(&api, DEVICE, 0).unwrap();
        use_all(&api);
        assert!(!primary::state(&api, DEVICE).unwrap().active);
        assert_eq!(context::current(&api).unwrap(), own);
    });
}

#[test]
fn a_user_created_context_is_adopted_alongside_the_primary_one() {
    run_in_child("a_user_created_context_is_adopted_alongside_the_primary_one", || {
        let api = api();
        primary::retain(&api, DEVICE).unwrap();
        context::create(&api, DEVICE, 0).unwrap();
        use_all(&api);
        // The program holds the only reference to it.
        primary::release(&api, DEVICE).unwrap();
        assert!(!primary::state(&api, DEVICE).unwrap().active);
    });
}

#[test]
fn without_a_context_it_is_the_primary_one() {
    run_in_child("without_a_context_it_is_the_primary_one", || {
        let api = api();
        free(alloc(512, handle(0)), handle(0));
        assert!(primary::state(&api, DEVICE).unwrap().active);
        assert_eq!(context::current(&api).unwrap(), CUcontext::NULL);
    });
}

#[test]
fn a_context_of_another_device_is_not_adopted() {
    run_in_child_with("a_context_of_another_device_is_not_adopted", &[("FREEHOLD_SOFT_DEVICES", "2")], || {
        let api = api();
        context::create(&api, CUdevice(1), 0).unwrap();
        let block = alloc(512, handle(0));
        assert!(primary::state(&api, DEVICE).unwrap().active);
        assert!(!primary::state(&api, CUdevice(1)).unwrap().active);
        let other = freehold_alloc(512, 1, handle(0));
        assert!(!other.is_null());
        assert!(!primary::state(&api, CUdevice(1)).unwrap().active);
        assert_eq!(freehold_try_free(block, 0, 1, handle(0)), FreeholdError::WrongDevice as i32);
        assert_eq!(freehold_try_free(other, 0, 0, handle(0)), FreeholdError::WrongDevice as i32);
        assert_eq!((freehold_live_bytes(0), freehold_live_bytes(1)), (512, 512));
        free(block, handle(0));
        assert_eq!(freehold_try_free(other, 0, 1, handle(0)), 0);
    });
}
