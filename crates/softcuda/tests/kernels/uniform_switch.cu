// A switch large enough for a table of branches.
// launch: uniform_switch grid 1 block 64
// arg: out u32 64
// arg: in u32 64 random 66

extern "C" __global__ void uniform_switch(unsigned *out, const unsigned *in) {
    unsigned i = threadIdx.x, x = in[i], y = x >> 8;
    switch (x % 16) {
        case 0: y = __brev(y); break;
        case 1: y = __popc(y); break;
        case 2: y = __clz(y); break;
        case 3: y = y * y; break;
        case 4: y = y / 7; break;
        case 5: y = y % 1000; break;
        case 6: y = y ^ y >> 3; break;
        case 7: y = ~y; break;
        case 8: y = y + 12345; break;
        case 9: y = __ffs(y); break;
        case 10: y = y << 9; break;
        case 11: y = __byte_perm(y, x, 0x4012); break;
        case 12: y = min(y, x); break;
        case 13: y = __umulhi(x, y); break;
        case 14: y = (unsigned)sqrtf((float)y); break;
        case 15: y = y - x; break;
    }
    out[i] = y;
}
