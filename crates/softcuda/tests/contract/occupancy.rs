//! Occupancy: how many blocks of a kernel fit on a multiprocessor of an H200.

use crate::common;

use common::{Context, Refused};
use freehold_driver::cuda::occupancy::Potential;
use freehold_driver::cuda::{CUerror, CUfunction_attribute, function, occupancy};

#[test]
fn threads_and_blocks_bound_what_fits() {
    let own = Context::create();
    let nothing = own.kernel(c"nothing");
    let blocks = |threads| occupancy::blocks(&own.api, nothing, threads, 0);
    assert_eq!(blocks(1024), Ok(2));
    assert_eq!(blocks(256), Ok(8));
    assert_eq!(blocks(32), Ok(32));
    assert_eq!(blocks(1), Ok(32));
    assert_eq!(blocks(0).code(), CUerror::INVALID_VALUE);
    assert_eq!(blocks(-1).code(), CUerror::INVALID_VALUE);
    assert_eq!(occupancy::blocks_with_flags(&own.api, nothing, 64, 0, 1), Ok(32));
    assert_eq!(occupancy::blocks_with_flags(&own.api, nothing, 64, 0, 2).code(), CUerror::INVALID_VALUE);
}

#[test]
fn shared_memory_bounds_what_fits() {
    let own = Context::create();
    let nothing = own.kernel(c"nothing");
    assert_eq!(occupancy::blocks(&own.api, nothing, 128, 48 << 10), Ok(4));
    let at = CUfunction_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES;
    function::set_attribute(&own.api, nothing, at, 227 << 10).unwrap();
    assert_eq!(occupancy::blocks(&own.api, nothing, 128, 227 << 10), Ok(1));
    assert_eq!(occupancy::blocks(&own.api, nothing, 128, 113 << 10), Ok(2));
}

#[test]
fn the_best_block_fills_the_device() {
    let own = Context::create();
    let nothing = own.kernel(c"nothing");
    // SAFETY: there is no function to call.
    let best = unsafe { occupancy::potential(&own.api, nothing, None, 0, 0) };
    assert_eq!(best, Ok(Potential { grid_size: 264, block_size: 1024 }));
    // SAFETY: as above.
    let best = unsafe { occupancy::potential(&own.api, nothing, None, 0, 256) };
    assert_eq!(best, Ok(Potential { grid_size: 132 * 8, block_size: 256 }));
}

#[test]
fn blocks_share_shared_memory_up_to_what_the_kernel_may_ask_for() {
    let own = Context::create();
    let nothing = own.kernel(c"nothing");
    assert_eq!(occupancy::shared_bytes(&own.api, nothing, 1, 128), Ok(48 << 10));
    assert_eq!(occupancy::shared_bytes(&own.api, nothing, 2, 128), Ok(48 << 10));
    assert_eq!(occupancy::shared_bytes(&own.api, nothing, 8, 128), Ok((228 << 10) / 8));
    assert_eq!(occupancy::shared_bytes(&own.api, nothing, 0, 128).code(), CUerror::INVALID_VALUE);
}
