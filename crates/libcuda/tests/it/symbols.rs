//! The library loaded with `dlopen`: every symbol is exported, and is what `cuGetProcAddress` returns.

use std::ffi::{CString, c_char, c_void};
use std::path::PathBuf;

use freehold_driver::cuda::symbols::{self, SYMBOLS};
use freehold_driver::cuda::{CUdriverProcAddressQueryResult, CUerror, CUresult, Function, load, proc_address_flags};
use libloading::os::unix::{Library, Symbol};

type UnsupportedFn = unsafe extern "C" fn() -> CUresult;
type ProcAddress =
    unsafe extern "C" fn(*const c_char, *mut *mut c_void, i32, u64, *mut CUdriverProcAddressQueryResult) -> CUresult;
type OldProcAddress = unsafe extern "C" fn(*const c_char, *mut *mut c_void, i32, u64) -> CUresult;

fn path() -> PathBuf {
    let test = std::env::current_exe().expect("cannot find the test's executable");
    test.parent().expect("a file is in a folder").join(freehold_libcuda::LIBRARY_FILE)
}

fn library() -> Library {
    // SAFETY: the library has no initializers but those of Rust's standard library.
    unsafe { Library::new(path()) }.expect("cargo built the library beside the test")
}

fn symbol<T>(library: &Library, name: &str) -> Option<Symbol<T>> {
    // SAFETY: each caller names the type of the function that it asks for.
    unsafe { library.get(name.as_bytes()) }.ok()
}

fn is_unsupported(name: &str) -> bool {
    Function::named(name).is_none() && name != "cuGetProcAddress"
}

#[test]
fn every_documented_symbol_is_exported() {
    let library = library();
    for form in SYMBOLS.iter().flat_map(|forms| forms.iter()) {
        for name in [Some(form.name), form.per_thread].into_iter().flatten() {
            assert!(symbol::<UnsupportedFn>(&library, name).is_some(), "{name}");
        }
    }
}

#[test]
fn a_table_with_per_thread_default_streams_has_the_variants_that_exist() {
    // SAFETY: the library is this driver, and nothing is called through the tables.
    let api = unsafe { load::load(&path()) }.expect("the library is a driver");
    // SAFETY: as above.
    let per_thread = unsafe { load::load_per_thread(&path()) }.expect("the library is a driver");
    let library = library();
    for &function in Function::ALL {
        let variant = symbols::per_thread(function.name());
        let expected = variant.unwrap_or(function.name());
        let expected = symbol::<UnsupportedFn>(&library, expected).expect("the symbol is not exported");
        assert_eq!(per_thread.address(function), *expected as usize, "{function}");
        assert_eq!(per_thread.address(function) == api.address(function), variant.is_none(), "{function}");
    }
}

#[test]
fn unimplemented_symbols_return_not_supported() {
    let library = library();
    let mut count = 0;
    for form in SYMBOLS.iter().flat_map(|forms| forms.iter()) {
        if !is_unsupported(form.name) {
            continue;
        }
        for name in [Some(form.name), form.per_thread].into_iter().flatten() {
            let call = symbol::<UnsupportedFn>(&library, name).expect("the symbol is not exported");
            // SAFETY: the stub ignores its arguments.
            assert_eq!(unsafe { call() }, Err(CUerror::NOT_SUPPORTED), "{name}");
            count += 1;
        }
    }
    assert!(count > 100, "only {count}");
}

#[test]
fn every_form_of_a_name_has_an_address_in_its_version() {
    let library = library();
    let ask = symbol::<ProcAddress>(&library, "cuGetProcAddress_v2").expect("the symbol is not exported");
    let flags = [proc_address_flags::LEGACY_STREAM, proc_address_flags::PER_THREAD_DEFAULT_STREAM];
    for forms in SYMBOLS {
        let name = CString::new(forms[0].name).expect("a name contains no NUL");
        for (form, flags) in forms.iter().flat_map(|form| flags.map(|flags| (form, flags))) {
            let (mut function, mut status) = (std::ptr::null_mut(), CUdriverProcAddressQueryResult(99));
            // SAFETY: `name` ends in a NUL; `function` and `status` outlive the call, which writes one value to each.
            let outcome = unsafe { ask(name.as_ptr(), &mut function, form.since, flags, &mut status) };
            assert_eq!((outcome, status), (Ok(()), CUdriverProcAddressQueryResult::SUCCESS), "{form:?}");
            assert!(!function.is_null(), "{form:?}");
            if is_unsupported(form.name) {
                // SAFETY: the address is that of the stub, which ignores its arguments.
                let call = unsafe { std::mem::transmute::<*mut c_void, UnsupportedFn>(function) };
                // SAFETY: the stub ignores its arguments.
                assert_eq!(unsafe { call() }, Err(CUerror::NOT_SUPPORTED), "{form:?}");
            }
        }
    }
}

#[test]
fn cu_get_proc_address_v1_finds_the_same() {
    let library = library();
    let ask = symbol::<OldProcAddress>(&library, "cuGetProcAddress").expect("the symbol is not exported");
    let mut function = std::ptr::null_mut();
    // SAFETY: the name ends in a NUL; `function` outlives the call, which writes one pointer to it.
    let outcome = unsafe { ask(c"cuGetProcAddress".as_ptr(), &mut function, 11030, proc_address_flags::DEFAULT) };
    assert_eq!(outcome, Ok(()));
    // SAFETY: for this version the name means the form without a status.
    let again = unsafe { std::mem::transmute::<*mut c_void, OldProcAddress>(function) };
    let mut version = std::ptr::null_mut();
    // SAFETY: the name ends in a NUL; `version` outlives the call, which writes one pointer to it.
    let outcome = unsafe { again(c"cuDriverGetVersion".as_ptr(), &mut version, 11030, proc_address_flags::DEFAULT) };
    assert_eq!(outcome, Ok(()));
    assert!(!version.is_null());
}
