// mbarrier between a warp that produces and one that consumes, in a ring of three slots, by parity; the last round by state.
// launch: mbarrier_phases grid 2 block 64
// arg: out u32 1088

__device__ unsigned noise(unsigned i) {
    i = (i + 1) * 2654435761u;
    i = (i ^ i >> 15) * 2246822519u;
    return i ^ i >> 13;
}

__device__ void wait(unsigned at, unsigned parity) {
    unsigned done = 0;
    while (!done)
        asm volatile("{.reg .pred p; mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2, 1000; selp.u32 %0, 1, 0, p;}"
                     : "=r"(done) : "r"(at), "r"(parity) : "memory");
}

extern "C" __global__ void mbarrier_phases(unsigned *out) {
    __shared__ unsigned slots[3][32];
    __shared__ unsigned long long full[3], empty[3];
    unsigned lane = threadIdx.x % 32, slot = 0, parity = 0;
    unsigned at_full = (unsigned)__cvta_generic_to_shared(full), at_empty = (unsigned)__cvta_generic_to_shared(empty);
    if (threadIdx.x < 3) {
        asm volatile("mbarrier.init.shared.b64 [%0], 32;" ::"r"(at_full + 8 * lane) : "memory");
        asm volatile("mbarrier.init.shared.b64 [%0], 32;" ::"r"(at_empty + 8 * lane) : "memory");
    }
    __syncthreads();
    for (unsigned round = 0; round < 16; round++) {
        if (threadIdx.x < 32) {
            wait(at_empty + 8 * slot, parity ^ 1);
            slots[slot][lane] = noise(blockIdx.x * 1000 + round * 32 + lane);
            asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(at_full + 8 * slot) : "memory");
        } else {
            wait(at_full + 8 * slot, parity);
            out[blockIdx.x * 544 + round * 32 + lane] = slots[slot][(lane + round) % 32];
            asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(at_empty + 8 * slot) : "memory");
        }
        if (++slot == 3) slot = 0, parity ^= 1;
    }
    if (threadIdx.x >= 32) {
        unsigned long long state;
        unsigned done = 0;
        asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(state) : "r"(at_full + 8) : "memory");
        while (!done)
            asm volatile("{.reg .pred p; mbarrier.try_wait.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                         : "=r"(done) : "r"(at_full + 8), "l"(state) : "memory");
        out[blockIdx.x * 544 + 512 + lane] = lane * done;
    }
}
