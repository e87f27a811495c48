//! `libfreehold_audit.so`: makes programs that have a CUDA runtime of their own, linked statically, use `libcudart.so`.
//!
//! `LD_AUDIT` names this library, and glibc's dynamic linker calls it for each object that a program loads, now or later
//! (`rtld-audit(7)`). The linker gives it a namespace of its own: the program sees none of it.
//!
//! - [`la_objsearch`]: a request for a CUDA library, by whatever path, is answered with the one beside this library. For
//!   nvJitLink, that one can ask for the library that the program wanted.
//! - [`la_objopen`] notes the new objects. When all of them are mapped ([`la_activity`]), and before their constructors
//!   register kernels, the symbol table of each object's file tells where its runtime begins: every function of the
//!   interface is overwritten with a jump to `libcudart.so`, which the program loads through `LD_PRELOAD`.
//! - NVRTC's functions that return machine code are overwritten with jumps to those that return PTX.
//! - With a limit on memory (`FREEHOLD_LIMIT`), [`la_symbind64`](symbols::la_symbind64) binds the program's calls of the driver
//!   to functions of `libcudart.so` that count.
//! - An object with kernels and a runtime but without symbols is named in a sentence on stderr.
//!
//! # Modules, from bottom to top
//!
//! - `file`: what the file of an object says of kernels and of the runtime.
//! - `redirect`: the jumps.
//! - `objects`: which objects are loaded, and which library serves each.
//! - `symbols`: the program's calls of the driver, under a limit.

mod file;
mod objects;
mod redirect;
pub mod symbols;

use std::ffi::{CStr, c_char, c_long, c_uint};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use objects::Objects;

/// What the dynamic linker knows of an object: the public part of its record.
#[repr(C)]
#[derive(Debug)]
pub struct LinkMap {
    /// What to add to an address in the file.
    base: usize,
    name: *const c_char,
    dynamic: *const u8,
    next: *const LinkMap,
    previous: *const LinkMap,
}

/// The first namespace, in which the program is.
const LM_ID_BASE: c_long = 0;
/// The name is as the program or an object states it.
const LA_SER_ORIG: c_uint = 1;
/// No object is being added or removed any more.
const LA_ACT_CONSISTENT: c_uint = 0;

static OBJECTS: Mutex<Option<Objects>> = Mutex::new(None);

/// Runs a part of this library, which must not unwind into the dynamic linker.
fn with_objects<R>(part: impl FnOnce(&mut Objects) -> R) -> Option<R> {
    let run = || {
        let mut objects = OBJECTS.lock().unwrap_or_else(PoisonError::into_inner);
        part(objects.get_or_insert_with(Objects::new))
    };
    catch_unwind(AssertUnwindSafe(run)).ok()
}

/// Agrees to the version of the interface that the dynamic linker has.
#[unsafe(no_mangle)]
pub extern "C" fn la_version(version: c_uint) -> c_uint {
    version
}

/// Replaces the path of a CUDA library.
///
/// # Safety
/// `name` must be a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_objsearch(name: *const c_char, _cookie: *mut usize, flag: c_uint) -> *const c_char {
    if flag != LA_SER_ORIG {
        return name;
    }
    // SAFETY: the caller vouches for the name.
    let wanted = unsafe { CStr::from_ptr(name) };
    with_objects(|objects| objects.replacement(wanted.to_bytes())).flatten().map_or(name, CStr::as_ptr)
}

/// Notes an object of the program. Without a limit on memory, no bindings are told.
///
/// # Safety
/// `map` must point to the record of an object, with a NUL-terminated name, and `cookie` to the object's cookie.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_objopen(map: *const LinkMap, namespace: c_long, cookie: *mut usize) -> c_uint {
    // SAFETY: the caller vouches for the record.
    let map = unsafe { &*map };
    if namespace == LM_ID_BASE && !map.name.is_null() {
        // SAFETY: the caller vouches for the name.
        let name = unsafe { CStr::from_ptr(map.name) };
        let opened = with_objects(|objects| {
            objects.add(map.base, name.to_bytes());
            symbols::opened(map.base, name.to_bytes(), objects.folder())
        });
        if let Some((kind, bindings)) = opened.flatten() {
            // SAFETY: the caller vouches for the cookie.
            unsafe { *cookie = kind };
            return bindings;
        }
    }
    0
}

/// Redirects the runtimes in all new objects, once all are mapped.
///
/// # Safety
/// Nothing of the objects that [`la_objopen`] was told of since the last call has run, except relocations.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_activity(_cookie: *mut usize, activity: c_uint) {
    if activity == LA_ACT_CONSISTENT {
        // SAFETY: the caller vouches that nothing runs in the objects.
        with_objects(|objects| unsafe { objects.redirect() });
    }
}
