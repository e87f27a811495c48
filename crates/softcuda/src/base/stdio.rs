//! The program's own standard output and error, as C's library has them: what kernels print comes between what the
//! program prints in the order of both.

use std::ffi::c_int;

unsafe extern "C" {
    static stdout: *mut libc::FILE;
    static stderr: *mut libc::FILE;
}

pub(crate) fn to_stdout(bytes: &[u8]) {
    // SAFETY: the C library sets the pointer before `main`, and a program that changes it does so before it has threads.
    let file = unsafe { stdout };
    write(file, bytes);
}

pub(crate) fn to_stderr(bytes: &[u8]) {
    // SAFETY: as for `stdout`.
    let file = unsafe { stderr };
    write(file, bytes);
}

/// Writes all bytes. What cannot be written is lost, as it is for a kernel's `printf` on a GPU.
fn write(file: *mut libc::FILE, bytes: &[u8]) {
    // SAFETY: `bytes` holds as many bytes as are asked for, and `file` is an open stream of the C library's.
    let _written = unsafe { libc::fwrite(bytes.as_ptr().cast(), 1, bytes.len(), file) };
    // SAFETY: `file` is an open stream of the C library's.
    let _flushed: c_int = unsafe { libc::fflush(file) };
}
