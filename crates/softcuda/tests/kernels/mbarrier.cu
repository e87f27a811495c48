// mbarrier: phases by test_wait with a state and by parity, counts that change, pending counts.
// launch: mbarrier grid 1 block 64
// arg: out u32 256
// arg: out u32 12

extern "C" __global__ void mbarrier(unsigned *out, unsigned *states) {
    __shared__ unsigned long long barrier, other;
    __shared__ unsigned words[64];
    unsigned i = threadIdx.x, at = (unsigned)__cvta_generic_to_shared(&barrier);
    unsigned at_other = (unsigned)__cvta_generic_to_shared(&other);
    if (i == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 64;" ::"r"(at) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 3;" ::"r"(at_other) : "memory");
    }
    __syncthreads();
    for (unsigned round = 0; round < 3; round++) {
        words[i] = i + 1000 * round;
        unsigned long long state;
        asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(state) : "r"(at) : "memory");
        unsigned done = 0;
        while (!done)
            asm volatile("{.reg .pred p; mbarrier.test_wait.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                         : "=r"(done)
                         : "r"(at), "l"(state)
                         : "memory");
        out[round * 64 + i] = words[63 - i];
        __syncthreads();
    }
    words[i] = 7 * i;
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
    unsigned done = 0;
    while (!done)
        asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 1; selp.u32 %0, 1, 0, p;}"
                     : "=r"(done)
                     : "r"(at)
                     : "memory");
    out[192 + i] = words[(i + 5) % 64];
    if (i != 0) return;
    unsigned n = 0, d;
    unsigned long long state;
#define TEST(parity)                                                                                           \
    asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"     \
                 : "=r"(d)                                                                                     \
                 : "r"(at_other), "r"(parity)                                                                  \
                 : "memory");                                                                                  \
    states[n++] = d;
#define PENDING                                                                          \
    asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(d) : "l"(state));           \
    states[n++] = d;
    TEST(0)
    TEST(1)
    asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(state) : "r"(at_other) : "memory");
    PENDING
    asm volatile("mbarrier.arrive.noComplete.shared.b64 %0, [%1], 1;" : "=l"(state) : "r"(at_other) : "memory");
    PENDING
    TEST(0)
    asm volatile("mbarrier.arrive_drop.shared.b64 %0, [%1];" : "=l"(state) : "r"(at_other) : "memory");
    PENDING
    TEST(0)
    TEST(1)
    asm volatile("mbarrier.arrive.shared.b64 %0, [%1], 2;" : "=l"(state) : "r"(at_other) : "memory");
    PENDING
    TEST(1)
    asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(at_other) : "memory");
}
