// Complex numbers as vectors of two: products, quotients, powers. Nothing is contracted, for ptxas could do so too.
// compile: --fmad=false
// launch: complex grid 1 block 32
// arg: out f64 192
// arg: in f64 64 random 79

struct Complex {
    double re, im;
};
__device__ __noinline__ Complex times(Complex a, Complex b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
__device__ __noinline__ Complex over(Complex a, Complex b) {
    double norm = b.re * b.re + b.im * b.im;
    return {(a.re * b.re + a.im * b.im) / norm, (a.im * b.re - a.re * b.im) / norm};
}

extern "C" __global__ void complex(double2 *out, const double2 *in) {
    unsigned i = threadIdx.x;
    Complex z = {in[i].x, in[i].y}, power = {1, 0};
    for (unsigned k = 0; k < i % 7; k++) power = times(power, z);
    Complex inverse = over({1, 0}, z), one = times(z, inverse);
    out[3 * i] = make_double2(power.re, power.im);
    out[3 * i + 1] = make_double2(inverse.re, inverse.im);
    out[3 * i + 2] = make_double2(one.re, one.im);
}
