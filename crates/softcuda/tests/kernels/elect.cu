// elect: one lane of a mask is chosen; which one is fixed by nothing, that it is one is.
// launch: elect grid 1 block 64
// arg: out u32 128

extern "C" __global__ void elect(unsigned *out) {
    unsigned i = threadIdx.x, lane = i % 32, d, p;
    asm volatile("{.reg .pred q; elect.sync %0|q, 0xffffffff; selp.u32 %1, 1, 0, q;}" : "=r"(d), "=r"(p));
    out[i] = __popc(__ballot_sync(0xffffffff, p)) * 100 + (p == (d == lane));
    if (lane >= 16) {
        asm volatile("{.reg .pred q; elect.sync %0|q, 0xffff0000; selp.u32 %1, 1, 0, q;}" : "=r"(d), "=r"(p));
        out[64 + i] = __popc(__ballot_sync(0xffff0000, p)) * 100 + (d >= 16);
    }
}
