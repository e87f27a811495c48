//! The symbols that the driver's library exports: every documented function of CUDA 12.9 and 13.0, in all its versions,
//! each with the CUDA release that introduced it. Most of them are in no other list of this crate.

/// One version of a function of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// The symbol, with its version: `cuMemAlloc_v2`.
    pub name: &'static str,
    /// The CUDA release, in the form of `cuDriverGetVersion`, from which the unversioned name means this version.
    pub since: i32,
    /// The variant that uses the per-thread default stream in place of the legacy one, if there is one.
    pub per_thread: Option<&'static str>,
}

/// Returns the versions of a function, by its unversioned name: the oldest first, none if CUDA never had it.
pub fn forms(name: &str) -> &'static [Symbol] {
    let found = SYMBOLS.binary_search_by(|forms| forms[0].name.cmp(name));
    found.map_or(&[], |index| SYMBOLS[index])
}

/// Returns the variant of a symbol, spelled with its version, that uses the per-thread default stream.
pub fn per_thread(name: &str) -> Option<&'static str> {
    SYMBOLS.iter().copied().flatten().find(|symbol| symbol.name == name)?.per_thread
}

macro_rules! symbols {
    ($($($name:ident $since:literal $($per_thread:ident)?),+;)*) => {
        /// All functions in the order of their names, each with its versions, the oldest first. The oldest is spelled
        /// without a version.
        pub const SYMBOLS: &[&[Symbol]] = &[$(&[$(Symbol {
            name: stringify!($name),
            since: $since,
            per_thread: symbols!(@ $name $($per_thread)?),
        }),+]),*];
    };
    (@ $name:ident) => { None };
    (@ $name:ident $per_thread:ident) => { Some(concat!(stringify!($name), "_", stringify!($per_thread))) };
}

