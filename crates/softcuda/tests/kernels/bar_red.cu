// Barriers that count and combine predicates of a whole block, whose last warp is not full.
// launch: bar_red grid 1 block 100
// arg: out u32 800

extern "C" __global__ void bar_red(unsigned *out) {
    unsigned i = threadIdx.x;
    out[i] = __syncthreads_count(i % 3 == 0);
    out[100 + i] = __syncthreads_and(i < 100);
    out[200 + i] = __syncthreads_and(i != 99);
    out[300 + i] = __syncthreads_or(i == 99);
    out[400 + i] = __syncthreads_or(i > 99);
    unsigned d;
    asm volatile("{.reg .pred p; setp.gt.u32 p, %1, 70; barrier.cta.red.popc.u32 %0, 3, !p;}" : "=r"(d) : "r"(i) : "memory");
    out[500 + i] = d;
    asm volatile(
        "{.reg .pred p, q; setp.gt.u32 p, %1, 70; bar.red.or.pred q, 4, p; selp.u32 %0, 1, 0, q;}"
        : "=r"(d)
        : "r"(i)
        : "memory");
    out[600 + i] = d;
    asm volatile(
        "{.reg .pred p, q; setp.lt.u32 p, %1, 100; barrier.red.and.pred q, 5, p; selp.u32 %0, 1, 0, q;}"
        : "=r"(d)
        : "r"(i)
        : "memory");
    out[700 + i] = d;
}
