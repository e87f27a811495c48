/* The driver keeps something, one for each word, in memory that the program has freed before: correct. */
#include <stdio.h>
#include <string.h>

typedef int cudaError_t;
typedef void *cudaStream_t, *cudaLibrary_t, *cudaKernel_t, *cudaArray_t;
typedef struct { unsigned x, y, z; } dim3;
typedef struct { int x, y, z, w, kind; } Format;
cudaError_t cudaMalloc(void **, size_t), cudaFree(void *), cudaDeviceSynchronize(void);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *, unsigned);
cudaError_t cudaMallocArray(cudaArray_t *, const Format *, size_t, size_t, unsigned), cudaFreeArray(cudaArray_t);
cudaError_t cudaMemcpy2DToArray(cudaArray_t, size_t, size_t, const void *, size_t, size_t, size_t, int);
cudaError_t cudaMemcpy2DFromArray(void *, size_t, cudaArray_t, size_t, size_t, size_t, size_t, int);
cudaError_t cudaLibraryLoadData(cudaLibrary_t *, const void *, void *, void **, unsigned, void *, void **, unsigned);
cudaError_t cudaLibraryGetKernel(cudaKernel_t *, cudaLibrary_t, const char *), cudaLibraryUnload(cudaLibrary_t);
cudaError_t cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, cudaStream_t);

enum { BLOCKS = 256, BYTES = 512, TO_DEVICE = 1, TO_HOST = 2, NON_BLOCKING = 1 };

/* `count` increments a variable without an initializer. `keep` writes and reads memory of its own. */
static const char PTX[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .global .align 4 .b8 counters[16384];\n"
    ".extern .func (.param .b64 result) malloc(.param .b64 bytes);\n"
    ".extern .func free(.param .b64 address);\n"
    ".visible .entry count() {\n"
    "  .reg .b32 %r<3>;\n"
    "  .reg .b64 %rd<2>;\n"
    "  mov.u64 %rd1, counters;\n"
    "  ld.global.u32 %r1, [%rd1+8192];\n"
    "  add.u32 %r2, %r1, 1;\n"
    "  st.global.u32 [%rd1+8192], %r2;\n"
    "  ret;\n}\n"
    ".visible .entry keep() {\n"
    "  .reg .b32 %r<2>;\n"
    "  .reg .b64 %rd<2>;\n"
    "  .param .b64 bytes;\n"
    "  .param .b64 result;\n"
    "  .param .b64 address;\n"
    "  st.param.b64 [bytes], 512;\n"
    "  call.uni (result), malloc, (bytes);\n"
    "  ld.param.b64 %rd1, [result];\n"
    "  st.u32 [%rd1+64], 7;\n"
    "  ld.u32 %r1, [%rd1+64];\n"
    "  st.param.b64 [address], %rd1;\n"
    "  call.uni free, (address);\n"
    "  ret;\n}\n";

/* An error shows, as the first line is not the last. */
static void check(int error) {
    if (error != 0) printf("error %d\n", error);
}

/* Leaves freed blocks behind whose values were never written. */
static void leave(void) {
    void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) check(cudaMalloc(&blocks[i], BYTES));
    for (int i = 0; i < BLOCKS; i++) check(cudaFree(blocks[i]));
}

static void launch(const char *name) {
    cudaLibrary_t library;
    cudaKernel_t kernel;
    cudaStream_t stream;
    dim3 size = {1, 1, 1};
    check(cudaStreamCreateWithFlags(&stream, NON_BLOCKING));
    check(cudaLibraryLoadData(&library, PTX, NULL, NULL, 0, NULL, NULL, 0));
    check(cudaLibraryGetKernel(&kernel, library, name));
    check(cudaLaunchKernel(kernel, size, size, NULL, 0, stream));
    check(cudaDeviceSynchronize());
    check(cudaLibraryUnload(library));
}

static void fill_array(void) {
    static char host[BYTES];
    Format bytes = {8, 0, 0, 0, 1};
    cudaArray_t array;
    check(cudaMallocArray(&array, &bytes, BYTES, 1, 0));
    check(cudaMemcpy2DToArray(array, 0, 0, host, BYTES, BYTES, 1, TO_DEVICE));
    check(cudaMemcpy2DFromArray(host, BYTES, array, 0, 0, BYTES, 1, TO_HOST));
    check(cudaFreeArray(array));
}

int main(int count, char **words) {
    if (count != 2) return 1;
    leave();
    if (!strcmp(words[1], "array")) fill_array();
    else launch(words[1]);
    puts("done");
    return 0;
}
