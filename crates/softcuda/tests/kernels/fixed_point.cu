// Numbers with 16 bits behind the point: products by 64 bits, a division and a root by bits.
// launch: fixed_point grid 1 block 64
// arg: out s32 192
// arg: in s32 64 random 80

extern "C" __global__ void fixed_point(int *out, const int *in) {
    unsigned i = threadIdx.x;
    int x = in[i] >> 8, y = in[63 - i] >> 10 | 1;
    out[i] = (int)((long long)x * y >> 16);
    out[64 + i] = (int)(((long long)x << 16) / y);
    unsigned left = (unsigned)abs(x), root = 0, bit = 1u << 30;
    while (bit > left) bit >>= 2;
    for (; bit; bit >>= 2) {
        if (left >= root + bit) {
            left -= root + bit;
            root = (root >> 1) + bit;
        } else {
            root >>= 1;
        }
    }
    out[128 + i] = (int)root;
}
