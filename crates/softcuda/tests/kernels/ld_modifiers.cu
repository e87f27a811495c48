// Loads and stores in every order, scope and cache operator: all give the same bytes to one thread.
// launch: ld_modifiers grid 1 block 32
// arg: out u32 512
// arg: inout u32 32 noise 54
// arg: inout u32 32 value 0

#define LOAD(k, text)                                                       \
    {                                                                       \
        unsigned d;                                                         \
        asm volatile("ld." text " %0, [%1];" : "=r"(d) : "l"(from) : "memory"); \
        out[(k) * 32 + i] = d + (k);                                            \
    }
#define STORE(text)                                                                \
    asm volatile("st." text " [%0], %1;" ::"l"(to), "r"(value) : "memory"); \
    value += *to * 3;

extern "C" __global__ void ld_modifiers(unsigned *out, const unsigned *in, unsigned *scratch) {
    unsigned i = threadIdx.x, value = in[i];
    const unsigned *from = in + i;
    unsigned *to = scratch + i;
    LOAD(0, "volatile.global.u32")
    LOAD(1, "relaxed.gpu.global.u32")
    LOAD(2, "acquire.gpu.global.u32")
    LOAD(3, "relaxed.cta.u32")
    LOAD(4, "acquire.sys.u32")
    LOAD(5, "weak.global.u32")
    LOAD(6, "global.nc.u32")
    LOAD(7, "global.ca.u32")
    LOAD(8, "global.cg.u32")
    LOAD(9, "global.cs.u32")
    LOAD(10, "global.lu.u32")
    LOAD(11, "global.cv.u32")
    LOAD(12, "global.L1::no_allocate.u32")
    LOAD(13, "global.nc.L1::evict_last.u32")
    LOAD(14, "volatile.u32")
    LOAD(15, "global.L2::128B.u32")
    STORE("volatile.global.u32")
    STORE("relaxed.gpu.global.u32")
    STORE("release.gpu.global.u32")
    STORE("relaxed.cta.u32")
    STORE("release.sys.u32")
    STORE("global.wb.u32")
    STORE("global.cg.u32")
    STORE("global.cs.u32")
    STORE("global.wt.u32")
    STORE("weak.u32")
    asm volatile("prefetch.global.L1 [%0];" ::"l"(from));
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
    asm volatile("prefetch.L1 [%0];" ::"l"(from));
    asm volatile("prefetchu.L1 [%0];" ::"l"(from));
    asm volatile("prefetch.global.L2::evict_last [%0];" ::"l"(from));
    asm volatile("ldu.global.u32 %0, [%1];" : "=r"(value) : "l"(in));
    out[i] += value;
}
