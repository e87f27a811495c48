// A module is unloaded with the driver API while a kernel of it may still run.
// On a GPU the driver usually waits; where it does not, the kernel ends with an illegal instruction.
// Origin: SYCLomatic-test#230.
// kind: module-in-use
#include "corpus.h"

#include <cuda.h>

static const char PTX[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry fill(.param .u64 out) {\n"
    "  .reg .b32 %r<2>; .reg .b64 %rd<4>;\n"
    "  ld.param.u64 %rd0, [out]; cvta.to.global.u64 %rd1, %rd0;\n"
    "  mov.u32 %r0, %tid.x; mul.wide.u32 %rd2, %r0, 4; add.s64 %rd3, %rd1, %rd2;\n"
    "  st.global.u32 [%rd3], %r0; ret;\n}\n";

#define DRIVER(name, ...)                                                                                       \
    do {                                                                                                        \
        void *found_ = NULL;                                                                                    \
        CHECK(cudaGetDriverEntryPointByVersion(#name, &found_, 12000, cudaEnableDefault, NULL));                \
        CUresult result_ = ((decltype(&name))found_)(__VA_ARGS__);                                              \
        if (result_ != CUDA_SUCCESS) report_error(__LINE__, #name, "failed");                                   \
    } while (0)

int main() {
    int *out = new_zeroed(THREADS);
    cudaStream_t stream = new_stream();
    CUmodule module;
    CUfunction fill;
    void *arguments[] = {&out};
    DRIVER(cuModuleLoadData, &module, PTX);
    DRIVER(cuModuleGetFunction, &fill, module, "fill");
    DRIVER(cuLaunchKernel, fill, 1, 1, 1, THREADS, 1, 1, 0, stream, arguments, NULL);
#ifdef FIXED
    CHECK(cudaStreamSynchronize(stream));
#endif
    DRIVER(cuModuleUnload, module); // access
    bool is_right = is_linear(read_back(out, THREADS), 1, 0);
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(out));
    return finish(is_right);
}
