// cp.async whose end arrives on an mbarrier.
// launch: cp_async_mbarrier grid 1 block 64
// arg: out u32 64
// arg: in u32 64 noise 64

extern "C" __global__ void cp_async_mbarrier(unsigned *out, const unsigned *in) {
    __shared__ unsigned words[64];
    __shared__ unsigned long long barrier;
    unsigned i = threadIdx.x, at = (unsigned)__cvta_generic_to_shared(&barrier), done = 0;
    if (i == 0) asm volatile("mbarrier.init.shared.b64 [%0], 64;" ::"r"(at) : "memory");
    __syncthreads();
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"((unsigned)__cvta_generic_to_shared(words + i)),
                 "l"(in + i)
                 : "memory");
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(at) : "memory");
    while (!done)
        asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p;}"
                     : "=r"(done)
                     : "r"(at)
                     : "memory");
    out[i] = words[63 - i];
}
