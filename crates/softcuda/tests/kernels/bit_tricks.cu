// Bits by arithmetic beside the instructions that do the same.
// launch: bit_tricks grid 1 block 64
// arg: out u32 512
// arg: in u32 64 noise 81

extern "C" __global__ void bit_tricks(unsigned *out, const unsigned *in) {
    unsigned i = threadIdx.x, x = in[i] >> i % 32, v = x;
    v = v - (v >> 1 & 0x55555555);
    v = (v & 0x33333333) + (v >> 2 & 0x33333333);
    v = ((v + (v >> 4)) & 0x0f0f0f0f) * 0x01010101 >> 24;
    out[i] = v * 100 + __popc(x);
    out[64 + i] = (x & -x) + __ffs(x);
    unsigned power = x - 1;
    for (unsigned k = 1; k < 32; k *= 2) power |= power >> k;
    out[128 + i] = power + 1;
    out[192 + i] = __byte_perm(x, x, 0x0123) ^ __brev(x);
    out[256 + i] = __vadd4(x, ~x >> 3) + __vcmpgtu4(x, 0x40404040);
    out[320 + i] = __dp4a((int)x, (int)(x >> 5), 7) + __sad((int)x, 55, 3);
    out[384 + i] = __funnelshift_l(x, in[63 - i], i) ^ __hadd((int)x, 77) ^ __uhadd(x, 9);
    out[448 + i] = (unsigned)(__ffsll((long long)x << i % 32) + __clzll(x) + __popcll(~(unsigned long long)x));
}
