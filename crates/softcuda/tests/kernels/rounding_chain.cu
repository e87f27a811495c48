// Chains of sqrt and fma that show each rounding; contraction is on, as compilers have it.
// launch: rounding_chain grid 1 block 64
// arg: out f32 192
// arg: in f32 64 random 83

extern "C" __global__ void rounding_chain(float *out, const float *in) {
    unsigned i = threadIdx.x;
    float x = in[i], chained = x, rooted = fabsf(x) + 1.0f, split = x;
    for (int k = 0; k < 20; k++) {
        chained = chained * 0.9f + 0.1f;
        rooted = sqrtf(rooted * rooted + 0.001f);
        split = __fadd_rz(__fmul_ru(split, 0.9f), 0.1f);
    }
    out[i] = chained;
    out[64 + i] = rooted;
    out[128 + i] = __fmaf_rd(split, chained, rooted);
}
