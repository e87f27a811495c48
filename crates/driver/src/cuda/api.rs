//! The list of the CUDA driver's functions, and the items that are generated from it: the table [`Api`], the names
//! [`Function`], and, in other modules and crates through [`with_functions`](crate::with_functions!), everything else
//! that needs one entry per function.
//!
//! A symbol is spelled with its version. Where a library lacks one (`cuCtxCreate_v4` came with CUDA 12.5), the table's
//! entry returns `NOT_SUPPORTED`.

use std::ffi::{CStr, c_char, c_void};
use std::fmt;

use super::array_types::*;
use super::code::{CUerror, CUresult};
use super::graph_types::*;
use super::kernel_types::*;
use super::managed_types::*;
use super::mapping_types::*;
use super::node_types::*;
use super::types::*;

/// Calls the macro `$then` with the whole list: `$then! { fn name(argument: Type, ...); ... }`. The types of
/// [`cuda`](crate::cuda), and `c_char` and `c_void` of the standard library, must be in scope where the macro is
/// called.
#[macro_export]
macro_rules! with_functions {
    ($then:path) => {
        $then! {
            // Initialization, versions, names.
            fn cuInit(flags: u32);
            fn cuDriverGetVersion(version: *mut i32);
            fn cuGetErrorName(error: u32, text: *mut *const c_char);
            fn cuGetErrorString(error: u32, text: *mut *const c_char);
            fn cuGetProcAddress_v2(name: *const c_char, function: *mut *mut c_void, version: i32, flags: u64, status: *mut CUdriverProcAddressQueryResult);

            // Devices.
            fn cuDeviceGet(device: *mut CUdevice, ordinal: i32);
            fn cuDeviceGetCount(count: *mut i32);
            fn cuDeviceGetName(name: *mut c_char, length: i32, device: CUdevice);
            fn cuDeviceGetUuid(uuid: *mut CUuuid, device: CUdevice);
            fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice);
            fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
            fn cuDeviceGetAttribute(value: *mut i32, attribute: CUdevice_attribute, device: CUdevice);
            fn cuDeviceGetByPCIBusId(device: *mut CUdevice, bus_id: *const c_char);
            fn cuDeviceGetPCIBusId(bus_id: *mut c_char, length: i32, device: CUdevice);
            fn cuDeviceCanAccessPeer(can: *mut i32, device: CUdevice, peer: CUdevice);
            fn cuDeviceGetP2PAttribute(value: *mut i32, attribute: CUdevice_P2PAttribute, from: CUdevice, to: CUdevice);
            fn cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: CUdevice);
            fn cuDeviceGetMemPool(pool: *mut CUmemoryPool, device: CUdevice);
            fn cuDeviceSetMemPool(device: CUdevice, pool: CUmemoryPool);
            fn cuDeviceGetProperties(properties: *mut CUdevprop, device: CUdevice);
            fn cuDeviceComputeCapability(major: *mut i32, minor: *mut i32, device: CUdevice);

            // Contexts: the primary one of a device, created ones, the current one of a thread.
            fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
            fn cuDevicePrimaryCtxRelease_v2(device: CUdevice);
            fn cuDevicePrimaryCtxReset_v2(device: CUdevice);
            fn cuDevicePrimaryCtxGetState(device: CUdevice, flags: *mut u32, active: *mut i32);
            fn cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: u32);
            fn cuCtxCreate_v2(context: *mut CUcontext, flags: u32, device: CUdevice);
            fn cuCtxCreate_v3(context: *mut CUcontext, affinities: *mut CUexecAffinityParam, count: i32, flags: u32, device: CUdevice);
            fn cuCtxCreate_v4(context: *mut CUcontext, params: *mut CUctxCreateParams, flags: u32, device: CUdevice);
            fn cuCtxAttach(context: *mut CUcontext, flags: u32);
            fn cuCtxDetach(context: CUcontext);
            fn cuCtxDestroy_v2(context: CUcontext);
            fn cuCtxPushCurrent_v2(context: CUcontext);
            fn cuCtxPopCurrent_v2(context: *mut CUcontext);
            fn cuCtxSetCurrent(context: CUcontext);
            fn cuCtxGetCurrent(context: *mut CUcontext);
            fn cuCtxGetDevice(device: *mut CUdevice);
            fn cuCtxGetDevice_v2(device: *mut CUdevice, context: CUcontext);
            fn cuCtxGetFlags(flags: *mut u32);
            fn cuCtxSetFlags(flags: u32);
            fn cuCtxGetId(context: CUcontext, id: *mut u64);
            fn cuCtxSynchronize();
            fn cuCtxSynchronize_v2(context: CUcontext);
            fn cuCtxRecordEvent(context: CUcontext, event: CUevent);
            fn cuCtxSetLimit(limit: CUlimit, value: usize);
            fn cuCtxGetLimit(value: *mut usize, limit: CUlimit);
            fn cuCtxGetCacheConfig(config: *mut CUfunc_cache);
            fn cuCtxSetCacheConfig(config: CUfunc_cache);
            fn cuCtxGetSharedMemConfig(config: *mut CUsharedconfig);
            fn cuCtxSetSharedMemConfig(config: CUsharedconfig);
            fn cuCtxResetPersistingL2Cache();
            fn cuCtxGetApiVersion(context: CUcontext, version: *mut u32);
            fn cuCtxGetStreamPriorityRange(least: *mut i32, greatest: *mut i32);
            fn cuCtxEnablePeerAccess(peer: CUcontext, flags: u32);
            fn cuCtxDisablePeerAccess(peer: CUcontext);

            // Memory: of a device, of the host, managed.
            fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
            fn cuMemAlloc_v2(start: *mut CUdeviceptr, bytes: usize);
            fn cuMemAllocPitch_v2(start: *mut CUdeviceptr, pitch: *mut usize, width_bytes: usize, height: usize, element_bytes: u32);
            fn cuMemFree_v2(start: CUdeviceptr);
            fn cuMemGetAddressRange_v2(base: *mut CUdeviceptr, bytes: *mut usize, start: CUdeviceptr);
            fn cuMemAllocHost_v2(start: *mut *mut c_void, bytes: usize);
            fn cuMemFreeHost(start: *mut c_void);
            fn cuMemHostAlloc(start: *mut *mut c_void, bytes: usize, flags: u32);
            fn cuMemHostGetDevicePointer_v2(address: *mut CUdeviceptr, start: *mut c_void, flags: u32);
            fn cuMemHostGetFlags(flags: *mut u32, start: *mut c_void);
            fn cuMemHostRegister_v2(start: *mut c_void, bytes: usize, flags: u32);
            fn cuMemHostUnregister(start: *mut c_void);
            fn cuMemAllocManaged(start: *mut CUdeviceptr, bytes: usize, flags: u32);

            // Managed memory: attachment, prefetch and advice.
            fn cuStreamAttachMemAsync(stream: CUstream, start: CUdeviceptr, bytes: usize, flags: u32);
            fn cuMemPrefetchAsync(start: CUdeviceptr, bytes: usize, device: CUdevice, stream: CUstream);
            fn cuMemPrefetchAsync_v2(start: CUdeviceptr, bytes: usize, location: CUmemLocation, flags: u32, stream: CUstream);
            fn cuMemAdvise(start: CUdeviceptr, bytes: usize, advice: CUmem_advise, device: CUdevice);
            fn cuMemAdvise_v2(start: CUdeviceptr, bytes: usize, advice: CUmem_advise, location: CUmemLocation);
            fn cuMemRangeGetAttribute(data: *mut c_void, data_bytes: usize, attribute: CUmem_range_attribute, start: CUdeviceptr, bytes: usize);
            fn cuMemRangeGetAttributes(data: *mut *mut c_void, data_bytes: *mut usize, attributes: *mut CUmem_range_attribute, count: usize, start: CUdeviceptr, bytes: usize);

            // Copies.
            fn cuMemcpy(to: CUdeviceptr, from: CUdeviceptr, bytes: usize);
            fn cuMemcpyPeer(to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize);
            fn cuMemcpyHtoD_v2(to: CUdeviceptr, from: *const c_void, bytes: usize);
            fn cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize);
            fn cuMemcpyDtoD_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize);
            fn cuMemcpy2D_v2(copy: *const CUDA_MEMCPY2D);
            fn cuMemcpy2DUnaligned_v2(copy: *const CUDA_MEMCPY2D);
            fn cuMemcpy3D_v2(copy: *const CUDA_MEMCPY3D);
            fn cuMemcpy3DPeer(copy: *const CUDA_MEMCPY3D_PEER);
            fn cuMemcpyAsync(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream);
            fn cuMemcpyPeerAsync(to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, bytes: usize, stream: CUstream);
            fn cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream);
            fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream);
            fn cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream);
            fn cuMemcpy2DAsync_v2(copy: *const CUDA_MEMCPY2D, stream: CUstream);
            fn cuMemcpy3DAsync_v2(copy: *const CUDA_MEMCPY3D, stream: CUstream);
            fn cuMemcpy3DPeerAsync(copy: *const CUDA_MEMCPY3D_PEER, stream: CUstream);

            // Arrays, and copies to and from them.
            fn cuArrayCreate_v2(array: *mut CUarray, descriptor: *const CUDA_ARRAY_DESCRIPTOR);
            fn cuArrayGetDescriptor_v2(descriptor: *mut CUDA_ARRAY_DESCRIPTOR, array: CUarray);
            fn cuArrayDestroy(array: CUarray);
            fn cuArray3DCreate_v2(array: *mut CUarray, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR);
            fn cuArray3DGetDescriptor_v2(descriptor: *mut CUDA_ARRAY3D_DESCRIPTOR, array: CUarray);
            fn cuMipmappedArrayCreate(mipmap: *mut CUmipmappedArray, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR, levels: u32);
            fn cuMipmappedArrayGetLevel(array: *mut CUarray, mipmap: CUmipmappedArray, level: u32);
            fn cuMipmappedArrayDestroy(mipmap: CUmipmappedArray);
            fn cuMemcpyDtoA_v2(to: CUarray, to_offset: usize, from: CUdeviceptr, bytes: usize);
            fn cuMemcpyAtoD_v2(to: CUdeviceptr, from: CUarray, from_offset: usize, bytes: usize);
            fn cuMemcpyHtoA_v2(to: CUarray, to_offset: usize, from: *const c_void, bytes: usize);
            fn cuMemcpyAtoH_v2(to: *mut c_void, from: CUarray, from_offset: usize, bytes: usize);
            fn cuMemcpyAtoA_v2(to: CUarray, to_offset: usize, from: CUarray, from_offset: usize, bytes: usize);
            fn cuMemcpyHtoAAsync_v2(to: CUarray, to_offset: usize, from: *const c_void, bytes: usize, stream: CUstream);
            fn cuMemcpyAtoHAsync_v2(to: *mut c_void, from: CUarray, from_offset: usize, bytes: usize, stream: CUstream);

            // Textures and surfaces.
            fn cuTexObjectCreate(texture: *mut CUtexObject, resource: *const CUDA_RESOURCE_DESC, sampling: *const CUDA_TEXTURE_DESC, view: *const CUDA_RESOURCE_VIEW_DESC);
            fn cuTexObjectDestroy(texture: CUtexObject);
            fn cuTexObjectGetResourceDesc(resource: *mut CUDA_RESOURCE_DESC, texture: CUtexObject);
            fn cuTexObjectGetTextureDesc(sampling: *mut CUDA_TEXTURE_DESC, texture: CUtexObject);
            fn cuTexObjectGetResourceViewDesc(view: *mut CUDA_RESOURCE_VIEW_DESC, texture: CUtexObject);
            fn cuSurfObjectCreate(surface: *mut CUsurfObject, resource: *const CUDA_RESOURCE_DESC);
            fn cuSurfObjectDestroy(surface: CUsurfObject);
            fn cuSurfObjectGetResourceDesc(resource: *mut CUDA_RESOURCE_DESC, surface: CUsurfObject);

            // Tensor maps.
            fn cuTensorMapEncodeTiled(map: *mut CUtensorMap, data_type: CUtensorMapDataType, rank: u32, address: CUdeviceptr, sizes: *const u64, strides: *const u64, box_sizes: *const u32, steps: *const u32, interleave: u32, swizzle: u32, promotion: u32, fill: u32);
            fn cuTensorMapEncodeIm2col(map: *mut CUtensorMap, data_type: CUtensorMapDataType, rank: u32, address: CUdeviceptr, sizes: *const u64, strides: *const u64, lower: *const i32, upper: *const i32, channels: u32, pixels: u32, steps: *const u32, interleave: u32, swizzle: u32, promotion: u32, fill: u32);
            fn cuTensorMapReplaceAddress(map: *mut CUtensorMap, address: CUdeviceptr);

            // Fills.
            fn cuMemsetD8_v2(to: CUdeviceptr, value: u8, count: usize);
            fn cuMemsetD16_v2(to: CUdeviceptr, value: u16, count: usize);
            fn cuMemsetD32_v2(to: CUdeviceptr, value: u32, count: usize);
            fn cuMemsetD2D8_v2(to: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize);
            fn cuMemsetD2D16_v2(to: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize);
            fn cuMemsetD2D32_v2(to: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize);
            fn cuMemsetD8Async(to: CUdeviceptr, value: u8, count: usize, stream: CUstream);
            fn cuMemsetD16Async(to: CUdeviceptr, value: u16, count: usize, stream: CUstream);
            fn cuMemsetD32Async(to: CUdeviceptr, value: u32, count: usize, stream: CUstream);
            fn cuMemsetD2D8Async(to: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize, stream: CUstream);
            fn cuMemsetD2D16Async(to: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize, stream: CUstream);
            fn cuMemsetD2D32Async(to: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize, stream: CUstream);

            // Pointer attributes.
            fn cuPointerGetAttribute(data: *mut c_void, attribute: CUpointer_attribute, address: CUdeviceptr);
            fn cuPointerSetAttribute(value: *const c_void, attribute: CUpointer_attribute, address: CUdeviceptr);
            fn cuPointerGetAttributes(count: u32, attributes: *mut CUpointer_attribute, data: *mut *mut c_void, address: CUdeviceptr);

            // Streams.
            fn cuStreamCreate(stream: *mut CUstream, flags: u32);
            fn cuStreamCreateWithPriority(stream: *mut CUstream, flags: u32, priority: i32);
            fn cuStreamGetPriority(stream: CUstream, priority: *mut i32);
            fn cuStreamGetFlags(stream: CUstream, flags: *mut u32);
            fn cuStreamGetId(stream: CUstream, id: *mut u64);
            fn cuStreamGetCtx(stream: CUstream, context: *mut CUcontext);
            fn cuStreamGetCtx_v2(stream: CUstream, context: *mut CUcontext, green: *mut usize);
            fn cuStreamGetDevice(stream: CUstream, device: *mut CUdevice);
            fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: u32);
            fn cuStreamAddCallback(stream: CUstream, callback: CUstreamCallback, data: *mut c_void, flags: u32);
            fn cuStreamQuery(stream: CUstream);
            fn cuStreamSynchronize(stream: CUstream);
            fn cuStreamDestroy_v2(stream: CUstream);
            fn cuStreamIsCapturing(stream: CUstream, status: *mut CUstreamCaptureStatus);
            fn cuStreamGetAttribute(stream: CUstream, attribute: CUlaunchAttributeID, value: *mut CUlaunchAttributeValue);
            fn cuStreamSetAttribute(stream: CUstream, attribute: CUlaunchAttributeID, value: *const CUlaunchAttributeValue);
            fn cuStreamCopyAttributes(to: CUstream, from: CUstream);

            // Captures: recording a stream's work as a graph.
            fn cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode);
            fn cuStreamBeginCaptureToGraph(stream: CUstream, graph: CUgraph, dependencies: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize, mode: CUstreamCaptureMode);
            fn cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph);
            fn cuStreamGetCaptureInfo_v2(stream: CUstream, status: *mut CUstreamCaptureStatus, id: *mut u64, graph: *mut CUgraph, nodes: *mut *const CUgraphNode, count: *mut usize);
            fn cuStreamGetCaptureInfo_v3(stream: CUstream, status: *mut CUstreamCaptureStatus, id: *mut u64, graph: *mut CUgraph, nodes: *mut *const CUgraphNode, edges: *mut *const CUgraphEdgeData, count: *mut usize);
            fn cuStreamUpdateCaptureDependencies(stream: CUstream, dependencies: *mut CUgraphNode, count: usize, flags: u32);
            fn cuStreamUpdateCaptureDependencies_v2(stream: CUstream, dependencies: *mut CUgraphNode, edges: *const CUgraphEdgeData, count: usize, flags: u32);
            fn cuThreadExchangeStreamCaptureMode(mode: *mut CUstreamCaptureMode);

            // Graphs.
            fn cuGraphCreate(graph: *mut CUgraph, flags: u32);
            fn cuGraphClone(copy: *mut CUgraph, graph: CUgraph);
            fn cuGraphDestroy(graph: CUgraph);
            fn cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize);
            fn cuGraphGetRootNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize);
            fn cuGraphGetEdges(graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, count: *mut usize);
            fn cuGraphGetEdges_v2(graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut usize);
            fn cuGraphAddDependencies(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, count: usize);
            fn cuGraphAddDependencies_v2(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize);
            fn cuGraphRemoveDependencies(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, count: usize);
            fn cuGraphRemoveDependencies_v2(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize);
            fn cuGraphDebugDotPrint(graph: CUgraph, path: *const c_char, flags: u32);
            fn cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: u64);
            fn cuGraphExecDestroy(exec: CUgraphExec);
            fn cuGraphUpload(exec: CUgraphExec, stream: CUstream);
            fn cuGraphLaunch(exec: CUgraphExec, stream: CUstream);
            fn cuGraphInstantiateWithParams(exec: *mut CUgraphExec, graph: CUgraph, params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS);
            fn cuGraphExecGetFlags(exec: CUgraphExec, flags: *mut u64);
            fn cuGraphExecUpdate_v2(exec: CUgraphExec, graph: CUgraph, info: *mut CUgraphExecUpdateResultInfo);

            // Nodes of graphs.
            fn cuGraphNodeGetType(node: CUgraphNode, kind: *mut CUgraphNodeType);
            fn cuGraphNodeFindInClone(found: *mut CUgraphNode, node: CUgraphNode, copy: CUgraph);
            fn cuGraphNodeGetDependencies(node: CUgraphNode, nodes: *mut CUgraphNode, count: *mut usize);
            fn cuGraphNodeGetDependencies_v2(node: CUgraphNode, nodes: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut usize);
            fn cuGraphNodeGetDependentNodes(node: CUgraphNode, nodes: *mut CUgraphNode, count: *mut usize);
            fn cuGraphNodeGetDependentNodes_v2(node: CUgraphNode, nodes: *mut CUgraphNode, edges: *mut CUgraphEdgeData, count: *mut usize);
            fn cuGraphDestroyNode(node: CUgraphNode);
            fn cuGraphAddNode(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, params: *mut CUgraphNodeParams);
            fn cuGraphAddNode_v2(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize, params: *mut CUgraphNodeParams);
            fn cuGraphNodeSetParams(node: CUgraphNode, params: *mut CUgraphNodeParams);
            fn cuGraphExecNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *mut CUgraphNodeParams);
            fn cuGraphNodeSetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: u32);
            fn cuGraphNodeGetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: *mut u32);
            fn cuGraphAddKernelNode_v2(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, params: *const CUDA_KERNEL_NODE_PARAMS);
            fn cuGraphKernelNodeGetParams_v2(node: CUgraphNode, params: *mut CUDA_KERNEL_NODE_PARAMS);
            fn cuGraphKernelNodeSetParams_v2(node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS);
            fn cuGraphExecKernelNodeSetParams_v2(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS);
            fn cuGraphKernelNodeGetAttribute(node: CUgraphNode, attribute: CUlaunchAttributeID, value: *mut CUlaunchAttributeValue);
            fn cuGraphKernelNodeSetAttribute(node: CUgraphNode, attribute: CUlaunchAttributeID, value: *const CUlaunchAttributeValue);
            fn cuGraphKernelNodeCopyAttributes(to: CUgraphNode, from: CUgraphNode);
            fn cuGraphAddMemcpyNode(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, copy: *const CUDA_MEMCPY3D, context: CUcontext);
            fn cuGraphMemcpyNodeGetParams(node: CUgraphNode, copy: *mut CUDA_MEMCPY3D);
            fn cuGraphMemcpyNodeSetParams(node: CUgraphNode, copy: *const CUDA_MEMCPY3D);
            fn cuGraphExecMemcpyNodeSetParams(exec: CUgraphExec, node: CUgraphNode, copy: *const CUDA_MEMCPY3D, context: CUcontext);
            fn cuGraphAddMemsetNode(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, params: *const CUDA_MEMSET_NODE_PARAMS, context: CUcontext);
            fn cuGraphMemsetNodeGetParams(node: CUgraphNode, params: *mut CUDA_MEMSET_NODE_PARAMS);
            fn cuGraphMemsetNodeSetParams(node: CUgraphNode, params: *const CUDA_MEMSET_NODE_PARAMS);
            fn cuGraphExecMemsetNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_MEMSET_NODE_PARAMS, context: CUcontext);
            fn cuGraphAddHostNode(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, params: *const CUDA_HOST_NODE_PARAMS);
            fn cuGraphHostNodeGetParams(node: CUgraphNode, params: *mut CUDA_HOST_NODE_PARAMS);
            fn cuGraphHostNodeSetParams(node: CUgraphNode, params: *const CUDA_HOST_NODE_PARAMS);
            fn cuGraphExecHostNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_HOST_NODE_PARAMS);
            fn cuGraphAddChildGraphNode(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, child: CUgraph);
            fn cuGraphChildGraphNodeGetGraph(node: CUgraphNode, child: *mut CUgraph);
            fn cuGraphExecChildGraphNodeSetParams(exec: CUgraphExec, node: CUgraphNode, child: CUgraph);
            fn cuGraphAddEmptyNode(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize);
            fn cuGraphAddEventRecordNode(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, event: CUevent);
            fn cuGraphEventRecordNodeGetEvent(node: CUgraphNode, event: *mut CUevent);
            fn cuGraphEventRecordNodeSetEvent(node: CUgraphNode, event: CUevent);
            fn cuGraphExecEventRecordNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent);
            fn cuGraphAddEventWaitNode(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, event: CUevent);
            fn cuGraphEventWaitNodeGetEvent(node: CUgraphNode, event: *mut CUevent);
            fn cuGraphEventWaitNodeSetEvent(node: CUgraphNode, event: CUevent);
            fn cuGraphExecEventWaitNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent);
            fn cuGraphAddBatchMemOpNode(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS);
            fn cuGraphBatchMemOpNodeGetParams(node: CUgraphNode, params: *mut CUDA_BATCH_MEM_OP_NODE_PARAMS);
            fn cuGraphBatchMemOpNodeSetParams(node: CUgraphNode, params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS);
            fn cuGraphExecBatchMemOpNodeSetParams(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS);
            fn cuGraphAddMemAllocNode(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, params: *mut CUDA_MEM_ALLOC_NODE_PARAMS);
            fn cuGraphMemAllocNodeGetParams(node: CUgraphNode, params: *mut CUDA_MEM_ALLOC_NODE_PARAMS);
            fn cuGraphAddMemFreeNode(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, start: CUdeviceptr);
            fn cuGraphMemFreeNodeGetParams(node: CUgraphNode, start: *mut CUdeviceptr);
            fn cuDeviceGraphMemTrim(device: CUdevice);
            fn cuDeviceGetGraphMemAttribute(device: CUdevice, attribute: CUgraphMem_attribute, value: *mut c_void);
            fn cuDeviceSetGraphMemAttribute(device: CUdevice, attribute: CUgraphMem_attribute, value: *mut c_void);

            // Objects of the program that graphs keep alive.
            fn cuUserObjectCreate(object: *mut CUuserObject, data: *mut c_void, destroy: CUhostFn, references: u32, flags: u32);
            fn cuUserObjectRetain(object: CUuserObject, references: u32);
            fn cuUserObjectRelease(object: CUuserObject, references: u32);
            fn cuGraphRetainUserObject(graph: CUgraph, object: CUuserObject, references: u32, flags: u32);
            fn cuGraphReleaseUserObject(graph: CUgraph, object: CUuserObject, references: u32);

            // Events.
            fn cuEventCreate(event: *mut CUevent, flags: u32);
            fn cuEventRecord(event: CUevent, stream: CUstream);
            fn cuEventRecordWithFlags(event: CUevent, stream: CUstream, flags: u32);
            fn cuEventQuery(event: CUevent);
            fn cuEventSynchronize(event: CUevent);
            fn cuEventDestroy_v2(event: CUevent);
            fn cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent);
            fn cuEventElapsedTime_v2(milliseconds: *mut f32, start: CUevent, end: CUevent);

            // Host functions, and words in memory, in stream order.
            fn cuLaunchHostFunc(stream: CUstream, work: CUhostFn, data: *mut c_void);
            fn cuStreamWaitValue32_v2(stream: CUstream, address: CUdeviceptr, value: u32, flags: u32);
            fn cuStreamWaitValue64_v2(stream: CUstream, address: CUdeviceptr, value: u64, flags: u32);
            fn cuStreamWriteValue32_v2(stream: CUstream, address: CUdeviceptr, value: u32, flags: u32);
            fn cuStreamWriteValue64_v2(stream: CUstream, address: CUdeviceptr, value: u64, flags: u32);
            fn cuStreamBatchMemOp_v2(stream: CUstream, count: u32, operations: *mut CUstreamBatchMemOpParams, flags: u32);

            // Stream-ordered allocation.
            fn cuMemAllocAsync(start: *mut CUdeviceptr, bytes: usize, stream: CUstream);
            fn cuMemFreeAsync(start: CUdeviceptr, stream: CUstream);
            fn cuMemAllocFromPoolAsync(start: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream);
            fn cuMemPoolCreate(pool: *mut CUmemoryPool, props: *const CUmemPoolProps);
            fn cuMemPoolDestroy(pool: CUmemoryPool);
            fn cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void);
            fn cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void);
            fn cuMemPoolTrimTo(pool: CUmemoryPool, keep_bytes: usize);
            fn cuMemPoolSetAccess(pool: CUmemoryPool, map: *const CUmemAccessDesc, count: usize);
            fn cuMemPoolGetAccess(flags: *mut CUmemAccess_flags, pool: CUmemoryPool, location: *mut CUmemLocation);
            fn cuMemPoolExportToShareableHandle(shareable: *mut c_void, pool: CUmemoryPool, kind: CUmemAllocationHandleType, flags: u64);
            fn cuMemPoolImportFromShareableHandle(pool: *mut CUmemoryPool, shareable: *mut c_void, kind: CUmemAllocationHandleType, flags: u64);
            fn cuMemPoolExportPointer(data: *mut CUmemPoolPtrExportData, start: CUdeviceptr);
            fn cuMemPoolImportPointer(start: *mut CUdeviceptr, pool: CUmemoryPool, data: *mut CUmemPoolPtrExportData);

            // Virtual memory: addresses, memory, and mapping one to the other.
            fn cuMemAddressReserve(start: *mut CUdeviceptr, bytes: usize, alignment: usize, hint: CUdeviceptr, flags: u64);
            fn cuMemAddressFree(start: CUdeviceptr, bytes: usize);
            fn cuMemCreate(allocation: *mut CUmemGenericAllocationHandle, bytes: usize, prop: *const CUmemAllocationProp, flags: u64);
            fn cuMemRelease(allocation: CUmemGenericAllocationHandle);
            fn cuMemMap(start: CUdeviceptr, bytes: usize, offset: usize, allocation: CUmemGenericAllocationHandle, flags: u64);
            fn cuMemUnmap(start: CUdeviceptr, bytes: usize);
            fn cuMemSetAccess(start: CUdeviceptr, bytes: usize, access: *const CUmemAccessDesc, count: usize);
            fn cuMemGetAccess(flags: *mut u64, location: *const CUmemLocation, start: CUdeviceptr);
            fn cuMemGetAllocationGranularity(bytes: *mut usize, prop: *const CUmemAllocationProp, option: CUmemAllocationGranularity_flags);
            fn cuMemGetAllocationPropertiesFromHandle(prop: *mut CUmemAllocationProp, allocation: CUmemGenericAllocationHandle);
            fn cuMemRetainAllocationHandle(allocation: *mut CUmemGenericAllocationHandle, start: *mut c_void);
            fn cuMemExportToShareableHandle(shareable: *mut c_void, allocation: CUmemGenericAllocationHandle, kind: CUmemAllocationHandleType, flags: u64);
            fn cuMemImportFromShareableHandle(allocation: *mut CUmemGenericAllocationHandle, shareable: *mut c_void, kind: CUmemAllocationHandleType);

            // Memory and events of another process, by opaque handles.
            fn cuIpcGetMemHandle(handle: *mut CUipcMemHandle, start: CUdeviceptr);
            fn cuIpcOpenMemHandle_v2(start: *mut CUdeviceptr, handle: CUipcMemHandle, flags: u32);
            fn cuIpcCloseMemHandle(start: CUdeviceptr);
            fn cuIpcGetEventHandle(handle: *mut CUipcEventHandle, event: CUevent);
            fn cuIpcOpenEventHandle(event: *mut CUevent, handle: CUipcEventHandle);

            // Modules: an image loaded into a context.
            fn cuModuleLoad(module: *mut CUmodule, path: *const c_char);
            fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void);
            fn cuModuleLoadDataEx(module: *mut CUmodule, image: *const c_void, count: u32, options: *mut CUjit_option, values: *mut *mut c_void);
            fn cuModuleLoadFatBinary(module: *mut CUmodule, image: *const c_void);
            fn cuModuleUnload(module: CUmodule);
            fn cuModuleGetLoadingMode(mode: *mut CUmoduleLoadingMode);
            fn cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
            fn cuModuleGetFunctionCount(count: *mut u32, module: CUmodule);
            fn cuModuleEnumerateFunctions(functions: *mut CUfunction, count: u32, module: CUmodule);
            fn cuModuleGetGlobal_v2(start: *mut CUdeviceptr, bytes: *mut usize, module: CUmodule, name: *const c_char);

            // Libraries: images that belong to no context, and their kernels.
            fn cuLibraryLoadData(library: *mut CUlibrary, code: *const c_void, options: *mut CUjit_option, values: *mut *mut c_void, count: u32, library_options: *mut CUlibraryOption, library_values: *mut *mut c_void, library_count: u32);
            fn cuLibraryLoadFromFile(library: *mut CUlibrary, path: *const c_char, options: *mut CUjit_option, values: *mut *mut c_void, count: u32, library_options: *mut CUlibraryOption, library_values: *mut *mut c_void, library_count: u32);
            fn cuLibraryUnload(library: CUlibrary);
            fn cuLibraryGetKernel(kernel: *mut CUkernel, library: CUlibrary, name: *const c_char);
            fn cuLibraryGetKernelCount(count: *mut u32, library: CUlibrary);
            fn cuLibraryEnumerateKernels(kernels: *mut CUkernel, count: u32, library: CUlibrary);
            fn cuLibraryGetModule(module: *mut CUmodule, library: CUlibrary);
            fn cuLibraryGetGlobal(start: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char);
            fn cuLibraryGetManaged(start: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char);
            fn cuLibraryGetUnifiedFunction(function: *mut *mut c_void, library: CUlibrary, name: *const c_char);
            fn cuKernelGetFunction(function: *mut CUfunction, kernel: CUkernel);
            fn cuKernelGetLibrary(library: *mut CUlibrary, kernel: CUkernel);
            fn cuKernelGetAttribute(value: *mut i32, attribute: CUfunction_attribute, kernel: CUkernel, device: CUdevice);
            fn cuKernelSetAttribute(attribute: CUfunction_attribute, value: i32, kernel: CUkernel, device: CUdevice);
            fn cuKernelSetCacheConfig(kernel: CUkernel, config: CUfunc_cache, device: CUdevice);
            fn cuKernelGetName(name: *mut *const c_char, kernel: CUkernel);
            fn cuKernelGetParamInfo(kernel: CUkernel, index: usize, offset: *mut usize, bytes: *mut usize);

            // The linker: several images into one.
            fn cuLinkCreate_v2(count: u32, options: *mut CUjit_option, values: *mut *mut c_void, link: *mut CUlinkState);
            fn cuLinkAddData_v2(link: CUlinkState, kind: CUjitInputType, data: *mut c_void, bytes: usize, name: *const c_char, count: u32, options: *mut CUjit_option, values: *mut *mut c_void);
            fn cuLinkAddFile_v2(link: CUlinkState, kind: CUjitInputType, path: *const c_char, count: u32, options: *mut CUjit_option, values: *mut *mut c_void);
            fn cuLinkComplete(link: CUlinkState, image: *mut *mut c_void, bytes: *mut usize);
            fn cuLinkDestroy(link: CUlinkState);

            // Functions: the kernels of a module.
            fn cuFuncGetAttribute(value: *mut i32, attribute: CUfunction_attribute, function: CUfunction);
            fn cuFuncSetAttribute(function: CUfunction, attribute: CUfunction_attribute, value: i32);
            fn cuFuncSetCacheConfig(function: CUfunction, config: CUfunc_cache);
            fn cuFuncSetBlockShape(function: CUfunction, x: i32, y: i32, z: i32);
            fn cuFuncSetSharedMemConfig(function: CUfunction, config: CUsharedconfig);
            fn cuFuncGetModule(module: *mut CUmodule, function: CUfunction);
            fn cuFuncGetName(name: *mut *const c_char, function: CUfunction);
            fn cuFuncGetParamInfo(function: CUfunction, index: usize, offset: *mut usize, bytes: *mut usize);
            fn cuFuncIsLoaded(state: *mut CUfunctionLoadingState, function: CUfunction);
            fn cuFuncLoad(function: CUfunction);

            // Occupancy.
            fn cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks: *mut i32, function: CUfunction, block_size: i32, shared_bytes: usize);
            fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks: *mut i32, function: CUfunction, block_size: i32, shared_bytes: usize, flags: u32);
            fn cuOccupancyMaxPotentialBlockSize(grid_size: *mut i32, block_size: *mut i32, function: CUfunction, shared_of_block: CUoccupancyB2DSize, shared_bytes: usize, block_size_limit: i32);
            fn cuOccupancyMaxPotentialBlockSizeWithFlags(grid_size: *mut i32, block_size: *mut i32, function: CUfunction, shared_of_block: CUoccupancyB2DSize, shared_bytes: usize, block_size_limit: i32, flags: u32);
            fn cuOccupancyAvailableDynamicSMemPerBlock(shared_bytes: *mut usize, function: CUfunction, blocks: i32, block_size: i32);
            fn cuOccupancyMaxPotentialClusterSize(size: *mut i32, function: CUfunction, config: *const CUlaunchConfig);
            fn cuOccupancyMaxActiveClusters(clusters: *mut i32, function: CUfunction, config: *const CUlaunchConfig);

            // Launches.
            fn cuLaunchKernel(function: CUfunction, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32, shared_bytes: u32, stream: CUstream, parameters: *mut *mut c_void, extra: *mut *mut c_void);
            fn cuLaunchKernelEx(config: *const CUlaunchConfig, function: CUfunction, parameters: *mut *mut c_void, extra: *mut *mut c_void);
            fn cuLaunchCooperativeKernel(function: CUfunction, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32, shared_bytes: u32, stream: CUstream, parameters: *mut *mut c_void);

            // The driver's log of errors.
            fn cuLogsRegisterCallback(callback: CUlogsCallback, data: *mut c_void, handle: *mut CUlogsCallbackHandle);
            fn cuLogsUnregisterCallback(handle: CUlogsCallbackHandle);
            fn cuLogsCurrent(iterator: *mut CUlogIterator, flags: u32);
            fn cuLogsDumpToFile(iterator: *mut CUlogIterator, path: *const c_char, flags: u32);
            fn cuLogsDumpToMemory(iterator: *mut CUlogIterator, text: *mut c_char, bytes: *mut usize, flags: u32);

            // Profiler control.
            fn cuProfilerStart();
            fn cuProfilerStop();
        }
    };
}

