// Tables in constant memory: words, bytes, doubles and a table of addresses of the tables.
// launch: constant_table grid 1 block 64
// arg: out u32 192

__constant__ unsigned primes[8] = {2, 3, 5, 7, 11, 13, 17, 19};
__constant__ unsigned char letters[] = "constant";
__constant__ double halves[4] = {0.5, 1.5, 2.5, -3.5};
__constant__ const unsigned *parts[2] = {primes, primes + 4};

extern "C" __global__ void constant_table(unsigned *out) {
    unsigned i = threadIdx.x;
    out[i] = primes[i % 8] * i;
    out[64 + i] = letters[i % 9];
    out[128 + i] = (unsigned)(int)(halves[i % 4] * i) + parts[i & 1][i / 16];
}