symbols! {
    cuArray3DCreate 2000, cuArray3DCreate_v2 3020;
    cuArray3DGetDescriptor 2000, cuArray3DGetDescriptor_v2 3020;
    cuArrayCreate 2000, cuArrayCreate_v2 3020;
    cuArrayDestroy 2000;
    cuArrayGetDescriptor 2000, cuArrayGetDescriptor_v2 3020;
    cuArrayGetMemoryRequirements 11060;
    cuArrayGetPlane 11020;
    cuArrayGetSparseProperties 11010;
    cuCheckpointProcessCheckpoint 12080;
    cuCheckpointProcessGetRestoreThreadId 12080;
    cuCheckpointProcessGetState 12080;
    cuCheckpointProcessLock 12080;
    cuCheckpointProcessRestore 12080;
    cuCheckpointProcessUnlock 12080;
    cuCoredumpGetAttribute 12010;
    cuCoredumpGetAttributeGlobal 12010;
    cuCoredumpSetAttribute 12010;
    cuCoredumpSetAttributeGlobal 12010;
    cuCtxAttach 2000;
    cuCtxCreate 2000, cuCtxCreate_v2 3020, cuCtxCreate_v3 11040, cuCtxCreate_v4 12050;
    cuCtxDestroy 2000, cuCtxDestroy_v2 4000;
    cuCtxDetach 2000;
    cuCtxDisablePeerAccess 4000;
    cuCtxEnablePeerAccess 4000;
    cuCtxFromGreenCtx 12040;
    cuCtxGetApiVersion 3020;
    cuCtxGetCacheConfig 3020;
    cuCtxGetCurrent 4000;
    cuCtxGetDevResource 12040;
    cuCtxGetDevice 2000, cuCtxGetDevice_v2 13000;
    cuCtxGetExecAffinity 11040;
    cuCtxGetFlags 7000;
    cuCtxGetId 12000;
    cuCtxGetLimit 3010;
    cuCtxGetSharedMemConfig 4020;
    cuCtxGetStreamPriorityRange 5050;
    cuCtxPopCurrent 2000, cuCtxPopCurrent_v2 4000;
    cuCtxPushCurrent 2000, cuCtxPushCurrent_v2 4000;
    cuCtxRecordEvent 12050;
    cuCtxResetPersistingL2Cache 11000;
    cuCtxSetCacheConfig 3020;
    cuCtxSetCurrent 4000;
    cuCtxSetFlags 12010;
    cuCtxSetLimit 3010;
    cuCtxSetSharedMemConfig 4020;
    cuCtxSynchronize 2000, cuCtxSynchronize_v2 13000;
    cuCtxWaitEvent 12050;
    cuDestroyExternalMemory 10000;
    cuDestroyExternalSemaphore 10000;
    cuDevResourceGenerateDesc 12040;
    cuDevSmResourceSplitByCount 12040;
    cuDeviceCanAccessPeer 4000;
    cuDeviceComputeCapability 2000;
    cuDeviceGet 2000;
    cuDeviceGetAttribute 2000;
    cuDeviceGetByPCIBusId 4010;
    cuDeviceGetCount 2000;
    cuDeviceGetDefaultMemPool 11020;
    cuDeviceGetDevResource 12040;
    cuDeviceGetExecAffinitySupport 11040;
    cuDeviceGetGraphMemAttribute 11040;
    cuDeviceGetHostAtomicCapabilities 13000;
    cuDeviceGetLuid 10000;
    cuDeviceGetMemPool 11020;
    cuDeviceGetName 2000;
    cuDeviceGetNvSciSyncAttributes 10020;
    cuDeviceGetP2PAtomicCapabilities 13000;
    cuDeviceGetP2PAttribute 8000;
    cuDeviceGetPCIBusId 4010;
    cuDeviceGetProperties 2000;
    cuDeviceGetTexture1DLinearMaxWidth 11010;
    cuDeviceGetUuid 9020, cuDeviceGetUuid_v2 11040;
    cuDeviceGraphMemTrim 11040;
    cuDevicePrimaryCtxGetState 7000;
    cuDevicePrimaryCtxRelease 7000, cuDevicePrimaryCtxRelease_v2 11000;
    cuDevicePrimaryCtxReset 7000, cuDevicePrimaryCtxReset_v2 11000;
    cuDevicePrimaryCtxRetain 7000;
    cuDevicePrimaryCtxSetFlags 7000, cuDevicePrimaryCtxSetFlags_v2 11000;
    cuDeviceRegisterAsyncNotification 12040;
    cuDeviceSetGraphMemAttribute 11040;
    cuDeviceSetMemPool 11020;
    cuDeviceTotalMem 2000, cuDeviceTotalMem_v2 3020;
    cuDeviceUnregisterAsyncNotification 12040;
    cuDriverGetVersion 2020;
    cuEGLStreamConsumerAcquireFrame 7000;
    cuEGLStreamConsumerConnect 7000;
    cuEGLStreamConsumerConnectWithFlags 8000;
    cuEGLStreamConsumerDisconnect 7000;
    cuEGLStreamConsumerReleaseFrame 7000;
    cuEGLStreamProducerConnect 7000;
    cuEGLStreamProducerDisconnect 7000;
    cuEGLStreamProducerPresentFrame 7000;
    cuEGLStreamProducerReturnFrame 7000;
    cuEventCreate 2000;
    cuEventCreateFromEGLSync 9000;
    cuEventDestroy 2000, cuEventDestroy_v2 4000;
    cuEventElapsedTime 2000, cuEventElapsedTime_v2 12080;
    cuEventQuery 2000;
    cuEventRecord 2000 ptsz;
    cuEventRecordWithFlags 11010 ptsz;
    cuEventSynchronize 2000;
    cuExternalMemoryGetMappedBuffer 10000;
    cuExternalMemoryGetMappedMipmappedArray 10000;
    cuFlushGPUDirectRDMAWrites 11030;
    cuFuncGetAttribute 2020;
    cuFuncGetModule 11000;
    cuFuncGetName 12030;
    cuFuncGetParamInfo 12040;
    cuFuncIsLoaded 12040;
    cuFuncLoad 12040;
    cuFuncSetAttribute 9000;
    cuFuncSetBlockShape 2000;
    cuFuncSetCacheConfig 3000;
    cuFuncSetSharedMemConfig 4020;
    cuFuncSetSharedSize 2000;
    cuGLCtxCreate 2000, cuGLCtxCreate_v2 3020;
    cuGLGetDevices 4010, cuGLGetDevices_v2 6050;
    cuGLInit 2000;
    cuGLMapBufferObject 2000, cuGLMapBufferObject_v2 3020 ptds;
    cuGLMapBufferObjectAsync 2030, cuGLMapBufferObjectAsync_v2 3020 ptsz;
    cuGLRegisterBufferObject 2000;
    cuGLSetBufferObjectMapFlags 2030;
    cuGLUnmapBufferObject 2000;
    cuGLUnmapBufferObjectAsync 2030;
    cuGLUnregisterBufferObject 2000;
    cuGetErrorName 6000;
    cuGetErrorString 6000;
    cuGetExportTable 3000;
    cuGetProcAddress 11030, cuGetProcAddress_v2 12000 ptsz;
    cuGraphAddBatchMemOpNode 11070;
    cuGraphAddChildGraphNode 10000;
    cuGraphAddDependencies 10000, cuGraphAddDependencies_v2 12030;
    cuGraphAddEmptyNode 10000;
    cuGraphAddEventRecordNode 11010;
    cuGraphAddEventWaitNode 11010;
    cuGraphAddExternalSemaphoresSignalNode 11020;
    cuGraphAddExternalSemaphoresWaitNode 11020;
    cuGraphAddHostNode 10000;
    cuGraphAddKernelNode 10000, cuGraphAddKernelNode_v2 12000;
    cuGraphAddMemAllocNode 11040;
    cuGraphAddMemFreeNode 11040;
    cuGraphAddMemcpyNode 10000;
    cuGraphAddMemsetNode 10000;
    cuGraphAddNode 12020, cuGraphAddNode_v2 12030;
    cuGraphBatchMemOpNodeGetParams 11070;
    cuGraphBatchMemOpNodeSetParams 11070;
    cuGraphChildGraphNodeGetGraph 10000;
    cuGraphClone 10000;
    cuGraphConditionalHandleCreate 12030;
    cuGraphCreate 10000;
    cuGraphDebugDotPrint 11030;
    cuGraphDestroy 10000;
    cuGraphDestroyNode 10000;
    cuGraphEventRecordNodeGetEvent 11010;
    cuGraphEventRecordNodeSetEvent 11010;
    cuGraphEventWaitNodeGetEvent 11010;
    cuGraphEventWaitNodeSetEvent 11010;
    cuGraphExecBatchMemOpNodeSetParams 11070;
    cuGraphExecChildGraphNodeSetParams 11010;
    cuGraphExecDestroy 10000;
    cuGraphExecEventRecordNodeSetEvent 11010;
    cuGraphExecEventWaitNodeSetEvent 11010;
    cuGraphExecExternalSemaphoresSignalNodeSetParams 11020;
    cuGraphExecExternalSemaphoresWaitNodeSetParams 11020;
    cuGraphExecGetFlags 12000;
    cuGraphExecHostNodeSetParams 10020;
    cuGraphExecKernelNodeSetParams 10010, cuGraphExecKernelNodeSetParams_v2 12000;
    cuGraphExecMemcpyNodeSetParams 10020;
    cuGraphExecMemsetNodeSetParams 10020;
    cuGraphExecNodeSetParams 12020;
    cuGraphExecUpdate 10020, cuGraphExecUpdate_v2 12000;
    cuGraphExternalSemaphoresSignalNodeGetParams 11020;
    cuGraphExternalSemaphoresSignalNodeSetParams 11020;
    cuGraphExternalSemaphoresWaitNodeGetParams 11020;
    cuGraphExternalSemaphoresWaitNodeSetParams 11020;
    cuGraphGetEdges 10000, cuGraphGetEdges_v2 12030;
    cuGraphGetNodes 10000;
    cuGraphGetRootNodes 10000;
    cuGraphHostNodeGetParams 10000;
    cuGraphHostNodeSetParams 10000;
    cuGraphInstantiate 10000, cuGraphInstantiate_v2 11000;
    cuGraphInstantiateWithFlags 11040;
    cuGraphInstantiateWithParams 12000 ptsz;
    cuGraphKernelNodeCopyAttributes 11000;
    cuGraphKernelNodeGetAttribute 11000;
    cuGraphKernelNodeGetParams 10000, cuGraphKernelNodeGetParams_v2 12000;
    cuGraphKernelNodeSetAttribute 11000;
    cuGraphKernelNodeSetParams 10000, cuGraphKernelNodeSetParams_v2 12000;
    cuGraphLaunch 10000 ptsz;
    cuGraphMemAllocNodeGetParams 11040;
    cuGraphMemFreeNodeGetParams 11040;
    cuGraphMemcpyNodeGetParams 10000;
    cuGraphMemcpyNodeSetParams 10000;
    cuGraphMemsetNodeGetParams 10000;
    cuGraphMemsetNodeSetParams 10000;
    cuGraphNodeFindInClone 10000;
    cuGraphNodeGetDependencies 10000, cuGraphNodeGetDependencies_v2 12030;
    cuGraphNodeGetDependentNodes 10000, cuGraphNodeGetDependentNodes_v2 12030;
    cuGraphNodeGetEnabled 11060;
    cuGraphNodeGetType 10000;
    cuGraphNodeSetEnabled 11060;
    cuGraphNodeSetParams 12020;
    cuGraphReleaseUserObject 11030;
    cuGraphRemoveDependencies 10000, cuGraphRemoveDependencies_v2 12030;
    cuGraphRetainUserObject 11030;
    cuGraphUpload 11010 ptsz;
    cuGraphicsEGLRegisterImage 7000;
    cuGraphicsGLRegisterBuffer 3000;
    cuGraphicsGLRegisterImage 3000;
    cuGraphicsMapResources 3000 ptsz;
    cuGraphicsResourceGetMappedEglFrame 7000;
    cuGraphicsResourceGetMappedMipmappedArray 5000;
    cuGraphicsResourceGetMappedPointer 3000, cuGraphicsResourceGetMappedPointer_v2 3020;
    cuGraphicsResourceSetMapFlags 3000, cuGraphicsResourceSetMapFlags_v2 6050;
    cuGraphicsSubResourceGetMappedArray 3000;
    cuGraphicsUnmapResources 3000 ptsz;
    cuGraphicsUnregisterResource 3000;
    cuGraphicsVDPAURegisterOutputSurface 3010;
    cuGraphicsVDPAURegisterVideoSurface 3010;
    cuGreenCtxCreate 12040;
    cuGreenCtxDestroy 12040;
    cuGreenCtxGetDevResource 12040;
    cuGreenCtxGetId 12090;
    cuGreenCtxRecordEvent 12040;
    cuGreenCtxStreamCreate 12050;
    cuGreenCtxWaitEvent 12040;
    cuImportExternalMemory 10000;
    cuImportExternalSemaphore 10000;
    cuInit 2000;
    cuIpcCloseMemHandle 4010;
    cuIpcGetEventHandle 4010;
    cuIpcGetMemHandle 4010;
    cuIpcOpenEventHandle 4010;
    cuIpcOpenMemHandle 4010, cuIpcOpenMemHandle_v2 11000;
    cuKernelGetAttribute 12000;
    cuKernelGetFunction 12000;
    cuKernelGetLibrary 12050;
    cuKernelGetName 12030;
    cuKernelGetParamInfo 12040;
    cuKernelSetAttribute 12000;
    cuKernelSetCacheConfig 12000;
    cuLaunch 2000;
    cuLaunchCooperativeKernel 9000 ptsz;
    cuLaunchCooperativeKernelMultiDevice 9000;
    cuLaunchGrid 2000;
    cuLaunchGridAsync 2000;
    cuLaunchHostFunc 10000 ptsz;
    cuLaunchKernel 4000 ptsz;
    cuLaunchKernelEx 11060 ptsz;
    cuLibraryEnumerateKernels 12040;
    cuLibraryGetGlobal 12000;
    cuLibraryGetKernel 12000;
    cuLibraryGetKernelCount 12040;
    cuLibraryGetManaged 12000;
    cuLibraryGetModule 12000;
    cuLibraryGetUnifiedFunction 12000;
    cuLibraryLoadData 12000;
    cuLibraryLoadFromFile 12000;
    cuLibraryUnload 12000;
    cuLinkAddData 5050, cuLinkAddData_v2 6050;
    cuLinkAddFile 5050, cuLinkAddFile_v2 6050;
    cuLinkComplete 5050;
    cuLinkCreate 5050, cuLinkCreate_v2 6050;
    cuLinkDestroy 5050;
    cuLogsCurrent 12090;
    cuLogsDumpToFile 12090;
    cuLogsDumpToMemory 12090;
    cuLogsRegisterCallback 12090;
    cuLogsUnregisterCallback 12090;
    cuMemAddressFree 10020;
    cuMemAddressReserve 10020;
    cuMemAdvise 8000, cuMemAdvise_v2 12020;
    cuMemAlloc 2000, cuMemAlloc_v2 3020;
    cuMemAllocAsync 11020 ptsz;
    cuMemAllocFromPoolAsync 11020 ptsz;
    cuMemAllocHost 2000, cuMemAllocHost_v2 3020;
    cuMemAllocManaged 6000;
    cuMemAllocPitch 2000, cuMemAllocPitch_v2 3020;
    cuMemBatchDecompressAsync 12060 ptsz;
    cuMemCreate 10020;
    cuMemDiscardAndPrefetchBatchAsync 13000 ptsz;
    cuMemDiscardBatchAsync 13000 ptsz;
    cuMemExportToShareableHandle 10020;
    cuMemFree 2000, cuMemFree_v2 3020;
    cuMemFreeAsync 11020 ptsz;
    cuMemFreeHost 2000;
    cuMemGetAccess 10020;
    cuMemGetAddressRange 2000, cuMemGetAddressRange_v2 3020;
    cuMemGetAllocationGranularity 10020;
    cuMemGetAllocationPropertiesFromHandle 10020;
    cuMemGetDefaultMemPool 13000;
    cuMemGetHandleForAddressRange 11070;
    cuMemGetInfo 2000, cuMemGetInfo_v2 3020;
    cuMemGetMemPool 13000;
    cuMemHostAlloc 2020;
    cuMemHostGetDevicePointer 2020, cuMemHostGetDevicePointer_v2 3020;
    cuMemHostGetFlags 2030;
    cuMemHostRegister 4000, cuMemHostRegister_v2 6050;
    cuMemHostUnregister 4000;
    cuMemImportFromShareableHandle 10020;
    cuMemMap 10020;
    cuMemMapArrayAsync 11010 ptsz;
    cuMemPoolCreate 11020;
    cuMemPoolDestroy 11020;
    cuMemPoolExportPointer 11020;
    cuMemPoolExportToShareableHandle 11020;
    cuMemPoolGetAccess 11020;
    cuMemPoolGetAttribute 11020;
    cuMemPoolImportFromShareableHandle 11020;
    cuMemPoolImportPointer 11020;
    cuMemPoolSetAccess 11020;
    cuMemPoolSetAttribute 11020;
    cuMemPoolTrimTo 11020;
    cuMemPrefetchAsync 8000 ptsz, cuMemPrefetchAsync_v2 12020 ptsz;
    cuMemPrefetchBatchAsync 13000 ptsz;
    cuMemRangeGetAttribute 8000;
    cuMemRangeGetAttributes 8000;
    cuMemRelease 10020;
    cuMemRetainAllocationHandle 11000;
    cuMemSetAccess 10020;
    cuMemSetMemPool 13000;
    cuMemUnmap 10020;
    cuMemcpy 4000 ptds;
    cuMemcpy2D 2000, cuMemcpy2D_v2 3020 ptds;
    cuMemcpy2DAsync 2000, cuMemcpy2DAsync_v2 3020 ptsz;
    cuMemcpy2DUnaligned 2000, cuMemcpy2DUnaligned_v2 3020 ptds;
    cuMemcpy3D 2000, cuMemcpy3D_v2 3020 ptds;
    cuMemcpy3DAsync 2000, cuMemcpy3DAsync_v2 3020 ptsz;
    cuMemcpy3DBatchAsync 12080 ptsz, cuMemcpy3DBatchAsync_v2 13000 ptsz;
    cuMemcpy3DPeer 4000 ptds;
    cuMemcpy3DPeerAsync 4000 ptsz;
    cuMemcpyAsync 4000 ptsz;
    cuMemcpyAtoA 2000, cuMemcpyAtoA_v2 3020 ptds;
    cuMemcpyAtoD 2000, cuMemcpyAtoD_v2 3020 ptds;
    cuMemcpyAtoH 2000, cuMemcpyAtoH_v2 3020 ptds;
    cuMemcpyAtoHAsync 2000, cuMemcpyAtoHAsync_v2 3020 ptsz;
    cuMemcpyBatchAsync 12080 ptsz, cuMemcpyBatchAsync_v2 13000 ptsz;
    cuMemcpyDtoA 2000, cuMemcpyDtoA_v2 3020 ptds;
    cuMemcpyDtoD 2000, cuMemcpyDtoD_v2 3020 ptds;
    cuMemcpyDtoDAsync 3000, cuMemcpyDtoDAsync_v2 3020 ptsz;
    cuMemcpyDtoH 2000, cuMemcpyDtoH_v2 3020 ptds;
    cuMemcpyDtoHAsync 2000, cuMemcpyDtoHAsync_v2 3020 ptsz;
    cuMemcpyHtoA 2000, cuMemcpyHtoA_v2 3020 ptds;
    cuMemcpyHtoAAsync 2000, cuMemcpyHtoAAsync_v2 3020 ptsz;
    cuMemcpyHtoD 2000, cuMemcpyHtoD_v2 3020 ptds;
    cuMemcpyHtoDAsync 2000, cuMemcpyHtoDAsync_v2 3020 ptsz;
    cuMemcpyPeer 4000 ptds;
    cuMemcpyPeerAsync 4000 ptsz;
    cuMemsetD16 2000, cuMemsetD16_v2 3020 ptds;
    cuMemsetD16Async 3020 ptsz;
    cuMemsetD2D16 2000, cuMemsetD2D16_v2 3020 ptds;
    cuMemsetD2D16Async 3020 ptsz;
    cuMemsetD2D32 2000, cuMemsetD2D32_v2 3020 ptds;
    cuMemsetD2D32Async 3020 ptsz;
    cuMemsetD2D8 2000, cuMemsetD2D8_v2 3020 ptds;
    cuMemsetD2D8Async 3020 ptsz;
    cuMemsetD32 2000, cuMemsetD32_v2 3020 ptds;
    cuMemsetD32Async 3020 ptsz;
    cuMemsetD8 2000, cuMemsetD8_v2 3020 ptds;
    cuMemsetD8Async 3020 ptsz;
    cuMipmappedArrayCreate 5000;
    cuMipmappedArrayDestroy 5000;
    cuMipmappedArrayGetLevel 5000;
    cuMipmappedArrayGetMemoryRequirements 11060;
    cuMipmappedArrayGetSparseProperties 11010;
    cuModuleEnumerateFunctions 12040;
    cuModuleGetFunction 2000;
    cuModuleGetFunctionCount 12040;
    cuModuleGetGlobal 2000, cuModuleGetGlobal_v2 3020;
    cuModuleGetLoadingMode 11070;
    cuModuleGetSurfRef 3000;
    cuModuleGetTexRef 2000;
    cuModuleLoad 2000;
    cuModuleLoadData 2000;
    cuModuleLoadDataEx 2010;
    cuModuleLoadFatBinary 2000;
    cuModuleUnload 2000;
    cuMulticastAddDevice 12010;
    cuMulticastBindAddr 12010;
    cuMulticastBindMem 12010;
    cuMulticastCreate 12010;
    cuMulticastGetGranularity 12010;
    cuMulticastUnbind 12010;
    cuOccupancyAvailableDynamicSMemPerBlock 10020;
    cuOccupancyMaxActiveBlocksPerMultiprocessor 6050;
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags 7000;
    cuOccupancyMaxActiveClusters 11070;
    cuOccupancyMaxPotentialBlockSize 6050;
    cuOccupancyMaxPotentialBlockSizeWithFlags 7000;
    cuOccupancyMaxPotentialClusterSize 11070;
    cuParamSetSize 2000;
    cuParamSetTexRef 2000;
    cuParamSetf 2000;
    cuParamSeti 2000;
    cuParamSetv 2000;
    cuPointerGetAttribute 4000;
    cuPointerGetAttributes 7000;
    cuPointerSetAttribute 6000;
    cuProfilerInitialize 4000;
    cuProfilerStart 4000;
    cuProfilerStop 4000;
    cuSignalExternalSemaphoresAsync 10000 ptsz;
    cuStreamAddCallback 5000 ptsz;
    cuStreamAttachMemAsync 6000 ptsz;
    cuStreamBatchMemOp 8000 ptsz, cuStreamBatchMemOp_v2 11070 ptsz;
    cuStreamBeginCapture 10000 ptsz, cuStreamBeginCapture_v2 10010 ptsz;
    cuStreamBeginCaptureToGraph 12030 ptsz;
    cuStreamCopyAttributes 11000 ptsz;
    cuStreamCreate 2000;
    cuStreamCreateWithPriority 5050;
    cuStreamDestroy 2000, cuStreamDestroy_v2 4000;
    cuStreamEndCapture 10000 ptsz;
    cuStreamGetAttribute 11000 ptsz;
    cuStreamGetCaptureInfo 10010 ptsz, cuStreamGetCaptureInfo_v2 11030 ptsz, cuStreamGetCaptureInfo_v3 12030 ptsz;
    cuStreamGetCtx 9020 ptsz, cuStreamGetCtx_v2 12050 ptsz;
    cuStreamGetDevice 12080 ptsz;
    cuStreamGetFlags 5050 ptsz;
    cuStreamGetGreenCtx 12040;
    cuStreamGetId 12000 ptsz;
    cuStreamGetPriority 5050 ptsz;
    cuStreamIsCapturing 10000 ptsz;
    cuStreamQuery 2000 ptsz;
    cuStreamSetAttribute 11000 ptsz;
    cuStreamSynchronize 2000 ptsz;
    cuStreamUpdateCaptureDependencies 11030 ptsz, cuStreamUpdateCaptureDependencies_v2 12030 ptsz;
    cuStreamWaitEvent 3020 ptsz;
    cuStreamWaitValue32 8000 ptsz, cuStreamWaitValue32_v2 11070 ptsz;
    cuStreamWaitValue64 9000 ptsz, cuStreamWaitValue64_v2 11070 ptsz;
    cuStreamWriteValue32 8000 ptsz, cuStreamWriteValue32_v2 11070 ptsz;
    cuStreamWriteValue64 9000 ptsz, cuStreamWriteValue64_v2 11070 ptsz;
    cuSurfObjectCreate 5000;
    cuSurfObjectDestroy 5000;
    cuSurfObjectGetResourceDesc 5000;
    cuSurfRefGetArray 3000;
    cuSurfRefSetArray 3000;
    cuTensorMapEncodeIm2col 12000;
    cuTensorMapEncodeIm2colWide 12080;
    cuTensorMapEncodeTiled 12000;
    cuTensorMapReplaceAddress 12000;
    cuTexObjectCreate 5000;
    cuTexObjectDestroy 5000;
    cuTexObjectGetResourceDesc 5000;
    cuTexObjectGetResourceViewDesc 5000;
    cuTexObjectGetTextureDesc 5000;
    cuTexRefCreate 2000;
    cuTexRefDestroy 2000;
    cuTexRefGetAddress 2000, cuTexRefGetAddress_v2 3020;
    cuTexRefGetAddressMode 2000;
    cuTexRefGetArray 2000;
    cuTexRefGetBorderColor 8000;
    cuTexRefGetFilterMode 2000;
    cuTexRefGetFlags 2000;
    cuTexRefGetFormat 2000;
    cuTexRefGetMaxAnisotropy 5000;
    cuTexRefGetMipmapFilterMode 5000;
    cuTexRefGetMipmapLevelBias 5000;
    cuTexRefGetMipmapLevelClamp 5000;
    cuTexRefGetMipmappedArray 5000;
    cuTexRefSetAddress 2000, cuTexRefSetAddress_v2 3020;
    cuTexRefSetAddress2D 2020, cuTexRefSetAddress2D_v2 3020, cuTexRefSetAddress2D_v3 4010;
    cuTexRefSetAddressMode 2000;
    cuTexRefSetArray 2000;
    cuTexRefSetBorderColor 8000;
    cuTexRefSetFilterMode 2000;
    cuTexRefSetFlags 2000;
    cuTexRefSetFormat 2000;
    cuTexRefSetMaxAnisotropy 5000;
    cuTexRefSetMipmapFilterMode 5000;
    cuTexRefSetMipmapLevelBias 5000;
    cuTexRefSetMipmapLevelClamp 5000;
    cuTexRefSetMipmappedArray 5000;
    cuThreadExchangeStreamCaptureMode 10010;
    cuUserObjectCreate 11030;
    cuUserObjectRelease 11030;
    cuUserObjectRetain 11030;
    cuVDPAUCtxCreate 3010, cuVDPAUCtxCreate_v2 3020;
    cuVDPAUGetDevice 3010;
    cuWaitExternalSemaphoresAsync 10000 ptsz;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::Function;

    #[test]
    fn names_and_forms_are_in_order() {
        assert!(SYMBOLS.is_sorted_by(|one, next| one[0].name < next[0].name));
        for forms in SYMBOLS {
            assert!(forms.is_sorted_by(|one, next| one.since < next.since), "{forms:?}");
        }
    }

    #[test]
    fn every_function_of_the_list_is_a_symbol() {
        for function in Function::ALL {
            let name = function.name();
            assert!(SYMBOLS.iter().any(|forms| forms.iter().any(|form| form.name == name)), "{name}");
        }
    }

    #[test]
    fn a_name_has_its_forms() {
        let [first, second] = forms("cuMemcpyHtoD") else { panic!("not two forms") };
        assert_eq!(*first, Symbol { name: "cuMemcpyHtoD", since: 2000, per_thread: None });
        let per_thread = Some("cuMemcpyHtoD_v2_ptds");
        assert_eq!(*second, Symbol { name: "cuMemcpyHtoD_v2", since: 3020, per_thread });
        assert_eq!(forms("cuMemcpyHtoD_v2"), []);
        assert_eq!(forms("cuNoSuchFunction"), []);
    }

    #[test]
    fn a_symbol_with_its_version_has_a_per_thread_variant() {
        assert_eq!(per_thread("cuMemcpyHtoD_v2"), Some("cuMemcpyHtoD_v2_ptds"));
        assert_eq!(per_thread("cuMemcpyHtoD"), None);
        assert_eq!(per_thread("cuLaunchKernel"), Some("cuLaunchKernel_ptsz"));
        assert_eq!(per_thread("cuInit"), None);
    }
}
