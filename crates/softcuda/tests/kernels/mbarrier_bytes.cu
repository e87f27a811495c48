// mbarrier: a phase ends when as many bytes are complete as expected, in any order, and all threads have arrived.
// launch: mbarrier_bytes grid 1 block 32
// arg: out u32 64

#define TEST(parity)                                                                                       \
    asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}" \
                 : "=r"(d)                                                                                 \
                 : "r"(at), "r"(parity)                                                                    \
                 : "memory");                                                                              \
    out[n++] = d;
#define STEP(text)                                          \
    asm volatile("mbarrier." text ";" ::"r"(at) : "memory"); \
    TEST(0)                                                 \
    TEST(1)

extern "C" __global__ void mbarrier_bytes(unsigned *out) {
    __shared__ unsigned long long barrier;
    if (threadIdx.x) return;
    unsigned at = (unsigned)__cvta_generic_to_shared(&barrier), n = 0, d;
    STEP("init.shared.b64 [%0], 2")
    STEP("expect_tx.relaxed.cta.shared::cta.b64 [%0], 100")
    STEP("complete_tx.relaxed.cta.shared::cta.b64 [%0], 100")
    STEP("arrive.expect_tx.shared::cta.b64 _, [%0], 16")
    STEP("arrive.shared.b64 _, [%0]")
    STEP("complete_tx.relaxed.cta.shared::cta.b64 [%0], 12")
    STEP("complete_tx.relaxed.cta.shared::cta.b64 [%0], 4")
    STEP("arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], 1048575")
    STEP("arrive_drop.expect_tx.shared::cta.b64 _, [%0], 0")
    STEP("complete_tx.relaxed.cta.shared::cta.b64 [%0], 1048575")
    STEP("arrive.expect_tx.shared::cta.b64 _, [%0], 32")
    STEP("complete_tx.relaxed.cta.shared::cta.b64 [%0], 32")
    STEP("arrive.shared.b64 _, [%0]")
    STEP("inval.shared.b64 [%0]; mbarrier.init.shared.b64 [%0], 1")
    STEP("arrive.shared.b64 _, [%0]")
}
