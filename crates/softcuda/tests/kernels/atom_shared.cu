// Atomic operations and reductions on shared memory.
// launch: atom_shared grid 1 block 96
// arg: out u32 10
// arg: out u64 5
// arg: in u32 96 random 57

extern "C" __global__ void atom_shared(unsigned *out, unsigned long long *wide_out, const unsigned *in) {
    __shared__ unsigned words[10];
    __shared__ unsigned long long wide[5];
    unsigned i = threadIdx.x, x = in[i], d;
    unsigned long long y = (unsigned long long)x << 20 | i, e;
    if (i < 10) words[i] = i == 2 || i == 4 ? ~0u : 0;
    if (i < 5) wide[i] = i == 1 ? ~0ull : 0;
    __syncthreads();
    unsigned base = (unsigned)__cvta_generic_to_shared(words), base_wide = (unsigned)__cvta_generic_to_shared(wide);
#define OP(k, text, value) asm volatile("atom." text " %0, [%1], %2;" : "=r"(d) : "r"(base + 4 * (k)), "r"(value) : "memory");
#define RED(k, text, value) asm volatile("red." text " [%0], %1;" ::"r"(base + 4 * (k)), "r"(value) : "memory");
#define WIDE(k, text, value) asm volatile("atom." text " %0, [%1], %2;" : "=l"(e) : "r"(base_wide + 8 * (k)), "l"(value) : "memory");
    OP(0, "shared.add.u32", x)
    OP(1, "shared.cta.max.u32", x)
    OP(2, "shared.min.u32", x)
    OP(3, "relaxed.cta.shared.or.b32", 1u << i % 32)
    OP(4, "shared::cta.and.b32", ~(1u << i % 7))
    RED(5, "shared.add.s32", x)
    RED(6, "shared.xor.b32", x)
    RED(7, "shared.inc.u32", 100)
    RED(8, "shared.dec.u32", 100)
    RED(9, "shared.max.s32", x)
    WIDE(0, "shared.add.u64", y)
    WIDE(1, "shared.min.u64", y)
    WIDE(2, "shared.max.s64", y)
    WIDE(3, "shared.xor.b64", y)
    WIDE(4, "shared.or.b64", y)
    __syncthreads();
    if (i < 10) out[i] = words[i];
    if (i < 5) wide_out[i] = wide[i];
}
