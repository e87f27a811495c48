//! Forks on the software driver: the child of a process that has initialized the driver cannot use it.

use crate::common;

use std::fs::File;

use common::{Context, api_calls, child, driver, untouched};
use freehold_driver::cuda::{
    Api, CUdevice, CUdeviceptr, CUerror, CUresult, DriverError, Function, context, device, driver, fill, memory, stream,
};

/// Forks, and returns the exit status of the child, which is the result of `run`.
fn forked(run: impl FnOnce() -> u8) -> i32 {
    // SAFETY: the child makes only calls that the test is about, none of which needs another thread, and then ends
    // without the handlers of its parent.
    match unsafe { libc::fork() } {
        -1 => panic!("the system has room for a process"),
        0 => {
            let status = run();
            // SAFETY: ends the child, whose memory is its own.
            unsafe { libc::_exit(status.into()) }
        }
        process => {
            let mut status = 0;
            // SAFETY: `status` outlives the call, which writes one `i32` to it.
            let waited = unsafe { libc::waitpid(process, &mut status, 0) };
            assert_eq!(waited, process);
            assert!(libc::WIFEXITED(status), "the child ends by itself: {status:#x}");
            libc::WEXITSTATUS(status)
        }
    }
}

/// The number of a call's code, small enough for an exit status.
fn number<T>(result: Result<T, DriverError>) -> u8 {
    result.map_or_else(|error| error.code.number() as u8, |_| 0)
}

const NOT_INITIALIZED: i32 = 3;

#[test]
fn in_the_child_of_a_fork_every_call_that_needs_a_device_is_not_initialized() {
    child::run_in_child("in_the_child_of_a_fork_every_call_that_needs_a_device_is_not_initialized", || {
        let own = Context::create();
        let needs_none = [
            Function::cuDriverGetVersion,
            Function::cuGetErrorName,
            Function::cuGetErrorString,
            Function::cuGetProcAddress_v2,
        ];
        let others = forked(|| {
            let answers = api_calls::call_all(&own.api, &mut api_calls::Zeros);
            let needing = answers.iter().filter(|(function, _)| !needs_none.contains(function));
            needing.filter(|(_, code)| *code != Err(CUerror::NOT_INITIALIZED)).count() as u8
        });
        assert_eq!(others, 0);
        assert_eq!(forked(|| number(memory::alloc(&own.api, 512))), NOT_INITIALIZED);
    });
}

/// As an H200's driver answered.
#[test]
fn the_child_of_a_fork_may_ask_what_the_driver_knows_without_a_device() {
    child::run_in_child("the_child_of_a_fork_may_ask_what_the_driver_knows_without_a_device", || {
        let own = Context::create();
        let wrong = forked(|| {
            let name = driver::error_name(&own.api, 700).as_deref() == Ok("CUDA_ERROR_ILLEGAL_ADDRESS");
            let said = driver::error_string(&own.api, 700).as_deref() == Ok("an illegal memory access was encountered");
            let unknown =
                driver::error_name(&own.api, 12345).map_err(|error| error.code) == Err(CUerror::INVALID_VALUE);
            let version = driver::version(&own.api) == Ok(13000);
            let address = driver::proc_address(&own.api, c"cuInit", 12000, 0);
            let address = address.is_ok_and(|found| !found.function.is_null());
            [name, said, unknown, version, address]
                .iter()
                .enumerate()
                .fold(0, |bits, (i, ok)| bits | u8::from(!ok) << i)
        });
        assert_eq!(wrong, 0, "a bit for each answer that is not the driver's");
    });
}

#[test]
fn nothing_that_the_child_does_harms_the_parent() {
    child::run_in_child("nothing_that_the_child_does_harms_the_parent", || {
        let own = Context::create();
        let (block, made) = (own.block(4096), own.stream());
        fill::d8(&own.api, block, 5, 4096).unwrap();
        let status = forked(|| {
            number(memory::free(&own.api, block))
                | number(stream::destroy(&own.api, made))
                | number(context::destroy(&own.api, own.handle))
        });
        assert_eq!(status, NOT_INITIALIZED);
        assert_eq!(own.byte(block, 4096), 5);
        own.finish(made);
        assert_eq!(memory::free(&own.api, block), Ok(()));
    });
}

#[test]
fn the_child_of_a_child_has_no_driver_either() {
    child::run_in_child("the_child_of_a_child_has_no_driver_either", || {
        let own = Context::create();
        assert_eq!(forked(|| forked(|| number(driver::init(&own.api, 0))) as u8), NOT_INITIALIZED);
    });
}

#[test]
fn a_fork_of_a_fork_has_the_files_that_the_fork_opened() {
    child::run_in_child("a_fork_of_a_fork_has_the_files_that_the_fork_opened", || {
        let _own = Context::create();
        let status = forked(|| {
            // The lowest descriptor numbers are used first, among them those of files that the driver has closed.
            let files: Vec<_> = (0..32).filter_map(|_| File::open("/dev/null").ok()).collect();
            let is_lost = || files.len() != 32 || files.iter().any(|file| file.metadata().is_err());
            forked(|| is_lost().into()) as u8
        });
        assert_eq!(status, 0);
    });
}

/// Creates a context, writes a block and reads it. Returns the code of the first failure.
fn work(api: &Api, device: CUdevice) -> CUresult {
    let all = || {
        driver::init(api, 0)?;
        context::create(api, device, 0)?;
        let block: CUdeviceptr = memory::alloc(api, 4096)?;
        fill::d8(api, block, 1, 4096)?;
        context::synchronize(api)?;
        memory::free(api, block)
    };
    all().map_err(|error: DriverError| error.code)
}

#[test]
fn a_fork_before_the_driver_is_initialized_has_one_of_its_own() {
    child::run_in_child("a_fork_before_the_driver_is_initialized_has_one_of_its_own", || {
        let (api, device) = untouched();
        let status = forked(|| work(&api, device).map_or_else(|code| code.number() as u8, |()| 0));
        assert_eq!(status, 0);
        assert_eq!(work(&api, device), Ok(()));
    });
}

#[test]
fn a_process_that_is_not_a_fork_has_the_driver() {
    let (api, _) = driver();
    assert_eq!(driver::init(&api, 0), Ok(()));
    assert_eq!(device::count(&api), Ok(1));
}
