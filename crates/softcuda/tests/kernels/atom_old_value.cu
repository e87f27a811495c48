// What an atomic gives back, one thread at a time so that it is fixed: add, exch, cas, inc and dec at their bounds.
// launch: atom_old_value grid 1 block 1
// arg: out u32 64
// arg: out u64 16
// arg: inout u32 1 value 0xfffffffe
// arg: inout u64 1 value 0xfffffffffffffffe

extern "C" __global__ void atom_old_value(unsigned *out, unsigned long long *wide_out, unsigned *word,
                                          unsigned long long *wide) {
    __shared__ unsigned own;
    own = 3;
    unsigned n = 0, m = 0;
    unsigned long long y = 5;
    for (int k = 0; k < 4; k++) out[n++] = atomicAdd(word, 1);
    for (int k = 0; k < 4; k++) out[n++] = atomicInc(word, 3);
    for (int k = 0; k < 4; k++) out[n++] = atomicDec(word, 2);
    out[n++] = atomicExch(word, 0x80000000u);
    out[n++] = atomicMin((int *)word, 5);
    out[n++] = atomicMin(word, 5);
    out[n++] = atomicMax((int *)word, -1);
    out[n++] = atomicMax(word, 0xffffffffu);
    out[n++] = atomicAnd(word, 0xf0f0f0f0u);
    out[n++] = atomicOr(word, 0x0f000000u);
    out[n++] = atomicXor(word, 0xff0000ffu);
    out[n++] = atomicCAS(word, 1, 2);
    out[n++] = atomicCAS(word, *(volatile unsigned *)word, 77);
    out[n++] = atomicSub(word, 78);
    out[n++] = *(volatile unsigned *)word;
    for (int k = 0; k < 5; k++) out[n++] = atomicInc(&own, 4);
    for (int k = 0; k < 3; k++) out[n++] = atomicDec(&own, 9);
    out[n++] = atomicCAS(&own, 7, 8);
    out[n++] = atomicCAS(&own, 8, 9);
    out[n++] = atomicExch(&own, 11);
    out[n++] = atomicAdd(&own, 0x80000000u);
    out[n++] = own;
    wide_out[m++] = atomicAdd(wide, 3ull);
    wide_out[m++] = atomicExch(wide, 0x8000000000000001ull);
    wide_out[m++] = atomicMin((long long *)wide, 4ll);
    wide_out[m++] = atomicMax(wide, y);
    wide_out[m++] = atomicCAS(wide, 0x8000000000000001ull, 9ull);
    wide_out[m++] = atomicAnd(wide, 8ull);
    wide_out[m++] = atomicOr(wide, 0x100000000ull);
    wide_out[m++] = atomicXor(wide, ~0ull);
}
