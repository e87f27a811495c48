// A buffer object frees its memory in the stream that it was allocated in. It goes out of scope while another stream still writes it.
// On a GPU the kernel writes into the block of the next owner.
// Origin: cuda-oxide#619 (Drop in safe Rust), rmm#1655.
// kind: free-in-use
#include "corpus.h"

struct Buffer {
    int *data = NULL;
    cudaStream_t stream;

    explicit Buffer(cudaStream_t stream) : stream(stream) {
        CHECK(cudaMallocAsync(&data, BYTES, stream));
        CHECK(cudaStreamSynchronize(stream));
    }
    ~Buffer() {
        CHECK(cudaFreeAsync(data, stream)); // access
    }
};

__global__ void fill_and_copy(int *data, int *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    data[i] = i + 5; // other
    out[i] = i + 5;
}

int main() {
    int *out = new_zeroed();
    cudaStream_t owner = new_stream(), user = new_stream();
    {
        Buffer buffer(owner);
        hold(user);
        fill_and_copy<<<BLOCKS, THREADS, 0, user>>>(buffer.data, out);
#ifdef FIXED
        CHECK(cudaStreamSynchronize(user));
#endif
    }
    bool is_right = is_linear(read_back(out), 1, 5);
    CHECK(cudaStreamDestroy(owner));
    CHECK(cudaStreamDestroy(user));
    CHECK(cudaFree(out));
    return finish(is_right);
}
