// Addition, subtraction and multiplication of 64 bits.
// launch: add_mul_s64 grid 4 block 100
// arg: out u64 2000
// arg: in u64 400 corners slow
// arg: in u64 400 corners

#define OP(k, text)                                               \
    {                                                             \
        unsigned long long d;                                     \
        asm volatile(text " %0, %1, %2;" : "=l"(d) : "l"(x), "l"(y)); \
        out[(k) * 400 + i] = d;                                     \
    }

extern "C" __global__ void add_mul_s64(unsigned long long *out, const unsigned long long *a,
                                       const unsigned long long *b) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long x = a[i], y = b[i];
    OP(0, "add.s64")
    OP(1, "sub.u64")
    OP(2, "mul.lo.s64")
    OP(3, "mul.hi.s64")
    OP(4, "mul.hi.u64")
}
