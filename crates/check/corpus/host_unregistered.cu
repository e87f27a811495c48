// Memory of the heap is registered for a copy, and unregistered before the copy is done: its pages are no longer locked.
// On a GPU the copy may read pages that the system has moved.
// Origin: temporary registration of a caller's buffer.
// kind: host-memory-freed
#include "corpus.h"

int main() {
    int *data = new_zeroed(), *numbers = (int *)aligned_alloc(4096, 4096);
    for (int i = 0; i < N; i++) numbers[i] = i;
    cudaStream_t stream = new_stream();
    CHECK(cudaHostRegister(numbers, BYTES, cudaHostRegisterDefault));
    CHECK(cudaMemcpyAsync(data, numbers, BYTES, cudaMemcpyHostToDevice, stream)); // other
#ifdef FIXED
    CHECK(cudaStreamSynchronize(stream));
#endif
    CHECK(cudaHostUnregister(numbers)); // access
    bool is_right = is_linear(read_back(data), 1, 0);
    free(numbers);
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(data));
    return finish(is_right);
}
