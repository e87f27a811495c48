//! The limit on wrapped drivers. Alone in its process, because a wrapped driver is kept until the process exits.

use std::panic::catch_unwind;

use freehold_driver::cuda::faults::{DRIVERS_MAX, Faults};
use freehold_driver::cuda::{Api, CUresult, driver};
use freehold_testing::child::run_in_child;

unsafe extern "C" fn version<const NUMBER: i32>(version: *mut i32) -> CUresult {
    // SAFETY: the caller meets the conditions of `cuDriverGetVersion`: `version` is a place for one `i32`.
    unsafe { version.write(NUMBER) };
    Ok(())
}

fn fake(cu_driver_get_version: unsafe extern "C" fn(*mut i32) -> CUresult) -> Api {
    // SAFETY: no symbol is returned.
    let (empty, _) = unsafe { Api::from_symbols(|_| None) };
    Api { cuDriverGetVersion: cu_driver_get_version, ..empty }
}

#[test]
fn a_fifth_driver_is_refused_and_a_known_one_is_not() {
    run_in_child("a_fifth_driver_is_refused_and_a_known_one_is_not", || {
        assert_eq!(DRIVERS_MAX, 4);
        let known = [version::<1>, version::<2>, version::<3>, version::<4>].map(fake);
        for (number, api) in (1..).zip(&known) {
            assert_eq!(driver::version(Faults::count(api).api()), Ok(number));
        }
        let refused = catch_unwind(|| drop(Faults::count(&fake(version::<5>)))).unwrap_err();
        assert_eq!(*refused.downcast::<String>().unwrap(), "a process can wrap at most 4 different drivers");
        for (number, api) in (1..).zip(&known) {
            assert_eq!(driver::version(Faults::count(api).api()), Ok(number));
        }
    });
}
