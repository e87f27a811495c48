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
            stream {
                fn cudaStreamCreate(stream: *mut CUstream);
                fn cudaStreamCreateWithFlags(stream: *mut CUstream, flags: u32);
                fn cudaStreamCreateWithPriority(stream: *mut CUstream, flags: u32, priority: i32);
                fn cudaStreamDestroy(stream: CUstream);
                fn cudaStreamSynchronize(stream: CUstream);
                fn cudaStreamQuery(stream: CUstream);
                fn cudaStreamWaitEvent(stream: CUstream, event: CUevent, flags: u32);
                fn cudaStreamAddCallback(stream: CUstream, callback: cudaStreamCallback_t, data: *mut c_void, flags: u32);
                fn cudaStreamGetPriority(stream: CUstream, priority: *mut i32);
                fn cudaStreamGetFlags(stream: CUstream, flags: *mut u32);
                fn cudaStreamGetId(stream: CUstream, id: *mut u64);
                fn cudaStreamGetDevice(stream: CUstream, device: *mut i32);
            }
            event {
                fn cudaEventCreate(event: *mut CUevent);
                fn cudaEventCreateWithFlags(event: *mut CUevent, flags: u32);
                fn cudaEventDestroy(event: CUevent);
                fn cudaEventRecord(event: CUevent, stream: CUstream);
                fn cudaEventRecordWithFlags(event: CUevent, stream: CUstream, flags: u32);
                fn cudaEventQuery(event: CUevent);
                fn cudaEventSynchronize(event: CUevent);
                fn cudaEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent);
            }
            pool {
                fn cudaMallocAsync(start: *mut *mut c_void, bytes: usize, stream: CUstream);
                fn cudaMallocFromPoolAsync(start: *mut *mut c_void, bytes: usize, pool: CUmemoryPool, stream: CUstream);
                fn cudaFreeAsync(start: *mut c_void, stream: CUstream);
                fn cudaMemPoolCreate(pool: *mut CUmemoryPool, properties: *const CUmemPoolProps);
                fn cudaMemPoolDestroy(pool: CUmemoryPool);
                fn cudaMemPoolTrimTo(pool: CUmemoryPool, keep_bytes: usize);
                fn cudaMemPoolSetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void);
                fn cudaMemPoolGetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void);
                fn cudaMemPoolSetAccess(pool: CUmemoryPool, accesses: *const CUmemAccessDesc, count: usize);
                fn cudaMemPoolGetAccess(flags: *mut CUmemAccess_flags, pool: CUmemoryPool, location: *mut CUmemLocation);
                fn cudaMemPoolExportToShareableHandle(shareable: *mut c_void, pool: CUmemoryPool, kind: CUmemAllocationHandleType, flags: u32);
                fn cudaMemPoolImportFromShareableHandle(pool: *mut CUmemoryPool, shareable: *mut c_void, kind: CUmemAllocationHandleType, flags: u32);
                fn cudaMemPoolExportPointer(data: *mut CUmemPoolPtrExportData, start: *mut c_void);
                fn cudaMemPoolImportPointer(start: *mut *mut c_void, pool: CUmemoryPool, data: *mut CUmemPoolPtrExportData);
                fn cudaDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: i32);
                fn cudaDeviceGetMemPool(pool: *mut CUmemoryPool, device: i32);
                fn cudaDeviceSetMemPool(device: i32, pool: CUmemoryPool);
                fn cudaMemGetDefaultMemPool(pool: *mut CUmemoryPool, location: *mut CUmemLocation, kind: CUmemAllocationType);
                fn cudaMemGetMemPool(pool: *mut CUmemoryPool, location: *mut CUmemLocation, kind: CUmemAllocationType);
                fn cudaMemSetMemPool(location: *mut CUmemLocation, kind: CUmemAllocationType, pool: CUmemoryPool);
            }
            library {
                fn cudaLibraryLoadData(library: *mut CUlibrary, code: *const c_void, options: *mut CUjit_option, values: *mut *mut c_void, count: u32, library_options: *mut CUlibraryOption, library_values: *mut *mut c_void, library_count: u32);
                fn cudaLibraryLoadFromFile(library: *mut CUlibrary, path: *const c_char, options: *mut CUjit_option, values: *mut *mut c_void, count: u32, library_options: *mut CUlibraryOption, library_values: *mut *mut c_void, library_count: u32);
                fn cudaLibraryUnload(library: CUlibrary);
                fn cudaLibraryGetKernel(kernel: *mut CUkernel, library: CUlibrary, name: *const c_char);
                fn cudaLibraryGetGlobal(start: *mut *mut c_void, bytes: *mut usize, library: CUlibrary, name: *const c_char);
                fn cudaLibraryGetManaged(start: *mut *mut c_void, bytes: *mut usize, library: CUlibrary, name: *const c_char);
                fn cudaLibraryGetUnifiedFunction(function: *mut *mut c_void, library: CUlibrary, name: *const c_char);
                fn cudaLibraryGetKernelCount(count: *mut u32, library: CUlibrary);
                fn cudaLibraryEnumerateKernels(kernels: *mut CUkernel, count: u32, library: CUlibrary);
                fn cudaGetDriverEntryPoint(name: *const c_char, function: *mut *mut c_void, flags: u64, status: *mut CUdriverProcAddressQueryResult);
                fn cudaGetDriverEntryPointByVersion(name: *const c_char, function: *mut *mut c_void, version: u32, flags: u64, status: *mut CUdriverProcAddressQueryResult);
                fn cudaLogsRegisterCallback(callback: CUlogsCallback, data: *mut c_void, handle: *mut CUlogsCallbackHandle);
                fn cudaLogsUnregisterCallback(handle: CUlogsCallbackHandle);
                fn cudaLogsCurrent(iterator: *mut CUlogIterator, flags: u32);
                fn cudaLogsDumpToFile(iterator: *mut CUlogIterator, path: *const c_char, flags: u32);
                fn cudaLogsDumpToMemory(iterator: *mut CUlogIterator, text: *mut c_char, bytes: *mut usize, flags: u32);
            }
        }
    };
}

pub(crate) use with_functions;
