//! The list of the runtime's functions that return an error code. From it come the exports under their C names; a function
//! in the list that is not written does not compile.
//!
//! A group is the file in `api` that has the functions. Functions with another result, and those that must not change the
//! last error, are exported by hand in `exports`.

/// Calls the macro `$then` with the whole list.
macro_rules! with_functions {
    ($then:path) => {
        $then! {
            device {
                fn cudaGetDeviceCount(count: *mut i32);
                fn cudaGetDevice(device: *mut i32);
                fn cudaSetDevice(device: i32);
                fn cudaInitDevice(device: i32, device_flags: u32, flags: u32);
                fn cudaDeviceSynchronize();
                fn cudaDeviceReset();
                fn cudaDeviceGetAttribute(value: *mut i32, attribute: CUdevice_attribute, device: i32);
                fn cudaDeviceGetLimit(value: *mut usize, limit: CUlimit);
                fn cudaDeviceSetLimit(limit: CUlimit, value: usize);
                fn cudaDeviceGetCacheConfig(config: *mut CUfunc_cache);
                fn cudaDeviceSetCacheConfig(config: CUfunc_cache);
                fn cudaDeviceGetSharedMemConfig(config: *mut CUsharedconfig);
                fn cudaDeviceSetSharedMemConfig(config: CUsharedconfig);
                fn cudaDeviceGetStreamPriorityRange(least: *mut i32, greatest: *mut i32);
                fn cudaDeviceGetByPCIBusId(device: *mut i32, bus_id: *const c_char);
                fn cudaDeviceGetPCIBusId(bus_id: *mut c_char, length: i32, device: i32);
                fn cudaSetDeviceFlags(flags: u32);
                fn cudaGetDeviceFlags(flags: *mut u32);
                fn cudaDriverGetVersion(version: *mut i32);
                fn cudaRuntimeGetVersion(version: *mut i32);
                fn cudaCtxResetPersistingL2Cache();
                fn cudaDeviceCanAccessPeer(can: *mut i32, device: i32, peer: i32);
                fn cudaDeviceEnablePeerAccess(peer: i32, flags: u32);
                fn cudaDeviceDisablePeerAccess(peer: i32);
                fn cudaDeviceGetP2PAttribute(value: *mut i32, attribute: CUdevice_P2PAttribute, from: i32, to: i32);
                fn cudaProfilerStart();
                fn cudaProfilerStop();
            }
            launch {
                fn cudaLaunchKernel(function: *const c_void, grid: Dim3, block: Dim3, arguments: *mut *mut c_void, shared_bytes: usize, stream: CUstream);
                fn cudaLaunchCooperativeKernel(function: *const c_void, grid: Dim3, block: Dim3, arguments: *mut *mut c_void, shared_bytes: usize, stream: CUstream);
                fn cudaLaunchKernelExC(config: *const cudaLaunchConfig_t, function: *const c_void, arguments: *mut *mut c_void);
                fn cudaLaunchHostFunc(stream: CUstream, work: CUhostFn, data: *mut c_void);
                fn __cudaGetKernel(kernel: *mut CUkernel, function: *const c_void);
                fn __cudaLaunchKernel(kernel: CUkernel, grid: Dim3, block: Dim3, arguments: *mut *mut c_void, shared_bytes: usize, stream: CUstream);
                fn __cudaPopCallConfiguration(grid: *mut Dim3, block: *mut Dim3, shared_bytes: *mut usize, stream: *mut CUstream);
                fn cudaGetKernel(kernel: *mut CUkernel, function: *const c_void);
                fn cudaGetFuncBySymbol(function: *mut CUfunction, symbol: *const c_void);
            }
            memory {
                fn cudaMalloc(start: *mut *mut c_void, bytes: usize);
                fn cudaFree(start: *mut c_void);
                fn cudaMemGetInfo(free: *mut usize, total: *mut usize);
            }
            copy {
                fn cudaMemcpy(to: *mut c_void, from: *const c_void, bytes: usize, kind: cudaMemcpyKind);
                fn cudaMemcpyAsync(to: *mut c_void, from: *const c_void, bytes: usize, kind: cudaMemcpyKind, stream: CUstream);
            }
            properties {
                fn cudaGetDeviceProperties(properties: *mut cudaDeviceProp, device: i32);
                fn cudaChooseDevice(device: *mut i32, wished: *const cudaDeviceProp);
                fn cudaSetValidDevices(devices: *mut i32, count: i32);
            }
        }
    };
}

pub(crate) use with_functions;
