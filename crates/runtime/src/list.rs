//! The list of the runtime's functions that return an error code. The exports under the C names are generated from it; a
//! listed function without an implementation does not compile.
//!
//! A group is the file in `api` that has the functions. Functions with another result type, and those that must not
//! change the last error, are exported by hand in `exports`.

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
            array {
                fn cudaMallocArray(array: *mut CUarray, desc: *const cudaChannelFormatDesc, width: usize, height: usize, flags: u32);
                fn cudaMalloc3DArray(array: *mut CUarray, desc: *const cudaChannelFormatDesc, extent: cudaExtent, flags: u32);
                fn cudaMallocMipmappedArray(mipmap: *mut CUmipmappedArray, desc: *const cudaChannelFormatDesc, extent: cudaExtent, levels: u32, flags: u32);
                fn cudaFreeArray(array: CUarray);
                fn cudaFreeMipmappedArray(mipmap: CUmipmappedArray);
                fn cudaGetMipmappedArrayLevel(array: *mut CUarray, mipmap: CUmipmappedArray, level: u32);
                fn cudaArrayGetInfo(desc: *mut cudaChannelFormatDesc, extent: *mut cudaExtent, flags: *mut u32, array: CUarray);
                fn cudaGetChannelDesc(desc: *mut cudaChannelFormatDesc, array: CUarray);
                fn cudaMemcpy2DToArray(to: CUarray, x_bytes: usize, y: usize, from: *const c_void, pitch_bytes: usize, width: usize, height: usize, kind: cudaMemcpyKind);
                fn cudaMemcpy2DToArrayAsync(to: CUarray, x_bytes: usize, y: usize, from: *const c_void, pitch_bytes: usize, width: usize, height: usize, kind: cudaMemcpyKind, stream: CUstream);
                fn cudaMemcpy2DFromArray(to: *mut c_void, pitch_bytes: usize, from: CUarray, x_bytes: usize, y: usize, width: usize, height: usize, kind: cudaMemcpyKind);
                fn cudaMemcpy2DFromArrayAsync(to: *mut c_void, pitch_bytes: usize, from: CUarray, x_bytes: usize, y: usize, width: usize, height: usize, kind: cudaMemcpyKind, stream: CUstream);
                fn cudaMemcpy2DArrayToArray(to: CUarray, to_x_bytes: usize, to_y: usize, from: CUarray, from_x_bytes: usize, from_y: usize, width: usize, height: usize, kind: cudaMemcpyKind);
            }
            array_rows {
                fn cudaMemcpyToArray(to: CUarray, x_bytes: usize, y: usize, from: *const c_void, bytes: usize, kind: cudaMemcpyKind);
                fn cudaMemcpyToArrayAsync(to: CUarray, x_bytes: usize, y: usize, from: *const c_void, bytes: usize, kind: cudaMemcpyKind, stream: CUstream);
                fn cudaMemcpyFromArray(to: *mut c_void, from: CUarray, x_bytes: usize, y: usize, bytes: usize, kind: cudaMemcpyKind);
                fn cudaMemcpyFromArrayAsync(to: *mut c_void, from: CUarray, x_bytes: usize, y: usize, bytes: usize, kind: cudaMemcpyKind, stream: CUstream);
                fn cudaMemcpyArrayToArray(to: CUarray, to_x_bytes: usize, to_y: usize, from: CUarray, from_x_bytes: usize, from_y: usize, bytes: usize, kind: cudaMemcpyKind);
            }
            texture {
                fn cudaCreateTextureObject(texture: *mut CUtexObject, from: *const cudaResourceDesc, desc: *const cudaTextureDesc, view: *const CUDA_RESOURCE_VIEW_DESC);
                fn cudaDestroyTextureObject(texture: CUtexObject);
                fn cudaGetTextureObjectResourceDesc(desc: *mut cudaResourceDesc, texture: CUtexObject);
                fn cudaGetTextureObjectTextureDesc(desc: *mut cudaTextureDesc, texture: CUtexObject);
                fn cudaGetTextureObjectResourceViewDesc(desc: *mut CUDA_RESOURCE_VIEW_DESC, texture: CUtexObject);
                fn cudaCreateSurfaceObject(surface: *mut CUsurfObject, from: *const cudaResourceDesc);
                fn cudaDestroySurfaceObject(surface: CUsurfObject);
                fn cudaGetSurfaceObjectResourceDesc(desc: *mut cudaResourceDesc, surface: CUsurfObject);
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
                fn cudaChooseDevice(device: *mut i32, requested: *const cudaDeviceProp);
                fn cudaSetValidDevices(devices: *mut i32, count: i32);
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
                fn cudaStreamGetAttribute(stream: CUstream, attribute: CUlaunchAttributeID, value: *mut CUlaunchAttributeValue);
                fn cudaStreamSetAttribute(stream: CUstream, attribute: CUlaunchAttributeID, value: *const CUlaunchAttributeValue);
                fn cudaStreamCopyAttributes(to: CUstream, from: CUstream);
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
            capture {
                fn cudaStreamBeginCapture(stream: CUstream, mode: CUstreamCaptureMode);
                fn cudaStreamBeginCaptureToGraph(stream: CUstream, graph: CUgraph, dependencies: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize, mode: CUstreamCaptureMode);
                fn cudaStreamEndCapture(stream: CUstream, graph: *mut CUgraph);
                fn cudaStreamIsCapturing(stream: CUstream, status: *mut CUstreamCaptureStatus);
                fn cudaStreamGetCaptureInfo(stream: CUstream, status: *mut CUstreamCaptureStatus, id: *mut u64, graph: *mut CUgraph, nodes: *mut *const CUgraphNode, edges: *mut *const CUgraphEdgeData, count: *mut usize);
                fn cudaStreamUpdateCaptureDependencies(stream: CUstream, dependencies: *mut CUgraphNode, edges: *const CUgraphEdgeData, count: usize, flags: u32);
                fn cudaThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode);
            }
            graph {
                fn cudaGraphCreate(graph: *mut CUgraph, flags: u32);
                fn cudaGraphClone(copy: *mut CUgraph, graph: CUgraph);
                fn cudaGraphDestroy(graph: CUgraph);
                fn cudaGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize);
                fn cudaGraphGetRootNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize);
                fn cudaGraphGetEdges(graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut usize);
                fn cudaGraphAddDependencies(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize);
                fn cudaGraphRemoveDependencies(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize);
                fn cudaGraphDebugDotPrint(graph: CUgraph, path: *const c_char, flags: u32);
                fn cudaGraphNodeGetType(node: CUgraphNode, kind: *mut CUgraphNodeType);
                fn cudaGraphNodeFindInClone(found: *mut CUgraphNode, node: CUgraphNode, copy: CUgraph);
                fn cudaGraphNodeGetDependencies(node: CUgraphNode, nodes: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut usize);
                fn cudaGraphNodeGetDependentNodes(node: CUgraphNode, nodes: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut usize);
                fn cudaGraphDestroyNode(node: CUgraphNode);
                fn cudaGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: u64);
                fn cudaGraphExecDestroy(exec: CUgraphExec);
                fn cudaGraphExecGetFlags(exec: CUgraphExec, flags: *mut u64);
                fn cudaGraphUpload(exec: CUgraphExec, stream: CUstream);
                fn cudaGraphLaunch(exec: CUgraphExec, stream: CUstream);
                fn cudaGraphExecUpdate(exec: CUgraphExec, graph: CUgraph, info: *mut CUgraphExecUpdateResultInfo);
                fn cudaGraphNodeSetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: u32);
                fn cudaGraphNodeGetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: *mut u32);
                fn cudaGraphInstantiate(exec: *mut CUgraphExec, graph: CUgraph, flags: u64);
                fn cudaGraphInstantiateWithParams(exec: *mut CUgraphExec, graph: CUgraph, params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS);
            }
            graph_node {
                fn cudaGraphKernelNodeGetAttribute(node: CUgraphNode, attribute: CUlaunchAttributeID, value: *mut CUlaunchAttributeValue);
                fn cudaGraphKernelNodeSetAttribute(node: CUgraphNode, attribute: CUlaunchAttributeID, value: *const CUlaunchAttributeValue);
                fn cudaGraphKernelNodeCopyAttributes(to: CUgraphNode, from: CUgraphNode);
                fn cudaGraphMemsetNodeGetParams(node: CUgraphNode, params: *mut CUDA_MEMSET_NODE_PARAMS);
                fn cudaGraphMemsetNodeSetParams(node: CUgraphNode, params: *const CUDA_MEMSET_NODE_PARAMS);
                fn cudaGraphAddHostNode(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, params: *const CUDA_HOST_NODE_PARAMS);
                fn cudaGraphHostNodeGetParams(node: CUgraphNode, params: *mut CUDA_HOST_NODE_PARAMS);
                fn cudaGraphHostNodeSetParams(node: CUgraphNode, params: *const CUDA_HOST_NODE_PARAMS);
                fn cudaGraphAddChildGraphNode(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, child: CUgraph);
                fn cudaGraphChildGraphNodeGetGraph(node: CUgraphNode, child: *mut CUgraph);
                fn cudaGraphAddEmptyNode(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize);
                fn cudaGraphAddEventRecordNode(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, event: CUevent);
                fn cudaGraphEventRecordNodeGetEvent(node: CUgraphNode, event: *mut CUevent);
                fn cudaGraphEventRecordNodeSetEvent(node: CUgraphNode, event: CUevent);
                fn cudaGraphAddEventWaitNode(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, event: CUevent);
                fn cudaGraphEventWaitNodeGetEvent(node: CUgraphNode, event: *mut CUevent);
                fn cudaGraphEventWaitNodeSetEvent(node: CUgraphNode, event: CUevent);
                fn cudaGraphAddKernelNode(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, params: *const cudaKernelNodeParams);
                fn cudaGraphKernelNodeGetParams(node: CUgraphNode, params: *mut cudaKernelNodeParams);
                fn cudaGraphKernelNodeSetParams(node: CUgraphNode, params: *const cudaKernelNodeParams);
                fn cudaGraphAddMemcpyNode(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, params: *const cudaMemcpy3DParms);
                fn cudaGraphAddMemcpyNode1D(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, to: *mut c_void, from: *const c_void, bytes: usize, kind: cudaMemcpyKind);
                fn cudaGraphAddMemcpyNodeToSymbol(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, symbol: *const c_void, from: *const c_void, bytes: usize, offset: usize, kind: cudaMemcpyKind);
                fn cudaGraphAddMemcpyNodeFromSymbol(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, to: *mut c_void, symbol: *const c_void, bytes: usize, offset: usize, kind: cudaMemcpyKind);
                fn cudaGraphMemcpyNodeGetParams(node: CUgraphNode, params: *mut cudaMemcpy3DParms);
                fn cudaGraphMemcpyNodeSetParams(node: CUgraphNode, params: *const cudaMemcpy3DParms);
                fn cudaGraphMemcpyNodeSetParams1D(node: CUgraphNode, to: *mut c_void, from: *const c_void, bytes: usize, kind: cudaMemcpyKind);
                fn cudaGraphMemcpyNodeSetParamsToSymbol(node: CUgraphNode, symbol: *const c_void, from: *const c_void, bytes: usize, offset: usize, kind: cudaMemcpyKind);
                fn cudaGraphMemcpyNodeSetParamsFromSymbol(node: CUgraphNode, to: *mut c_void, symbol: *const c_void, bytes: usize, offset: usize, kind: cudaMemcpyKind);
                fn cudaGraphAddMemsetNode(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, params: *const CUDA_MEMSET_NODE_PARAMS);
                fn cudaGraphAddNode(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize, params: *mut cudaGraphNodeParams);
                fn cudaGraphNodeSetParams(node: CUgraphNode, params: *mut cudaGraphNodeParams);
            }
            graph_exec {
                fn cudaGraphExecHostNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_HOST_NODE_PARAMS);
                fn cudaGraphExecChildGraphNodeSetParams(exec: CUgraphExec, node: CUgraphNode, child: CUgraph);
                fn cudaGraphExecEventRecordNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent);
                fn cudaGraphExecEventWaitNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent);
                fn cudaGraphExecKernelNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *const cudaKernelNodeParams);
                fn cudaGraphExecMemcpyNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *const cudaMemcpy3DParms);
                fn cudaGraphExecMemcpyNodeSetParams1D(exec: CUgraphExec, node: CUgraphNode, to: *mut c_void, from: *const c_void, bytes: usize, kind: cudaMemcpyKind);
                fn cudaGraphExecMemcpyNodeSetParamsToSymbol(exec: CUgraphExec, node: CUgraphNode, symbol: *const c_void, from: *const c_void, bytes: usize, offset: usize, kind: cudaMemcpyKind);
                fn cudaGraphExecMemcpyNodeSetParamsFromSymbol(exec: CUgraphExec, node: CUgraphNode, to: *mut c_void, symbol: *const c_void, bytes: usize, offset: usize, kind: cudaMemcpyKind);
                fn cudaGraphExecMemsetNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_MEMSET_NODE_PARAMS);
                fn cudaGraphExecNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *mut cudaGraphNodeParams);
            }
            graph_memory {
                fn cudaGraphAddMemAllocNode(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, params: *mut CUDA_MEM_ALLOC_NODE_PARAMS);
                fn cudaGraphMemAllocNodeGetParams(node: CUgraphNode, params: *mut CUDA_MEM_ALLOC_NODE_PARAMS);
                fn cudaGraphAddMemFreeNode(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, start: *mut c_void);
                fn cudaGraphMemFreeNodeGetParams(node: CUgraphNode, start: *mut c_void);
                fn cudaUserObjectCreate(object: *mut CUuserObject, data: *mut c_void, destroy: CUhostFn, references: u32, flags: u32);
                fn cudaUserObjectRetain(object: CUuserObject, references: u32);
                fn cudaUserObjectRelease(object: CUuserObject, references: u32);
                fn cudaGraphRetainUserObject(graph: CUgraph, object: CUuserObject, references: u32, flags: u32);
                fn cudaGraphReleaseUserObject(graph: CUgraph, object: CUuserObject, references: u32);
                fn cudaDeviceGraphMemTrim(device: i32);
                fn cudaDeviceGetGraphMemAttribute(device: i32, attribute: CUgraphMem_attribute, value: *mut c_void);
                fn cudaDeviceSetGraphMemAttribute(device: i32, attribute: CUgraphMem_attribute, value: *mut c_void);
            }
        }
    };
}

pub(crate) use with_functions;
