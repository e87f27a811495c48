// Threads and whole warps that end early do not keep the others waiting at barriers.
// launch: exit_before_barrier grid 1 block 128
// arg: out u32 128

extern "C" __global__ void exit_before_barrier(unsigned *out) {
    __shared__ unsigned count;
    unsigned i = threadIdx.x;
    if (i == 0) count = 0;
    __syncthreads();
    if (i / 32 == 2 || i % 5 == 4) return;
    for (unsigned round = 0; round < 3; round++) {
        atomicAdd(&count, 1);
        __syncthreads();
        if (round == 1 && i % 7 == 6) return;
        out[i] += count;
        __syncthreads();
    }
}
