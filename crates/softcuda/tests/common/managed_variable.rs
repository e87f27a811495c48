//! An image with a managed variable.

use std::ffi::CStr;
use std::sync::atomic::AtomicU32;

use freehold_driver::cuda::CUdeviceptr;

/// The kernel `add` adds the number of its threads to `shared_count`.
pub(crate) const TEXT: &CStr = c"
.version 8.0
.target sm_80
.address_size 64

.visible .global .attribute(.managed) .align 4 .u32 shared_count = 7;
.visible .global .align 4 .u32 private_count = 7;

.visible .entry add()
{
    .reg .b32 %r;
    .reg .b64 %at;
    mov.u64 %at, shared_count;
    atom.global.add.u32 %r, [%at], 1;
    ret;
}
";

/// Returns the host's view of a managed variable.
pub(crate) fn word(variable: CUdeviceptr) -> &'static AtomicU32 {
    // SAFETY: the variable has four bytes, aligned to four; tests use it while its image is loaded, and through atomic
    // operations only, on the host and in kernels.
    unsafe { AtomicU32::from_ptr(variable.0 as *mut u32) }
}
