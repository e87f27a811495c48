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
                fn cudaMallocPitch(start: *mut *mut c_void, pitch: *mut usize, width: usize, height: usize);
                fn cudaMalloc3D(place: *mut cudaPitchedPtr, extent: cudaExtent);
                fn cudaFree(start: *mut c_void);
                fn cudaMemGetInfo(free: *mut usize, total: *mut usize);
                fn cudaPointerGetAttributes(attributes: *mut cudaPointerAttributes, address: *const c_void);
            }
            host {
                fn cudaMallocHost(start: *mut *mut c_void, bytes: usize);
                fn cudaHostAlloc(start: *mut *mut c_void, bytes: usize, flags: u32);
                fn cudaFreeHost(start: *mut c_void);
                fn cudaHostRegister(start: *mut c_void, bytes: usize, flags: u32);
                fn cudaHostUnregister(start: *mut c_void);
                fn cudaHostGetDevicePointer(pointer: *mut *mut c_void, start: *mut c_void, flags: u32);
                fn cudaHostGetFlags(flags: *mut u32, start: *mut c_void);
            }
            managed {
                fn cudaMallocManaged(start: *mut *mut c_void, bytes: usize, flags: u32);
                fn cudaStreamAttachMemAsync(stream: CUstream, start: *mut c_void, bytes: usize, flags: u32);
                fn cudaMemAdvise(start: *const c_void, bytes: usize, advice: CUmem_advise, location: CUmemLocation);
                fn cudaMemPrefetchAsync(start: *const c_void, bytes: usize, location: CUmemLocation, flags: u32, stream: CUstream);
                fn cudaMemPrefetchBatchAsync(starts: *mut *mut c_void, sizes: *mut usize, count: usize, locations: *mut CUmemLocation, location_starts: *mut usize, location_count: usize, flags: u64, stream: CUstream);
                fn cudaMemRangeGetAttribute(data: *mut c_void, data_bytes: usize, attribute: CUmem_range_attribute, start: *const c_void, bytes: usize);
                fn cudaMemRangeGetAttributes(data: *mut *mut c_void, data_bytes: *mut usize, attributes: *mut CUmem_range_attribute, count: usize, start: *const c_void, bytes: usize);
            }
            ipc {
                fn cudaIpcGetMemHandle(handle: *mut CUipcMemHandle, start: *mut c_void);
                fn cudaIpcOpenMemHandle(start: *mut *mut c_void, handle: CUipcMemHandle, flags: u32);
                fn cudaIpcCloseMemHandle(start: *mut c_void);
                fn cudaIpcGetEventHandle(handle: *mut CUipcEventHandle, event: CUevent);
                fn cudaIpcOpenEventHandle(event: *mut CUevent, handle: CUipcEventHandle);
            }
            copy {
                fn cudaMemcpy(to: *mut c_void, from: *const c_void, bytes: usize, kind: cudaMemcpyKind);
                fn cudaMemcpyAsync(to: *mut c_void, from: *const c_void, bytes: usize, kind: cudaMemcpyKind, stream: CUstream);
                fn cudaMemcpyPeer(to: *mut c_void, to_device: i32, from: *const c_void, from_device: i32, bytes: usize);
                fn cudaMemcpyPeerAsync(to: *mut c_void, to_device: i32, from: *const c_void, from_device: i32, bytes: usize, stream: CUstream);
            }
            copy_box {
                fn cudaMemcpy2D(to: *mut c_void, to_pitch: usize, from: *const c_void, from_pitch: usize, width: usize, height: usize, kind: cudaMemcpyKind);
                fn cudaMemcpy2DAsync(to: *mut c_void, to_pitch: usize, from: *const c_void, from_pitch: usize, width: usize, height: usize, kind: cudaMemcpyKind, stream: CUstream);
                fn cudaMemcpy3D(copy: *const cudaMemcpy3DParms);
                fn cudaMemcpy3DAsync(copy: *const cudaMemcpy3DParms, stream: CUstream);
                fn cudaMemcpy3DPeer(copy: *const cudaMemcpy3DPeerParms);
                fn cudaMemcpy3DPeerAsync(copy: *const cudaMemcpy3DPeerParms, stream: CUstream);
            }
            copy_batch {
                fn cudaMemcpyBatchAsync(to: *const *mut c_void, from: *const *const c_void, sizes: *const usize, count: usize, attributes: *mut cudaMemcpyAttributes, attribute_starts: *mut usize, attribute_count: usize, stream: CUstream);
                fn cudaMemcpy3DBatchAsync(count: usize, copies: *mut cudaMemcpy3DBatchOp, flags: u64, stream: CUstream);
            }
            fill {
                fn cudaMemset(start: *mut c_void, value: i32, bytes: usize);
                fn cudaMemsetAsync(start: *mut c_void, value: i32, bytes: usize, stream: CUstream);
                fn cudaMemset2D(start: *mut c_void, pitch: usize, value: i32, width: usize, height: usize);
                fn cudaMemset2DAsync(start: *mut c_void, pitch: usize, value: i32, width: usize, height: usize, stream: CUstream);
                fn cudaMemset3D(memory: cudaPitchedPtr, value: i32, extent: cudaExtent);
                fn cudaMemset3DAsync(memory: cudaPitchedPtr, value: i32, extent: cudaExtent, stream: CUstream);
            }
            symbol {
                fn cudaGetSymbolAddress(start: *mut *mut c_void, symbol: *const c_void);
                fn cudaGetSymbolSize(bytes: *mut usize, symbol: *const c_void);
                fn cudaMemcpyToSymbol(symbol: *const c_void, from: *const c_void, bytes: usize, offset: usize, kind: cudaMemcpyKind);
                fn cudaMemcpyToSymbolAsync(symbol: *const c_void, from: *const c_void, bytes: usize, offset: usize, kind: cudaMemcpyKind, stream: CUstream);
                fn cudaMemcpyFromSymbol(to: *mut c_void, symbol: *const c_void, bytes: usize, offset: usize, kind: cudaMemcpyKind);
                fn cudaMemcpyFromSymbolAsync(to: *mut c_void, symbol: *const c_void, bytes: usize, offset: usize, kind: cudaMemcpyKind, stream: CUstream);
            }
            function {
                fn cudaFuncGetAttributes(attributes: *mut cudaFuncAttributes, function: *const c_void);
                fn cudaFuncSetAttribute(function: *const c_void, attribute: CUfunction_attribute, value: i32);
                fn cudaKernelSetAttributeForDevice(kernel: CUkernel, attribute: CUfunction_attribute, value: i32, device: i32);
                fn cudaFuncSetCacheConfig(function: *const c_void, config: CUfunc_cache);
                fn cudaFuncSetSharedMemConfig(function: *const c_void, config: CUsharedconfig);
                fn cudaFuncGetName(name: *mut *const c_char, function: *const c_void);
                fn cudaFuncGetParamInfo(function: *const c_void, index: usize, offset: *mut usize, bytes: *mut usize);
            }
            occupancy {
                fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks: *mut i32, function: *const c_void, block_size: i32, shared_bytes: usize);
                fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks: *mut i32, function: *const c_void, block_size: i32, shared_bytes: usize, flags: u32);
                fn cudaOccupancyAvailableDynamicSMemPerBlock(shared_bytes: *mut usize, function: *const c_void, blocks: i32, block_size: i32);
                fn cudaOccupancyMaxPotentialClusterSize(size: *mut i32, function: *const c_void, config: *const cudaLaunchConfig_t);
                fn cudaOccupancyMaxActiveClusters(clusters: *mut i32, function: *const c_void, config: *const cudaLaunchConfig_t);
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
