// Numbers and their bits: classification, decomposition and unusual routes between types.
// launch: float_bits grid 1 block 20
// arg: out u64 160
// arg: in f32 20 corners
// arg: in f64 20 corners

extern "C" __global__ void float_bits(unsigned long long *out, const float *a, const double *b) {
    unsigned i = threadIdx.x;
    float x = a[i];
    double y = b[i];
    out[i] = __float_as_int(x) >> 23 & 255;
    out[20 + i] = isnan(x) | isinf(x) << 1 | isfinite(y) << 2 | signbit(y) << 3;
    out[40 + i] = (unsigned long long)__double2hiint(y) << 32 | (unsigned)__double2loint(y);
    out[60 + i] = __double_as_longlong(__hiloint2double(i, __float_as_int(x)));
    out[80 + i] = (unsigned long long)__float2ll_rn(x);
    out[100 + i] = __float2uint_ru(x);
    out[120 + i] = (unsigned long long)__double2ll_rd(y);
    out[140 + i] = __float_as_uint(__ull2float_rz(__double_as_longlong(y)));
}
