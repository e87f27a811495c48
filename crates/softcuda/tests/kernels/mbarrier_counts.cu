// mbarrier: pending counts and phases while threads arrive one by one, several at once, and drop out.
// launch: mbarrier_counts grid 1 block 32
// arg: out u32 64

#define TEST(parity)                                                                                       \
    asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}" \
                 : "=r"(d)                                                                                 \
                 : "r"(at), "r"(parity)                                                                    \
                 : "memory");                                                                              \
    out[n++] = d;
#define ARRIVE(text)                                                                     \
    asm volatile("mbarrier." text ";" : "=l"(state) : "r"(at) : "memory");               \
    TEST(0)                                                                              \
    TEST(1)
#define PENDING                                                                          \
    asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(d) : "l"(state));           \
    out[n++] = d;
#define INIT(count) asm volatile("mbarrier.init.shared::cta.b64 [%0], " #count ";" ::"r"(at) : "memory");

extern "C" __global__ void mbarrier_counts(unsigned *out) {
    __shared__ unsigned long long barrier;
    if (threadIdx.x) return;
    unsigned at = (unsigned)__cvta_generic_to_shared(&barrier), n = 0, d;
    unsigned long long state;
    INIT(4)
    ARRIVE("arrive.shared.b64 %0, [%1]")
    ARRIVE("arrive.shared.b64 %0, [%1], 2")
    ARRIVE("arrive_drop.shared.b64 %0, [%1]")
    ARRIVE("arrive.shared::cta.b64 %0, [%1], 2")
    ARRIVE("arrive_drop.shared.b64 %0, [%1]")
    ARRIVE("arrive.release.cta.shared.b64 %0, [%1], 2")
    ARRIVE("arrive_drop.noComplete.shared.b64 %0, [%1], 1")
    PENDING
    ARRIVE("arrive.shared.b64 %0, [%1]")
    ARRIVE("arrive.shared.b64 %0, [%1]")
    asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(at) : "memory");
    INIT(1048575)
    ARRIVE("arrive.shared.b64 %0, [%1], 1000000")
    ARRIVE("arrive.noComplete.shared::cta.b64 %0, [%1], 575")
    PENDING
    ARRIVE("arrive_drop.noComplete.shared::cta.b64 %0, [%1], 8000")
    PENDING
    ARRIVE("arrive.shared.b64 %0, [%1], 40000")
    ARRIVE("arrive.shared.b64 %0, [%1], 1040575")
    asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(at) : "memory");
}
