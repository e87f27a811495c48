// Each thread sorts numbers into an array of its own, and the largest number has no element there.
// On a GPU the store goes to the thread's next local variable or nowhere, and nothing shows.
// Origin: a number of classes that grew.
// kind: out-of-bounds
#include "corpus.h"

#ifdef FIXED
const int CLASSES = 9;
#else
const int CLASSES = 8;
#endif

__global__ void classify(const int *in, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int counts[CLASSES] = {};
    for (int k = 0; k < 8; k++) counts[in[i * 8 + k]] += 1; // access
    int most = 0;
    for (int k = 0; k < CLASSES; k++) most = counts[k] > most ? counts[k] : most;
    out[i] = most;
}

int main() {
    Numbers numbers(N);
    for (int i = 0; i < N; i++) numbers[i] = i % 8 + (i == N - 1);
    int *in = new_zeroed(), *out = new_zeroed(N / 8);
    CHECK(cudaMemcpy(in, numbers.values, BYTES, cudaMemcpyHostToDevice));
    classify<<<1, N / 8>>>(in, out);
    bool is_right = is_linear(read_back(out, N / 8), 0, 1);
    CHECK(cudaFree(in));
    CHECK(cudaFree(out));
    return finish(is_right);
}
