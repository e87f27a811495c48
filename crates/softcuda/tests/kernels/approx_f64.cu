// The approximations of 1/x and 1/sqrt(x) in double precision: within the bound or not, and their special values.
// launch: approx_f64 grid 1 block 64
// arg: out u32 128
// arg: out f64 40
// arg: in f64 64 random 119
// arg: in f64 20 bits 0,0x8000000000000000,0x7ff0000000000000,0xfff0000000000000,0x7ff8000000000000,1,0x8000000000000001,0x3ff0000000000000,0x4000000000000000,0x4010000000000000,0x3fe0000000000000,0xbff0000000000000,0,0,0,0,0,0,0,0
// compare: any-nan

extern "C" __global__ void approx_f64(unsigned *out, double *special, const double *in, const double *corners) {
    unsigned i = threadIdx.x;
    double x = fabs(in[i]) + 0.001, r, s;
    asm volatile("rcp.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(x));
    asm volatile("rsqrt.approx.f64 %0, %1;" : "=d"(s) : "d"(x));
    out[i] = fabs(r * x - 1.0) < 4.0e-6;
    out[64 + i] = fabs(s * s * x - 1.0) < 4.0e-6;
    if (i < 20) {
        double c = corners[i];
        asm volatile("rcp.approx.ftz.f64 %0, %1;" : "=d"(special[i]) : "d"(c));
        asm volatile("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(special[20 + i]) : "d"(c));
    }
}
