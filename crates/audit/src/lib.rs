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
//! - [`la_symbind64`]: a program that calls NVRTC or looks its functions up gets the functions that return PTX in place of those
//!   that return machine code. With a limit on memory (`FREEHOLD_LIMIT`), its calls of the driver are bound to functions of
//!   `libcudart.so` that count. An address in an object's data is not bound this way: the linker does not ask.
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
mod symbols;

use std::ffi::{CStr, c_char, c_long, c_uint};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use objects::{Audited, Objects};

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
/// The bindings of an object to be audited: of symbols that it defines, and of those that it uses.
const LA_FLG_BINDTO: c_uint = 1;
const LA_FLG_BINDFROM: c_uint = 2;

/// A symbol, as the dynamic linker passes it.
#[repr(C)]
#[derive(Debug)]
pub struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    /// The address that it is bound to.
    value: u64,
    bytes: u64,
}

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

/// Replaces the path of a CUDA library: the one that is requested, or one that the search of a name tries.
///
/// # Safety
/// `name` must be a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_objsearch(name: *const c_char, _cookie: *mut usize, flag: c_uint) -> *const c_char {
    // SAFETY: the caller guarantees that the name is valid.
    let wanted = unsafe { CStr::from_ptr(name) }.to_bytes();
    let replacement =
        with_objects(|objects| if flag == LA_SER_ORIG { objects.replacement(wanted) } else { objects.file(wanted) });
    replacement.flatten().map_or(name, CStr::as_ptr)
}

/// Notes an object of the program, and returns which of its bindings are audited.
///
/// # Safety
/// `map` must point to the record of an object, with a NUL-terminated name, and `cookie` to the object's cookie.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_objopen(map: *const LinkMap, namespace: c_long, cookie: *mut usize) -> c_uint {
    // SAFETY: the caller guarantees that the record is valid.
    let map = unsafe { &*map };
    if namespace != LM_ID_BASE || map.name.is_null() {
        return 0;
    }
    // SAFETY: the caller guarantees that the name is valid.
    let name = unsafe { CStr::from_ptr(map.name) }.to_bytes();
    let opened =
        with_objects(|objects| (objects.add(map.base, name), symbols::opened(map.base, name, objects.folder())));
    let Some((audited, limited)) = opened else { return 0 };
    let Some((kind, limited)) = limited else { return flags(audited) };
    // SAFETY: the caller guarantees that the cookie is valid.
    unsafe { *cookie = kind };
    flags(audited) | flags(limited)
}

fn flags(audited: Audited) -> c_uint {
    match audited {
        Audited::None => 0,
        Audited::Uses => LA_FLG_BINDFROM,
        Audited::Definitions => LA_FLG_BINDTO,
        Audited::UsesAndDefinitions => LA_FLG_BINDFROM | LA_FLG_BINDTO,
    }
}

/// Returns the address that a symbol is bound to, when an object calls it for the first time or looks it up.
///
/// # Safety
/// `symbol` must point to a symbol, both cookies must be valid, and `name` must be a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_symbind64(
    symbol: *const Symbol,
    _index: c_uint,
    user: *const usize,
    definer: *const usize,
    _flags: *mut c_uint,
    name: *const c_char,
) -> usize {
    // SAFETY: the caller guarantees that the symbol is valid.
    let own = unsafe { &*symbol }.value as usize;
    // SAFETY: the caller guarantees that the name is valid.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    // SAFETY: the caller guarantees that the cookie is valid.
    let user = unsafe { *user };
    // SAFETY: as above.
    let definer = unsafe { *definer };
    let counted = symbols::counterpart(user, definer, name);
    counted.or_else(|| with_objects(|objects| objects.binding(name, own)).flatten()).unwrap_or(own)
}

/// Redirects the runtimes in all new objects, once all are mapped.
///
/// # Safety
/// Nothing of the objects that [`la_objopen`] was told of since the last call has run, except relocations.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_activity(_cookie: *mut usize, activity: c_uint) {
    if activity == LA_ACT_CONSISTENT {
        // SAFETY: the caller guarantees that nothing runs in the objects.
        with_objects(|objects| unsafe { objects.redirect() });
    }
}
