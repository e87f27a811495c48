// Attributes of kernels, their names and parameters.
#include "show.h"

__constant__ int constants[10];

__global__ void plain(int *out) { out[threadIdx.x] = threadIdx.x + constants[threadIdx.x % 10]; }

__global__ void __launch_bounds__(128) bounded(float *out) { out[threadIdx.x] = 1; }

__global__ void with_shared(int *out, char tag, double factor, short3 three) {
    __shared__ int tile[300];
    for (int i = threadIdx.x; i < 300; i += blockDim.x) tile[i] = i + tag;
    __syncthreads();
    out[threadIdx.x] = (int)(tile[299 - threadIdx.x] * factor) + three.z;
}

template <typename T> __global__ void generic(T *out) { *out = T(3); }

static void show(const char *name, const void *kernel) {
    cudaFuncAttributes found;
    memset(&found, 0xff, sizeof found);
    CHECK(cudaFuncGetAttributes(&found, kernel));
    printf("%s: shared %zu, threads %d, binary %d, dynamic %d, carveout %d, cluster %d %d %d %d %d %d\n", name,
           found.sharedSizeBytes, found.maxThreadsPerBlock, found.binaryVersion,
           found.maxDynamicSharedSizeBytes, found.preferredShmemCarveout, found.clusterDimMustBeSet,
           found.requiredClusterWidth, found.requiredClusterHeight, found.requiredClusterDepth,
           found.clusterSchedulingPolicyPreference, found.nonPortableClusterSizeAllowed);
    printf("registers in use: %d\n", found.numRegs > 0 && found.numRegs <= 255);
}

int main() {
    show("plain", (const void *)plain);
    show("bounded", (const void *)bounded);
    show("with_shared", (const void *)with_shared);
    show("generic", (const void *)generic<float>);

    const char *name = NULL;
    CHECK(cudaFuncGetName(&name, (const void *)plain));
    printf("%s\n", name);
    CHECK(cudaFuncGetName(&name, (const void *)generic<double>));
    printf("%s\n", name);
    for (size_t i = 0; i < 4; i++) {
        size_t offset = 0, bytes = 0;
        CHECK(cudaFuncGetParamInfo((const void *)with_shared, i, &offset, &bytes));
        printf("parameter %zu: %zu bytes at %zu\n", i, bytes, offset);
    }
    size_t offset = 0;
    SHOW(cudaFuncGetParamInfo((const void *)with_shared, 4, &offset, NULL));

    SHOW(cudaFuncSetAttribute(plain, cudaFuncAttributePreferredSharedMemoryCarveout, 50));
    SHOW(cudaFuncSetAttribute(plain, cudaFuncAttributePreferredSharedMemoryCarveout, 101));
    SHOW(cudaFuncSetAttribute(plain, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    SHOW(cudaFuncSetAttribute(plain, (cudaFuncAttribute)99, 1));
    show("plain", (const void *)plain);
    cudaKernel_t kernel = NULL;
    CHECK(cudaGetKernel(&kernel, plain));
    SHOW(cudaKernelSetAttributeForDevice(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 25, 0));
    SHOW(cudaKernelSetAttributeForDevice(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 25, 99));
    show("plain", (const void *)plain);
    SHOW(cudaFuncSetCacheConfig(plain, cudaFuncCachePreferL1));
    SHOW(cudaFuncSetCacheConfig(plain, (cudaFuncCache)9));

    int local;
    cudaFuncAttributes found;
    SHOW(cudaFuncGetAttributes(&found, (const void *)&local));
    SHOW(cudaFuncSetAttribute((const void *)&local, cudaFuncAttributePreferredSharedMemoryCarveout, 50));
    SHOW(cudaFuncSetCacheConfig((const void *)&local, cudaFuncCachePreferL1));
    SHOW(cudaFuncGetName(&name, (const void *)&local));
    return 0;
}
