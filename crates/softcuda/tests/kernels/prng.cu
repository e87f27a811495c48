// Generators of random numbers: xorshift, a linear one of 64 bits with permuted output, and Philox.
// launch: prng grid 1 block 64
// arg: out u32 448
// arg: value u64 0x123456789abcdef

extern "C" __global__ void prng(unsigned *out, unsigned long long seed) {
    unsigned i = threadIdx.x, shift = 2463534242u + i;
    for (unsigned step = 0; step < 16; step++) {
        shift ^= shift << 13;
        shift ^= shift >> 17;
        shift ^= shift << 5;
    }
    out[i] = shift;
    unsigned long long state = seed + i;
    for (unsigned step = 0; step < 2; step++) {
        state = state * 6364136223846793005ull + (2 * i + 1);
        unsigned mixed = (unsigned)((state >> 18 ^ state) >> 27), turn = (unsigned)(state >> 59);
        out[64 + 64 * step + i] = __funnelshift_r(mixed, mixed, turn);
    }
    unsigned counter[4] = {i, 0, 0, 7}, key[2] = {(unsigned)seed, (unsigned)(seed >> 32)};
    for (unsigned round = 0; round < 10; round++) {
        unsigned high = __umulhi(0xd2511f53u, counter[0]), low = 0xd2511f53u * counter[0];
        unsigned high2 = __umulhi(0xcd9e8d57u, counter[2]), low2 = 0xcd9e8d57u * counter[2];
        counter[0] = high2 ^ counter[1] ^ key[0];
        counter[1] = low2;
        counter[2] = high ^ counter[3] ^ key[1];
        counter[3] = low;
        key[0] += 0x9e3779b9u;
        key[1] += 0xbb67ae85u;
    }
    for (unsigned k = 0; k < 4; k++) out[192 + 64 * k + i] = counter[k];
}
