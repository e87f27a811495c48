// Local arrays with an index that only the run knows.
// launch: local_array grid 1 block 33
// arg: out u32 66
// arg: in u32 33 random 69

extern "C" __global__ void local_array(unsigned *out, const unsigned *in) {
    unsigned i = threadIdx.x, x = in[i], order[16];
    unsigned char bytes[11];
#pragma unroll 1
    for (unsigned k = 0; k < 16; k++) order[k] = k;
#pragma unroll 1
    for (unsigned k = 15; k > 0; k--) {
        x = x * 22695477 + 1;
        unsigned j = (x >> 16) % (k + 1), t = order[k];
        order[k] = order[j];
        order[j] = t;
    }
#pragma unroll 1
    for (unsigned k = 0; k < 11; k++) bytes[(k * 7) % 11] = (unsigned char)(order[k] * 16 + k);
    unsigned sum = 0;
#pragma unroll 1
    for (unsigned k = 0; k < 16; k++) sum = sum * 17 + order[k];
    out[i] = sum;
    out[33 + i] = bytes[x % 11] | bytes[(x >> 8) % 11] << 8;
}
