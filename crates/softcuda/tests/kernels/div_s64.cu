// Division and remainder of 64 bits, by zero too.
// launch: div_s64 grid 4 block 100
// arg: out u64 1600
// arg: in u64 400 corners slow
// arg: in u64 400 corners

#define OP(k, text)                                               \
    {                                                             \
        unsigned long long d;                                     \
        asm volatile(text " %0, %1, %2;" : "=l"(d) : "l"(x), "l"(y)); \
        out[(k) * 400 + i] = d;                                     \
    }

extern "C" __global__ void div_s64(unsigned long long *out, const unsigned long long *a, const unsigned long long *b) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long x = a[i], y = b[i];
    OP(0, "div.s64")
    OP(1, "div.u64")
    OP(2, "rem.s64")
    OP(3, "rem.u64")
}
