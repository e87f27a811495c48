//! The text of call errors, and loading a library that lacks a function or is not a driver.

use std::collections::HashSet;
use std::path::Path;

use freehold_driver::ErrorKind;
use freehold_driver::cuda::load::{self, LibraryError};
use freehold_driver::cuda::{Api, CUdeviceptr, CUerror, CUresult, DriverError, Function, memory};

fn empty() -> (Api, Vec<Function>) {
    // SAFETY: no symbol is returned.
    unsafe { Api::from_symbols(|_| None) }
}

#[test]
fn a_missing_symbol_answers_not_supported() {
    let error = memory::alloc(&empty().0, 512).unwrap_err();
    assert_eq!(error, DriverError { call: Function::cuMemAlloc_v2, code: CUerror::NOT_SUPPORTED });
}

#[test]
fn every_missing_symbol_is_listed_in_order() {
    assert_eq!(empty().1, Function::ALL);
}

#[test]
fn a_symbol_that_is_found_is_neither_missing_nor_replaced() {
    unsafe extern "C" fn init(flags: u32) -> CUresult {
        if flags == 7 { Ok(()) } else { Err(CUerror::INVALID_VALUE) }
    }
    // SAFETY: every function pointer can be stored as any other; the table calls it at the type that it has here.
    let symbol = unsafe { std::mem::transmute::<unsafe extern "C" fn(u32) -> CUresult, unsafe extern "C" fn()>(init) };
    // SAFETY: `init` has the signature of `cuInit`, and lives as long as the process.
    let (api, missing) = unsafe { Api::from_symbols(|name| (name == c"cuInit").then_some(symbol)) };
    assert_eq!(missing, Function::ALL[1..]);
    assert_eq!(freehold_driver::cuda::driver::init(&api, 7), Ok(()));
    assert_eq!(freehold_driver::cuda::driver::init(&api, 0).unwrap_err().code, CUerror::INVALID_VALUE);
}

#[test]
fn an_error_names_the_call_the_code_and_the_number() {
    unsafe extern "C" fn full(_: *mut CUdeviceptr, _: usize) -> CUresult {
        Err(CUerror::OUT_OF_MEMORY)
    }
    let api = Api { cuMemAlloc_v2: full, ..empty().0 };
    let error = memory::alloc(&api, 512).unwrap_err();
    assert_eq!(error.to_string(), "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (2)");
}

#[test]
fn an_unknown_code_is_displayed_by_number() {
    let code = CUerror::new(12345).unwrap();
    assert_eq!(code.to_string(), "error 12345");
    assert_eq!(DriverError { call: Function::cuInit, code }.to_string(), "cuInit: error 12345");
}

#[test]
fn zero_is_success() {
    assert_eq!(CUerror::new(0), None);
}

#[test]
fn a_result_is_the_number_that_c_returns() {
    // SAFETY: `CUresult` has the size of a `u32`, and every number is a value of it.
    let results = [0_u32, 2, 12345].map(|number| unsafe { std::mem::transmute::<u32, CUresult>(number) });
    assert_eq!(results, [Ok(()), Err(CUerror::OUT_OF_MEMORY), Err(CUerror::new(12345).unwrap())]);
}

#[test]
fn every_function_is_found_by_its_name_and_no_other_is() {
    for &function in Function::ALL {
        assert_eq!(Function::named(function.name()), Some(function));
    }
    assert_eq!(Function::named("cuMemAlloc"), None);
    assert_eq!(Function::named(""), None);
}

#[test]
fn no_two_functions_and_no_two_codes_share_a_name() {
    let names: HashSet<_> = Function::ALL.iter().map(|function| function.name()).collect();
    assert_eq!(names.len(), Function::ALL.len());
    let names: HashSet<_> = CUerror::ALL.iter().map(|code| code.name().expect("a listed code has a name")).collect();
    assert_eq!(names.len(), CUerror::ALL.len());
    assert!(CUerror::ALL.is_sorted_by_key(|code| code.number()));
}

#[test]
fn a_library_that_is_not_there_cannot_be_loaded() {
    let path = Path::new("/nowhere/libcuda.so.1");
    // SAFETY: there is no such library.
    match unsafe { load::load(path) }.unwrap_err() {
        LibraryError::Library { path: named, .. } => assert_eq!(named, path),
        other => panic!("{other}"),
    }
}

#[test]
fn a_library_without_cuinit_is_not_a_driver() {
    // SAFETY: its initializers do not affect a test, and none of its functions is called.
    let error = unsafe { load::load(Path::new("libm.so.6")) }.unwrap_err();
    assert!(matches!(&error, LibraryError::NotADriver(path) if path == Path::new("libm.so.6")), "{error}");
    assert_eq!(error.to_string(), "libm.so.6 is not a CUDA driver: it has no cuInit");
}

#[test]
fn an_error_message_does_not_depend_on_the_driver() {
    let error = DriverError { call: Function::cuMemMap, code: CUerror::INVALID_VALUE };
    assert_eq!(freehold_driver::CallError::from(error).to_string(), "cuMemMap: CUDA_ERROR_INVALID_VALUE (1)");
    let error = DriverError { call: Function::cuInit, code: CUerror::new(12345).unwrap() };
    assert_eq!(freehold_driver::CallError::from(error).to_string(), "cuInit: error 12345");
}

#[test]
fn each_code_has_one_error_kind() {
    let meaning = |code| freehold_driver::CallError::from(DriverError { call: Function::cuInit, code }).kind;
    assert_eq!(meaning(CUerror::OUT_OF_MEMORY), ErrorKind::OutOfMemory);
    assert_eq!(meaning(CUerror::NOT_SUPPORTED), ErrorKind::Unsupported);
    assert_eq!(meaning(CUerror::ILLEGAL_ADDRESS), ErrorKind::Fault);
    assert_eq!(meaning(CUerror::INVALID_VALUE), ErrorKind::Other);
}
