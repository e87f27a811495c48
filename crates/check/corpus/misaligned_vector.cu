// Four numbers are loaded at once, from an address that is not a multiple of 16 bytes: a view that starts at the second element.
// On a GPU the kernel ends with cudaErrorMisalignedAddress, and the context is lost.
// Origin: vectorized kernels that are called with slices.
// kind: misaligned
#include "corpus.h"

__global__ void copy(const int *in, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int4 four = reinterpret_cast<const int4 *>(in)[i]; // access
    out[i] = four.x + four.y + four.z + four.w;
}

int main() {
    int *in = new_counted(N + 4), *out = new_zeroed(N / 4);
#ifdef FIXED
    int start = 4;
#else
    int start = 1;
#endif
    copy<<<1, N / 4>>>(in + start, out);
    bool is_right = is_linear(read_back(out, N / 4), 16, 22);
    CHECK(cudaFree(in));
    CHECK(cudaFree(out));
    return finish(is_right);
}
