// Limits, cache preferences and flags of a device.
#include "show.h"


static void show(const char *name, cudaLimit limit) {
    size_t value = 77;
    cudaError_t error = cudaDeviceGetLimit(&value, limit);
    cudaGetLastError();
    printf("%s: %s %zu\n", name, cudaGetErrorName(error), value);
}

// Of a header that not every toolkit has.
extern "C" cudaError_t cudaProfilerStart();
extern "C" cudaError_t cudaProfilerStop();

__global__ void nothing() {}

int main() {
    unsigned flags = 77;
    CHECK(cudaGetDeviceFlags(&flags));
    printf("flags before the first call: %u\n", flags);
    SHOW(cudaSetDeviceFlags(cudaDeviceScheduleYield));
    SHOW(cudaSetDeviceFlags(cudaDeviceScheduleYield | cudaDeviceScheduleSpin));
    SHOW(cudaSetDeviceFlags(1u << 20));
    CHECK(cudaGetDeviceFlags(&flags));
    printf("flags: %u\n", flags);
    SHOW(cudaInitDevice(0, cudaDeviceScheduleSpin, cudaInitDeviceFlagsAreValid));
    CHECK(cudaGetDeviceFlags(&flags));
    printf("flags of the device: %u\n", flags);
    SHOW(cudaInitDevice(0, 0, 8));
    SHOW(cudaInitDevice(-1, 0, 0));
    SHOW(cudaInitDevice(100, 0, 0));
    CHECK(cudaFree(NULL));
    CHECK(cudaGetDeviceFlags(&flags));
    printf("flags of the context: %u\n", flags);

    show("stack", cudaLimitStackSize);
    show("malloc heap", cudaLimitMallocHeapSize);
    show("pending launches", cudaLimitDevRuntimePendingLaunchCount);
    show("unknown", (cudaLimit)99);
    SHOW(cudaDeviceSetLimit(cudaLimitStackSize, 4096));
    SHOW(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 16 << 20));
    SHOW(cudaDeviceSetLimit(cudaLimitDevRuntimePendingLaunchCount, 100));
    SHOW(cudaDeviceSetLimit((cudaLimit)99, 1));
    show("stack", cudaLimitStackSize);
    show("malloc heap", cudaLimitMallocHeapSize);
    show("pending launches", cudaLimitDevRuntimePendingLaunchCount);

    cudaFuncCache cache = (cudaFuncCache)77;
    CHECK(cudaDeviceGetCacheConfig(&cache));
    printf("cache: %d\n", cache);
    SHOW(cudaDeviceSetCacheConfig(cudaFuncCachePreferL1));
    CHECK(cudaDeviceGetCacheConfig(&cache));
    printf("cache: %d\n", cache);
    SHOW(cudaDeviceSetCacheConfig((cudaFuncCache)9));
    cudaSharedMemConfig banks = (cudaSharedMemConfig)77;
    CHECK(cudaDeviceGetSharedMemConfig(&banks));
    printf("banks: %d\n", banks);
    SHOW(cudaDeviceSetSharedMemConfig(cudaSharedMemBankSizeEightByte));
    CHECK(cudaDeviceGetSharedMemConfig(&banks));
    printf("banks: %d\n", banks);
    SHOW(cudaFuncSetSharedMemConfig(nothing, cudaSharedMemBankSizeFourByte));
    SHOW(cudaCtxResetPersistingL2Cache());
    SHOW(cudaProfilerStart());
    nothing<<<1, 1>>>();
    SHOW(cudaDeviceSynchronize());
    SHOW(cudaProfilerStop());
    return 0;
}
