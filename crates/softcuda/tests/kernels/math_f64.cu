// Functions of the mathematics library in double precision: long chains of fma over tables.
// launch: math_f64 grid 1 block 32
// arg: out f64 320
// arg: in f64 32 random 117
// compare: ulp 4

extern "C" __global__ void math_f64(double *out, const double *in) {
    unsigned i = threadIdx.x;
    double x = in[i], p = fabs(x) + 0.25;
    out[i] = exp(x);
    out[32 + i] = log(p);
    out[64 + i] = sin(x * 100);
    out[96 + i] = cos(x);
    out[128 + i] = pow(p, 1.75);
    out[160 + i] = atan2(x, p);
    out[192 + i] = erf(x);
    out[224 + i] = hypot(x, p);
    out[256 + i] = cbrt(x);
    out[288 + i] = tgamma(p);
}
