// cp.async.mbarrier.arrive: with .noinc it is one of the expected arrivals, without it the arrivals are expected in addition.
// launch: cp_async_arrive grid 1 block 64
// arg: out u32 256
// arg: in u32 192 noise 84


__device__ void wait(unsigned at, unsigned parity) {
    unsigned done = 0;
    while (!done)
        asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                     : "=r"(done) : "r"(at), "r"(parity) : "memory");
}

extern "C" __global__ void cp_async_arrive(unsigned *out, const unsigned *in) {
    __shared__ unsigned words[64];
    __shared__ unsigned long long barrier;
    unsigned t = threadIdx.x, at = (unsigned)__cvta_generic_to_shared(&barrier);
    unsigned to = (unsigned)__cvta_generic_to_shared(words + t);
    if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], 64;" ::"r"(at) : "memory");
    __syncthreads();
    for (unsigned round = 0; round < 3; round++) {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(in + round * 64 + t) : "memory");
        if (round == 1) {
            asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(at) : "memory");
        } else {
            asm volatile("cp.async.mbarrier.arrive.shared.b64 [%0];" ::"r"(at) : "memory");
            asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(at) : "memory");
        }
        wait(at, round & 1);
        out[round * 64 + t] = words[63 - t];
        __syncthreads();
    }
    asm volatile("cp.async.mbarrier.arrive.noinc.b64 [%0];" ::"l"(&barrier) : "memory");
    wait(at, 1);
    out[192 + t] = 7 * t;
}
