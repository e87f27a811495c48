// Sines of large arguments, which need the reduction by a table of bits in local memory.
// launch: trigonometry_large grid 1 block 32
// arg: out f32 64
// arg: in f32 32 random 118
// compare: ulp 2

extern "C" __global__ void trigonometry_large(float *out, const float *in) {
    unsigned i = threadIdx.x;
    float x = in[i] * 1.0e6f * (i + 1), y = ldexpf(in[i], (int)i * 3);
    out[i] = sinf(x);
    out[32 + i] = cosf(y);
}
