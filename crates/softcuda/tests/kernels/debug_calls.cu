// A debug build with calls, structs, loops and shared memory: much goes through local memory.
// compile: cuda13 --device-debug
// launch: debug_calls grid 2 block 32
// arg: out u32 64
// arg: in u32 64 random 120

struct Counter {
    unsigned total, steps;
    __device__ void add(unsigned x) {
        total += x;
        steps++;
    }
    __device__ unsigned mean() const { return steps ? total / steps : 0; }
};

__device__ unsigned weigh(const unsigned *words, unsigned count) {
    Counter counter = {0, 0};
    for (unsigned k = 0; k < count; k++)
        if (words[k] & 1) counter.add(words[k] >> 8);
    return counter.mean();
}

extern "C" __global__ void debug_calls(unsigned *out, const unsigned *in) {
    __shared__ unsigned words[32];
    unsigned i = threadIdx.x;
    words[i] = in[blockIdx.x * 32 + i];
    __syncthreads();
    out[blockIdx.x * 32 + i] = weigh(words, i + 1);
}
