// A kernel stops itself with __trap when it finds a case that it does not handle.
// On a GPU the kernel ends with cudaErrorLaunchFailure, and the context is lost.
// Origin: "unreachable" branches of generated code.
// kind: kernel-fault
#include "corpus.h"

__global__ void apply(const int *operations, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    switch (operations[i] % 4) {
    case 0: out[i] = i; break;
    case 1: out[i] = i; break;
    case 2: out[i] = i; break;
#ifdef FIXED
    case 3: out[i] = i; break;
#endif
    default: __trap(); // access
    }
}

int main() {
    int *operations = new_counted(), *out = new_zeroed();
    apply<<<BLOCKS, THREADS>>>(operations, out);
    bool is_right = is_linear(read_back(out), 1, 0);
    CHECK(cudaFree(operations));
    CHECK(cudaFree(out));
    return finish(is_right);
}
