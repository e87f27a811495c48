//! Writes to the standard output and error streams of the C library. The output of kernels and of the program shares
//! one buffer, so it appears in order.

use std::ffi::c_int;

unsafe extern "C" {
    static stdout: *mut libc::FILE;
    static stderr: *mut libc::FILE;
}

pub(crate) fn to_stdout(bytes: &[u8]) {
    // SAFETY: the C library sets the pointer before `main`, and a program that changes it does so before it starts
    // threads.
    let file = unsafe { stdout };
    write(file, bytes);
}

pub(crate) fn to_stderr(bytes: &[u8]) {
    // SAFETY: as for `stdout`.
    let file = unsafe { stderr };
    write(file, bytes);
}

/// Writes all bytes. Failures are ignored, as for a kernel's `printf` on a GPU.
fn write(file: *mut libc::FILE, bytes: &[u8]) {
    // SAFETY: `bytes` has the given length, and `file` is an open stream of the C library.
    let _written = unsafe { libc::fwrite(bytes.as_ptr().cast(), 1, bytes.len(), file) };
    // SAFETY: `file` is an open stream of the C library.
    let _flushed: c_int = unsafe { libc::fflush(file) };
}
