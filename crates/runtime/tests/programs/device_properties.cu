// Properties of the device, and that they are its attributes.
#include "show.h"

static int attribute(cudaDeviceAttr which) {
    int value = 0;
    CHECK(cudaDeviceGetAttribute(&value, which, 0));
    return value;
}

int main() {
    cudaDeviceProp device;
    memset(&device, 0xff, sizeof device);
    CHECK(cudaGetDeviceProperties(&device, 0));
    printf("%d.%d, %d multiprocessors, warp %d\n", device.major, device.minor, device.multiProcessorCount, device.warpSize);
    printf("threads: %d of a block, %d of a multiprocessor, block %d x %d x %d, grid %d x %d x %d\n",
           device.maxThreadsPerBlock, device.maxThreadsPerMultiProcessor, device.maxThreadsDim[0], device.maxThreadsDim[1],
           device.maxThreadsDim[2], device.maxGridSize[0], device.maxGridSize[1], device.maxGridSize[2]);
    printf("shared: %zu, %zu by choice, %zu of a multiprocessor, %zu reserved\n", device.sharedMemPerBlock,
           device.sharedMemPerBlockOptin, device.sharedMemPerMultiprocessor, device.reservedSharedMemPerBlock);
    printf("registers: %d of a block, %d of a multiprocessor; constants: %zu\n", device.regsPerBlock,
           device.regsPerMultiprocessor, device.totalConstMem);
    printf("pitch %zu, texture alignment %zu and %zu, surface alignment %zu\n", device.memPitch, device.textureAlignment,
           device.texturePitchAlignment, device.surfaceAlignment);
    printf("textures: %d, %d x %d, %d x %d x %d, cube %d; surfaces: %d, %d x %d\n", device.maxTexture1D,
           device.maxTexture2D[0], device.maxTexture2D[1], device.maxTexture3D[0], device.maxTexture3D[1],
           device.maxTexture3D[2], device.maxTextureCubemap, device.maxSurface1D, device.maxSurface2D[0], device.maxSurface2D[1]);
    printf("L2 cache %d, persisting %d, bus %d, blocks %d\n", device.l2CacheSize, device.persistingL2CacheMaxSize,
           device.memoryBusWidth, device.maxBlocksPerMultiProcessor);
    printf("unified %d, managed %d, concurrent managed %d, map host %d, pools %d, cooperative %d, priorities %d\n",
           device.unifiedAddressing, device.managedMemory, device.concurrentManagedAccess, device.canMapHostMemory,
           device.memoryPoolsSupported, device.cooperativeLaunch, device.streamPrioritiesSupported);
    printf("integrated %d, tcc %d, concurrent kernels %d, preemption %d, host register %d\n", device.integrated,
           device.tccDriver, device.concurrentKernels, device.computePreemptionSupported, device.hostRegisterSupported);

    size_t free_bytes = 0, total = 0;
    CHECK(cudaMemGetInfo(&free_bytes, &total));
    printf("all memory: %d, named: %d\n", device.totalGlobalMem >= total, device.name[0] != 0);
    int different = 0;
    different += device.pciBusID != attribute(cudaDevAttrPciBusId);
    different += device.pciDeviceID != attribute(cudaDevAttrPciDeviceId);
    different += device.asyncEngineCount != attribute(cudaDevAttrAsyncEngineCount);
    different += device.pageableMemoryAccess != attribute(cudaDevAttrPageableMemoryAccess);
    different += device.clusterLaunch != attribute(cudaDevAttrClusterLaunch);
    different += device.hostNumaId != attribute(cudaDevAttrHostNumaId);
    different += device.deviceNumaId != attribute(cudaDevAttrNumaId);
    different += (int)device.memoryPoolSupportedHandleTypes != attribute(cudaDevAttrMemoryPoolSupportedHandleTypes);
    different += device.accessPolicyMaxWindowSize != attribute(cudaDevAttrMaxAccessPolicyWindowSize);
    printf("different from attributes: %d\n", different);
    SHOW(cudaGetDeviceProperties(&device, 99));
    SHOW(cudaGetDeviceProperties(&device, -1));
    return 0;
}
