//! `libfreehold_limit.so`: the driver's functions that allocate and free, each a jump to the one of `libcudart.so.13` that counts.
//!
//! `freehold run --limit` preloads it, so that an object that is linked with the driver gets these functions, also where it takes
//! their addresses or calls without a procedure linkage table, which the audit library is not told of. Requests by `dlsym` go to the
//! driver, and are the audit library's.
//!
//! The jumps are those of x86-64. On other processors the library is empty.

#[cfg(target_arch = "x86_64")]
#[allow(non_snake_case, reason = "named as C names the functions")]
mod exports {
    use std::arch::naked_asm;

    macro_rules! jumps {
        ($($name:ident)*) => {$(
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            extern "C" fn $name() {
                // `libcudart.so.13`, which is preloaded too, has the function.
                naked_asm!(concat!("jmp [rip + freehold_limit_", stringify!($name), "@GOTPCREL]"))
            }
        )*};
    }

    // Each function that `libcudart.so.13` counts.
    jumps! {
        cuMemGetInfo_v2
        cuDeviceTotalMem_v2
        cuMemAlloc_v2
        cuMemAllocPitch_v2
        cuMemAllocManaged
        cuMemFree_v2
        cuMemAllocAsync
        cuMemAllocAsync_ptsz
        cuMemAllocFromPoolAsync
        cuMemAllocFromPoolAsync_ptsz
        cuMemPoolCreate
        cuMemPoolDestroy
        cuMemCreate
        cuMemRelease
        cuMemMap
        cuMemUnmap
        cuMemRetainAllocationHandle
        cuArrayCreate_v2
        cuArray3DCreate_v2
        cuMipmappedArrayCreate
        cuArrayDestroy
        cuMipmappedArrayDestroy
        cuGraphAddMemAllocNode
        cuGraphAddNode
        cuGraphAddNode_v2
        cuCtxDestroy_v2
        cuDevicePrimaryCtxReset_v2
        cuDevicePrimaryCtxRelease_v2
        cuGetProcAddress
        cuGetProcAddress_v2
        cuGetProcAddress_v2_ptsz
    }
}
