// Functions of the mathematics library in single precision, flushed and fast where the compiler may.
// compile: --use_fast_math
// launch: math_f32 grid 1 block 64
// arg: out f32 512
// arg: in f32 64 random 115
// compare: ulp 40

extern "C" __global__ void math_f32(float *out, const float *in) {
    unsigned i = threadIdx.x;
    float x = fabsf(in[i]) + 0.5f;
    out[i] = expf(x);
    out[64 + i] = logf(x + 2.0f);
    out[128 + i] = powf(x, 2.5f);
    out[192 + i] = rsqrtf(x) * sqrtf(x);
    out[256 + i] = x / 3.3f;
    out[320 + i] = exp10f(x * 0.25f);
    out[384 + i] = sinf(x * 0.25f + 0.25f);
    out[448 + i] = cbrtf(x);
}
