// Functions of the mathematics library in single precision whose results are exact or built of exact steps.
// launch: math_f32_exact grid 1 block 20
// arg: out f32 260
// arg: in f32 20 corners
// arg: in f32 20 corners random 116
// compare: any-nan

extern "C" __global__ void math_f32_exact(float *out, const float *a, const float *b) {
    unsigned i = threadIdx.x;
    float x = a[i], y = b[i], whole;
    int exponent;
    out[i] = floorf(x);
    out[20 + i] = ceilf(x);
    out[40 + i] = truncf(x);
    out[60 + i] = rintf(x);
    out[80 + i] = roundf(x);
    out[100 + i] = fmodf(x, y);
    out[120 + i] = ldexpf(x, 3);
    out[140 + i] = frexpf(x, &exponent) + (x == x && fabsf(x) < 1e38f ? exponent : 0);
    out[160 + i] = modff(x, &whole) + whole;
    out[180 + i] = fdimf(x, y);
    out[200 + i] = nextafterf(x, y);
    out[220 + i] = remainderf(x, y);
    out[240 + i] = copysignf(fmaxf(x, y), fminf(x, y));
}
