// mad.hi.sat, away from mad.hi of the same operands: an assembler may take one for the other there.
// launch: mad_hi_sat grid 4 block 100
// arg: out u32 400
// arg: in u32 400 corners slow
// arg: in u32 400 corners
// arg: in u32 400 corners random 13

extern "C" __global__ void mad_hi_sat(unsigned *out, const unsigned *a, const unsigned *b, const unsigned *c) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, d;
    asm volatile("mad.hi.sat.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a[i]), "r"(b[i]), "r"(c[i]));
    out[i] = d;
}
