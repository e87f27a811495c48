// More values alive at once than registers: a wide matrix product in one thread, without optimization.
// compile: --device-debug
// launch: spills grid 1 block 4
// arg: out f32 256
// arg: in f32 128 random 70

extern "C" __global__ void spills(float *out, const float *in) {
    float a[8][8], b[8][8];
    for (int r = 0; r < 8; r++)
        for (int c = 0; c < 8; c++) {
            a[r][c] = in[r * 8 + c] + threadIdx.x;
            b[r][c] = in[64 + r * 8 + c];
        }
    for (int r = 0; r < 8; r++)
        for (int c = 0; c < 8; c++) {
            float sum = 0;
            for (int k = 0; k < 8; k++) sum += a[r][k] * b[k][c];
            out[threadIdx.x * 64 + r * 8 + c] = sum;
        }
}
