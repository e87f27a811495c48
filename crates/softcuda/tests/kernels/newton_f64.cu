// Iterations in double precision: roots by Newton's method and a series for e.
// launch: newton_f64 grid 1 block 32
// arg: out f64 96
// arg: in f64 32 random 75

extern "C" __global__ void newton_f64(double *out, const double *in) {
    unsigned i = threadIdx.x;
    double x = fabs(in[i]) + 1.0, guess = x, sum = 1, term = 1;
    for (int k = 0; k < 8; k++) guess = 0.5 * (guess + x / guess);
    for (int k = 1; k < 20; k++) sum += term /= k;
    out[i] = guess;
    out[32 + i] = sum * x;
    out[64 + i] = sqrt(x) - guess;
}
