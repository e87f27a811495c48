// An mbarrier that counts bytes as well as arrivals.
// launch: mbarrier_tx grid 1 block 32
// arg: out u32 6

extern "C" __global__ void mbarrier_tx(unsigned *out) {
    __shared__ unsigned long long barrier;
    if (threadIdx.x) return;
    unsigned at = (unsigned)__cvta_generic_to_shared(&barrier), n = 0, d;
#define TEST                                                                                              \
    asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p;}" \
                 : "=r"(d)                                                                                \
                 : "r"(at)                                                                                \
                 : "memory");                                                                             \
    out[n++] = d;
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 2;" ::"r"(at) : "memory");
    TEST
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 64;" ::"r"(at) : "memory");
    TEST
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
    TEST
    asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 48;" ::"r"(at) : "memory");
    TEST
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], 8;" ::"r"(at) : "memory");
    TEST
    asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 24;" ::"r"(at) : "memory");
    TEST
}