/// The contract of every table, which makes the functions of [`cuda`](crate::cuda) safe to call.
///
/// A table with one function replaced keeps the contract of the original: `Api { cuInit: mine, ..api }`.
#[derive(Clone, Copy, Debug)]
pub struct DriverContract(());

impl DriverContract {
    /// States the contract for a new table and all copies of it.
    ///
    /// # Safety
    /// Each function of the table does what the driver API documents, and accesses no memory beyond that. Calls through
    /// the table are as unsafe as the C functions: the program passes handles of this driver that were not destroyed;
    /// addresses are memory that the call may use in that way, ordered with everything else that uses it; and nothing
    /// refers to host memory while a device writes it.
    pub const unsafe fn new() -> Self {
        Self(())
    }
}

macro_rules! table {
    ($(fn $name:ident($($argument:ident: $kind:ty),*);)*) => {
        /// A CUDA driver: a pointer to each of its functions.
        ///
        /// A value, not a global: several drivers can be loaded in one process, and a test makes one call fail by
        /// replacing one field.
        #[derive(Clone, Copy)]
        #[allow(missing_docs, non_snake_case, reason = "the fields are named as C names the functions")]
        pub struct Api {
            /// Keeps safe code from building a table of arbitrary functions.
            pub contract: DriverContract,
            $(pub $name: unsafe extern "C" fn($($kind),*) -> CUresult,)*
        }

        /// The name of a function in the list.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs, non_camel_case_types, reason = "the variants are named as C names the functions")]
        pub enum Function {
            $($name,)*
        }

        impl Function {
            /// Every function of the list, in its order.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Returns the symbol, with its version.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }
        }

        impl Api {
            /// Returns a table of the symbols that `find` returns, and the functions that it did not find: those return
            /// `NOT_SUPPORTED`.
            ///
            /// # Safety
            /// The function that `find` returns for a name must have the C signature that the list states, and must
            /// stay callable for as long as the table or a copy of it is used. For the rest as for
            /// [`DriverContract::new`].
            pub unsafe fn from_symbols(
                find: impl Fn(&CStr) -> Option<unsafe extern "C" fn()>,
            ) -> (Self, Vec<Function>) {
                let mut absent = Vec::new();
                let api = Self {
                    // SAFETY: the caller guarantees that the functions are a driver's, and that the calls through the
                    // table are valid.
                    contract: unsafe { DriverContract::new() },
                    $($name: match find(symbol(concat!(stringify!($name), "\0"))) {
                        // SAFETY: the caller guarantees that the symbol has this signature.
                        Some(function) => unsafe {
                            std::mem::transmute::<
                                unsafe extern "C" fn(),
                                unsafe extern "C" fn($($kind),*) -> CUresult,
                            >(function)
                        },
                        None => {
                            absent.push(Function::$name);
                            missing::$name
                        }
                    },)*
                };
                (api, absent)
            }

            /// Returns the address of a function of this driver.
            pub fn address(&self, function: Function) -> usize {
                match function {
                    $(Function::$name => self.$name as usize,)*
                }
            }
        }

        /// The table's entry for a symbol that a library lacks.
        #[allow(non_snake_case, reason = "named as C names the functions")]
        mod missing {
            use super::*;

            $(pub(super) unsafe extern "C" fn $name($(_: $kind),*) -> CUresult {
                Err(CUerror::NOT_SUPPORTED)
            })*
        }
    };
}

with_functions!(table);

fn symbol(name: &'static str) -> &'static CStr {
    CStr::from_bytes_with_nul(name.as_bytes()).expect("a symbol of the list ends in a NUL and contains no other")
}

impl Function {
    /// Returns the function with this symbol.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|function| function.name() == name)
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").finish_non_exhaustive()
    }
}

// The other modules import it from here, not from the crate root.
pub(crate) use with_functions;
