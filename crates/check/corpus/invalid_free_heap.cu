// An address of the host's heap is passed to cudaFree: the pointer was never allocated on the device.
// On a GPU the call returns cudaErrorInvalidValue, or success in a library that drops the error.
// Origin: rmm#147 (freeing an invalid address succeeded).
// kind: invalid-free
#include "corpus.h"

int main() {
    int *data = new_zeroed();
    int *numbers = (int *)malloc(BYTES);
    for (int i = 0; i < N; i++) numbers[i] = i;
    CHECK(cudaMemcpy(data, numbers, BYTES, cudaMemcpyHostToDevice));
    bool is_right = is_linear(read_back(data), 1, 0);
#ifndef FIXED
    CHECK(cudaFree(numbers)); // access
#endif
    free(numbers);
    CHECK(cudaFree(data));
    return finish(is_right);
}
