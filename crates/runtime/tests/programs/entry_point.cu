// Functions of the driver by their names.
#include "show.h"

typedef int (*DriverGetVersion)(int *);
typedef int (*CtxGetCurrent)(void **);

static void find(const char *name, unsigned version, unsigned long long flags) {
    void *function = (void *)1;
    cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSuccess;
    cudaError_t error = cudaGetDriverEntryPointByVersion(name, &function, version, flags, &status);
    printf("%s %u: %s, status %d, found %d\n", name, version, cudaGetErrorName(error), status, function != NULL);
    cudaGetLastError();
}

int main() {
    CHECK(cudaFree(0));
    void *function = NULL;
    cudaDriverEntryPointQueryResult status;
    int version = 0;
    CHECK(cudaGetDriverEntryPointByVersion("cuDriverGetVersion", &function, 12000, cudaEnableDefault, &status));
    printf("called: %d, version: %d\n", ((DriverGetVersion)function)(&version), version >= 13000);
    void *context = NULL;
    CHECK(cudaGetDriverEntryPointByVersion("cuCtxGetCurrent", &function, 13000, cudaEnableDefault, NULL));
    printf("called: %d, a context: %d\n", ((CtxGetCurrent)function)(&context), context != NULL);

    find("cuMemAlloc", 12000, cudaEnableDefault);
    find("cuLaunchKernel", 13000, cudaEnablePerThreadDefaultStream);
    find("cuGraphAddNode", 12000, cudaEnableDefault);
    find("cuGraphAddNode", 12030, cudaEnableDefault);
    find("cuNothingLikeThis", 13000, cudaEnableDefault);
    void *legacy = NULL, *per_thread = NULL;
    CHECK(cudaGetDriverEntryPointByVersion("cuStreamSynchronize", &legacy, 13000, cudaEnableLegacyStream, NULL));
    CHECK(cudaGetDriverEntryPointByVersion("cuStreamSynchronize", &per_thread, 13000, cudaEnablePerThreadDefaultStream, NULL));
    printf("two functions: %d\n", legacy != per_thread);
    CHECK(cudaGetDriverEntryPointByVersion("cuMemFree", &legacy, 13000, cudaEnableLegacyStream, NULL));
    CHECK(cudaGetDriverEntryPointByVersion("cuMemFree", &per_thread, 13000, cudaEnablePerThreadDefaultStream, NULL));
    printf("one function: %d\n", legacy == per_thread);
    SHOW(cudaGetDriverEntryPointByVersion("cuInit", &function, 13000, 77, NULL));
    return 0;
}
