// Handles of kernels: by symbol, for the driver, and by name from a library.
#include "show.h"

#include <cuda.h>

__global__ void twice(int *number) { *number *= 2; }

typedef CUresult (*Launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                           void **, void **);

static const char *TEXT =
    ".version 7.5\n.target sm_75\n.address_size 64\n.visible .global .attribute(.managed) .align 4 .u32 shared_number = 21;\n"
    ".visible .entry thrice(.param .u64 p) {\n.reg .b32 %r<3>;\n.reg .b64 %rd<2>;\nld.param.u64 %rd1, [p];\n"
    "ld.global.u32 %r1, [%rd1];\nmul.lo.u32 %r2, %r1, 3;\nst.global.u32 [%rd1], %r2;\nret;\n}\n";

int main() {
    cudaFunction_t function = NULL, again = NULL;
    CHECK(cudaGetFuncBySymbol(&function, (const void *)twice));
    CHECK(cudaGetFuncBySymbol(&again, (const void *)twice));
    printf("the same handle: %d\n", function == again && function != NULL);
    int local;
    SHOW(cudaGetFuncBySymbol(&again, &local));
    SHOW(cudaGetFuncBySymbol(NULL, (const void *)twice));

    int *number = NULL, value = 7;
    CHECK(cudaMalloc(&number, sizeof value));
    CHECK(cudaMemcpy(number, &value, sizeof value, cudaMemcpyHostToDevice));
    void *entry = NULL;
    cudaDriverEntryPointQueryResult found;
    CHECK(cudaGetDriverEntryPointByVersion("cuLaunchKernel", &entry, 12000, cudaEnableDefault, &found));
    printf("found: %d\n", found == cudaDriverEntryPointSuccess);
    void *arguments[] = {&number};
    CUresult launched = ((Launch)entry)((CUfunction)function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);
    CHECK(cudaMemcpy(&value, number, sizeof value, cudaMemcpyDeviceToHost));
    printf("launched with the driver: %d, %d\n", launched, value);

    cudaLibrary_t library;
    cudaKernel_t kernel;
    void *managed = NULL, *unified = NULL;
    size_t bytes = 0;
    CHECK(cudaLibraryLoadData(&library, TEXT, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cudaLibraryGetKernel(&kernel, library, "thrice"));
    CHECK(cudaLaunchKernel((const void *)kernel, dim3(1), dim3(1), arguments, 0, 0));
    CHECK(cudaMemcpy(&value, number, sizeof value, cudaMemcpyDeviceToHost));
    printf("launched from the library: %d\n", value);
    SHOW(cudaLibraryGetManaged(&managed, &bytes, library, "shared_number"));
    if (managed) printf("%zu bytes, %d\n", bytes, *(int *)managed);
    SHOW(cudaLibraryGetManaged(&managed, &bytes, library, "thrice"));
    SHOW(cudaLibraryGetUnifiedFunction(&unified, library, "thrice"));
    SHOW(cudaLibraryUnload(library));
    return 0;
}
