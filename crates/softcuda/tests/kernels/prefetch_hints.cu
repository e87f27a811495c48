// prefetch into every cache, and loads and stores with every eviction hint: what is read is as without.
// launch: prefetch_hints grid 1 block 64
// arg: out u32 448
// arg: inout u32 256 noise 93


extern "C" __global__ void prefetch_hints(unsigned *out, unsigned *in) {
    unsigned t = threadIdx.x, d, e;
    asm volatile("prefetch.global.L1 [%0];" ::"l"(in + t));
    asm volatile("prefetch.global.L2 [%0];" ::"l"(in + t));
    asm volatile("prefetch.global.L2::evict_last [%0];" ::"l"(in + t));
    asm volatile("prefetch.global.L2::evict_normal [%0];" ::"l"(in + t));
    asm volatile("prefetch.L2 [%0];" ::"l"(in + 64));
    asm volatile("prefetchu.L1 [%0];" ::"l"(in + t));
    asm volatile("applypriority.global.L2::evict_normal [%0], 128;" ::"l"(in + t / 32 * 32));
    asm volatile("ld.global.L1::evict_first.b32 %0, [%1];" : "=r"(d) : "l"(in + t) : "memory");
    out[t] = d;
    asm volatile("ld.global.L1::no_allocate.L2::128B.b32 %0, [%1];" : "=r"(d) : "l"(in + 63 - t) : "memory");
    out[64 + t] = d;
    asm volatile("ld.global.nc.L1::evict_last.b32 %0, [%1];" : "=r"(d) : "l"(in + 32 + t % 16) : "memory");
    out[128 + t] = d;
    asm volatile("ld.global.cg.b32 %0, [%1];" : "=r"(d) : "l"(in + 64 + t) : "memory");
    out[192 + t] = d;
    unsigned long long policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("ld.global.L2::cache_hint.b32 %0, [%1], %2;" : "=r"(d) : "l"(in + t), "l"(policy) : "memory");
    asm volatile("st.global.L2::cache_hint.b32 [%0], %1, %2;" ::"l"(in + 192 + t), "r"(d + 1), "l"(policy) : "memory");
    out[256 + t] = d;
    asm volatile("createpolicy.range.global.L2::evict_last.L2::evict_unchanged.b64 %0, [%1], 256, 1024;" : "=l"(policy) : "l"(in));
    asm volatile("ld.global.L2::cache_hint.v2.b32 {%0, %1}, [%2], %3;" : "=r"(d), "=r"(e) : "l"(in + 2 * (t % 32)), "l"(policy) : "memory");
    out[320 + t] = d ^ e << 1;
    asm volatile("atom.global.add.L2::cache_hint.u32 %0, [%1], 3, %2;" : "=r"(d) : "l"(in + 64 + t), "l"(policy) : "memory");
    asm volatile("red.global.add.L2::cache_hint.u32 [%0], 5, %1;" ::"l"(in + 128 + t), "l"(policy) : "memory");
    out[384 + t] = d;
}
