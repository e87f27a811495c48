//! The functions of libfreehold.so, as `freehold.h` declares them. The library is linked and not compiled in, so that Python, C++
//! extensions and the allocators that a process plugs into PyTorch or CuPy share one pool and one budget.

use std::ffi::{c_char, c_int, c_void};

/// `struct freehold_owner`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pub(crate) base: *mut c_void,
    pub(crate) size: usize,
    pub(crate) device: c_int,
    pub(crate) stream: u32,
    pub(crate) process: u32,
    pub(crate) is_live: bool,
}

/// `struct freehold_vector`, which only the library looks into.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Vector {
    _private: [u8; 0],
}

/// `enum freehold_error`, as far as Python tells errors apart.
pub(crate) const OUT_OF_MEMORY: c_int = 2;
pub(crate) const TAG_BUDGET: c_int = 15;
pub(crate) const STREAM_CAPTURED: c_int = 18;

unsafe extern "C" {
    pub(crate) fn freehold_alloc(size: isize, device: c_int, stream: *mut c_void) -> *mut c_void;
    pub(crate) fn freehold_alloc_zeroed(size: isize, device: c_int, stream: *mut c_void) -> *mut c_void;
    pub(crate) fn freehold_alloc_tagged(
        size: isize,
        device: c_int,
        stream: *mut c_void,
        tag: *const c_char,
    ) -> *mut c_void;
    pub(crate) fn freehold_try_free(ptr: *mut c_void, size: isize, device: c_int, stream: *mut c_void) -> c_int;
    pub(crate) fn freehold_free_after_all(ptr: *mut c_void, device: c_int) -> c_int;
    pub(crate) fn freehold_realloc(
        ptr: *mut c_void,
        new_size: isize,
        device: c_int,
        stream: *mut c_void,
    ) -> *mut c_void;
    pub(crate) fn freehold_record_use(ptr: *mut c_void, stream: *mut c_void) -> c_int;
    pub(crate) fn freehold_order_after(device: c_int, later: *mut c_void, earlier: *mut c_void) -> c_int;
    pub(crate) fn freehold_order_after_all(device: c_int, later: *mut c_void) -> c_int;
    pub(crate) fn freehold_vector_new(device: c_int, size_max: usize) -> *mut Vector;
    pub(crate) fn freehold_vector_resize(vector: *mut Vector, size: usize) -> c_int;
    pub(crate) fn freehold_vector_shrink(vector: *mut Vector) -> c_int;
    pub(crate) fn freehold_vector_address(vector: *const Vector) -> *mut c_void;
    pub(crate) fn freehold_vector_capacity(vector: *const Vector) -> usize;
    pub(crate) fn freehold_vector_free(vector: *mut Vector) -> c_int;
    pub(crate) fn freehold_stream_retire(stream: *mut c_void) -> c_int;
    pub(crate) fn freehold_reserved_bytes(device: c_int) -> usize;
    pub(crate) fn freehold_live_bytes(device: c_int) -> usize;
    pub(crate) fn freehold_trim(device: c_int, keep: usize) -> c_int;
    pub(crate) fn freehold_set_budget(device: c_int, bytes: usize) -> c_int;
    pub(crate) fn freehold_set_tag_budget(device: c_int, tag: *const c_char, bytes: usize) -> c_int;
    pub(crate) fn freehold_tag_bytes(device: c_int, tag: *const c_char) -> usize;
    pub(crate) fn freehold_owner_of(ptr: *const c_void, out: *mut Owner) -> c_int;
    pub(crate) fn freehold_last_error() -> *const c_char;
    pub(crate) fn freehold_last_error_code() -> c_int;
    pub(crate) fn freehold_version() -> *const c_char;
}
