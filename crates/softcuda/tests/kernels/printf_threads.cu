// printf of many threads and blocks: each line whole, the order open.
// launch: printf_threads grid 3 block 40
// arg: out u32 1
// printf: sorted

extern "C" __global__ void printf_threads(unsigned *out) {
    if (threadIdx.x % 8 == 3) printf("block %u thread %2u half %.1f\n", blockIdx.x, threadIdx.x, threadIdx.x * 0.5f);
    if (threadIdx.x == 0) atomicAdd(out, 1);
}
