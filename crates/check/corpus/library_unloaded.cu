// A library of kernels is unloaded while one of its kernels may still run.
// On a GPU the driver usually waits; where it does not, the kernel ends with an illegal instruction.
// Origin: SYCLomatic-test#230, with the runtime API.
// kind: module-in-use
#include "corpus.h"

static const char PTX[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry fill(.param .u64 out) {\n"
    "  .reg .b32 %r<2>; .reg .b64 %rd<4>;\n"
    "  ld.param.u64 %rd0, [out]; cvta.to.global.u64 %rd1, %rd0;\n"
    "  mov.u32 %r0, %tid.x; mul.wide.u32 %rd2, %r0, 4; add.s64 %rd3, %rd1, %rd2;\n"
    "  st.global.u32 [%rd3], %r0; ret;\n}\n";

int main() {
    int *out = new_zeroed(THREADS);
    cudaStream_t stream = new_stream();
    cudaLibrary_t library;
    cudaKernel_t fill;
    void *arguments[] = {&out};
    CHECK(cudaLibraryLoadData(&library, PTX, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cudaLibraryGetKernel(&fill, library, "fill"));
    CHECK(cudaLaunchKernel((const void *)fill, dim3(1), dim3(THREADS), arguments, 0, stream));
#ifdef FIXED
    CHECK(cudaStreamSynchronize(stream));
#endif
    CHECK(cudaLibraryUnload(library)); // access
    bool is_right = is_linear(read_back(out, THREADS), 1, 0);
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(out));
    return finish(is_right);
}
