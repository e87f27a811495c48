// A program compiled to flush subnormal numbers.
// compile: -ftz=true
// launch: flush_f32 grid 4 block 100
// arg: out f32 1200
// arg: in f32 400 corners slow
// arg: in f32 400 corners

extern "C" __global__ void flush_f32(float *out, const float *a, const float *b) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = a[i], y = b[i];
    out[i] = x * y + x;
    out[400 + i] = fminf(x, y) - y * 0.5f;
    out[800 + i] = x < y ? x / y : sqrtf(fabsf(x));
}
