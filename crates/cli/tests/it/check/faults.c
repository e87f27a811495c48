/* Errors of a kernel and of calls beyond the end of a block, one for each word. The second word is the function that allocates. */
#include <stdio.h>
#include <string.h>

typedef int cudaError_t;
typedef void *CUmodule, *CUfunction;
cudaError_t cudaMalloc(void **, size_t), cudaFree(void *), cudaDeviceSynchronize(void);
cudaError_t cudaMemcpy(void *, const void *, size_t, int), cudaMemset(void *, int, size_t);
int cuMemAlloc_v2(unsigned long long *, size_t);
int cuModuleLoadData(CUmodule *, const void *), cuModuleGetFunction(CUfunction *, CUmodule, const char *);
int cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

/* float sum(float *p, int at): p[at] = 1 */
static const char TEXT[] =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry _Z3sumPfi(.param .u64 p, .param .u32 at)\n{\n.reg .b64 %d<4>;\n.reg .b32 %r<3>;\n"
    "ld.param.u64 %d1, [p];\nld.param.s32 %r1, [at];\nmul.wide.s32 %d2, %r1, 4;\nadd.s64 %d3, %d1, %d2;\n"
    "mov.b32 %r2, 0f3f800000;\nst.global.b32 [%d3], %r2;\nret;\n}\n";

enum { BYTES = 1024 };

static void launch(void *block, int at) {
    CUmodule module;
    CUfunction function;
    void *arguments[] = {&block, &at};
    cuModuleLoadData(&module, TEXT);
    cuModuleGetFunction(&function, module, "_Z3sumPfi");
    cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);
}

int main(int count, char **words) {
    const char *kind = count > 1 ? words[1] : "";
    static char host[2 * BYTES];
    void *block;
    cudaMalloc(&block, BYTES);
    if (count > 2) {
        unsigned long long own;
        cuMemAlloc_v2(&own, BYTES); /* allocated */
        block = (void *)own;
    }
    if (strcmp(kind, "kernel") == 0) launch(block, BYTES / 4);
    if (strcmp(kind, "copy") == 0) printf("%d\n", cudaMemcpy(block, host, BYTES + 8, 1)); /* copied */
    if (strcmp(kind, "set") == 0) printf("%d\n", cudaMemset(block, 0, BYTES + 1));
    cudaDeviceSynchronize();
    printf("%d\n", cudaFree(block));
    return 0;
}
