//! Functions: attributes and settings of a kernel.

use crate::common;

use common::{Context, Refused};
use freehold_driver::cuda::{
    CUerror, CUfunc_cache, CUfunction, CUfunction_attribute, CUfunctionLoadingState, function,
};

#[test]
fn a_function_has_the_attributes_of_its_text() {
    let own = Context::create();
    let loaded = own.module();
    let told = |name, at| function::attribute(&own.api, own.function(loaded, name), at);
    assert_eq!(told(c"nothing", CUfunction_attribute::MAX_THREADS_PER_BLOCK), Ok(1024));
    assert_eq!(told(c"bounded", CUfunction_attribute::MAX_THREADS_PER_BLOCK), Ok(64));
    assert_eq!(told(c"required", CUfunction_attribute::MAX_THREADS_PER_BLOCK), Ok(1024));
    assert_eq!(told(c"nothing", CUfunction_attribute::SHARED_SIZE_BYTES), Ok(0));
    assert_eq!(told(c"sharing", CUfunction_attribute::SHARED_SIZE_BYTES), Ok(1024));
    assert_eq!(told(c"nothing", CUfunction_attribute::LOCAL_SIZE_BYTES), Ok(0));
    assert_eq!(told(c"multiply", CUfunction_attribute::CONST_SIZE_BYTES), Ok(4));
    assert_eq!(told(c"nothing", CUfunction_attribute::PTX_VERSION), Ok(80));
    assert_eq!(told(c"nothing", CUfunction_attribute::BINARY_VERSION), Ok(90));
    assert_eq!(told(c"sharing", CUfunction_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES), Ok(47 << 10));
    let registers = told(c"store", CUfunction_attribute::NUM_REGS).unwrap();
    assert!((1..=255).contains(&registers), "{registers} registers");
    assert_eq!(told(c"nothing", CUfunction_attribute(16)).code(), CUerror::INVALID_VALUE);
}

#[test]
fn the_limit_of_dynamic_shared_memory_goes_up_to_227_kib_with_the_static() {
    let own = Context::create();
    let sharing = own.kernel(c"sharing");
    let at = CUfunction_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES;
    function::set_attribute(&own.api, sharing, at, 226 << 10).unwrap();
    assert_eq!(function::attribute(&own.api, sharing, at), Ok(226 << 10));
    let beyond = function::set_attribute(&own.api, sharing, at, (226 << 10) + 1);
    assert_eq!(beyond.code(), CUerror::INVALID_VALUE);
    assert_eq!(function::set_attribute(&own.api, sharing, at, -1).code(), CUerror::INVALID_VALUE);
}

#[test]
fn the_carveout_is_a_percentage_or_minus_one() {
    let own = Context::create();
    let nothing = own.kernel(c"nothing");
    let at = CUfunction_attribute::PREFERRED_SHARED_MEMORY_CARVEOUT;
    assert_eq!(function::attribute(&own.api, nothing, at), Ok(-1));
    function::set_attribute(&own.api, nothing, at, 50).unwrap();
    assert_eq!(function::attribute(&own.api, nothing, at), Ok(50));
    assert_eq!(function::set_attribute(&own.api, nothing, at, 101).code(), CUerror::INVALID_VALUE);
    assert_eq!(function::set_attribute(&own.api, nothing, at, -2).code(), CUerror::INVALID_VALUE);
}

#[test]
fn the_cache_of_a_function_is_one_of_four() {
    let own = Context::create();
    let nothing = own.kernel(c"nothing");
    function::set_cache_config(&own.api, nothing, CUfunc_cache::PREFER_L1).unwrap();
    assert_eq!(function::set_cache_config(&own.api, nothing, CUfunc_cache(9)).code(), CUerror::INVALID_VALUE);
}

#[test]
fn a_function_is_loaded_when_it_is_asked_to() {
    let own = Context::create();
    let nothing = own.kernel(c"nothing");
    function::load(&own.api, nothing).unwrap();
    assert_eq!(function::loading_state(&own.api, nothing), Ok(CUfunctionLoadingState::LOADED));
}

#[test]
fn a_null_function_has_no_attributes() {
    let own = Context::create();
    let at = CUfunction_attribute::NUM_REGS;
    assert_eq!(function::attribute(&own.api, CUfunction::NULL, at).code(), CUerror::INVALID_HANDLE);
}

#[test]
fn a_block_shape_is_of_at_least_one_thread_each_way() {
    let own = Context::create();
    let nothing = own.kernel(c"nothing");
    assert_eq!(function::set_block_shape(&own.api, nothing, [256, 1, 1]), Ok(()));
    assert_eq!(function::set_block_shape(&own.api, nothing, [256, 0, 1]).code(), CUerror::INVALID_VALUE);
    assert_eq!(function::set_block_shape(&own.api, nothing, [-1, 1, 1]).code(), CUerror::INVALID_VALUE);
}
