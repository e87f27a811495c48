// A sum with the lost bits carried along, that a compiler must not simplify, and the plain one.
// compile: --fmad=false
// launch: kahan_sum grid 1 block 16
// arg: out f32 32
// arg: in f32 512 random 78

extern "C" __global__ void kahan_sum(float *out, const float *in) {
    float sum = 0, lost = 0, plain = 0;
    for (unsigned k = 0; k < 32; k++) {
        float value = in[threadIdx.x * 32 + k] * (k % 4 ? 1.0f : 100000.0f);
        plain += value;
        float corrected = value - lost, next = sum + corrected;
        lost = (next - sum) - corrected;
        sum = next;
    }
    out[threadIdx.x] = sum;
    out[16 + threadIdx.x] = plain;
}
