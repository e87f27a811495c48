// cvt between f16, bf16, f32 and f64 in all roundings, saturated, flushed, with the negative cut off.
// launch: cvt_float grid 1 block 20
// arg: out u64 860
// arg: in f16 20 corners
// arg: in bf16 20 corners
// arg: in f32 20 corners
// arg: in f64 20 corners
// arg: in f32 20 bits 0x477fefff,0x477ff000,0x477fe000,0x33000000,0x33000001,0x33800000,0x387fc000,0x387fe000,0x38800000,0x3f801000,0x3f801001,0x3f803000,0xbf801000,0x7f7f8000,0x7f7f7fff,0x3f808000,0x3f818000,0x3f808001,0x00008000,0x80018000

#define TO16(k, text, letter, x)                                    \
    {                                                               \
        unsigned short d;                                           \
        asm volatile("cvt." text " %0, %1;" : "=h"(d) : letter(x)); \
        out[(k) * 20 + i] = d;                                        \
    }
#define TO32(k, text, letter, x)                                    \
    {                                                               \
        float d;                                                    \
        asm volatile("cvt." text " %0, %1;" : "=f"(d) : letter(x)); \
        out[(k) * 20 + i] = __float_as_uint(d);                       \
    }
#define TO64(k, text, letter, x)                                    \
    {                                                               \
        double d;                                                   \
        asm volatile("cvt." text " %0, %1;" : "=d"(d) : letter(x)); \
        out[(k) * 20 + i] = d != d ? 0x7ff8000000000000 : __double_as_longlong(d); \
    }

extern "C" __global__ void cvt_float(unsigned long long *out, const unsigned short *f16, const unsigned short *bf16,
                                     const float *f32, const double *f64, const float *edges) {
    unsigned i = threadIdx.x;
    unsigned short h = f16[i], b = bf16[i];
    float f = f32[i], e = edges[i];
    double w = f64[i];
    TO32(0, "f32.f16", "h", h)
    TO64(1, "f64.f16", "h", h)
    TO64(2, "f64.f32", "f", f)
    TO16(3, "rn.f16.f32", "f", f)
    TO16(4, "rz.f16.f32", "f", f)
    TO16(5, "rm.f16.f32", "f", f)
    TO16(6, "rp.f16.f32", "f", f)
    TO16(7, "rn.f16.f32", "f", e)
    TO16(8, "rz.f16.f32", "f", e)
    TO16(9, "rm.f16.f32", "f", e)
    TO16(10, "rp.f16.f32", "f", e)
    TO16(11, "rn.sat.f16.f32", "f", f)
    TO16(12, "rn.ftz.f16.f32", "f", f)
    TO32(13, "rn.f32.f64", "d", w)
    TO32(14, "rz.f32.f64", "d", w)
    TO32(15, "rm.f32.f64", "d", w)
    TO32(16, "rp.f32.f64", "d", w)
    TO32(17, "rn.ftz.f32.f64", "d", w)
    TO32(18, "rn.sat.f32.f64", "d", w)
    TO16(19, "rn.f16.f64", "d", w)
    TO16(20, "rp.f16.f64", "d", w)
    TO32(21, "rni.f32.f32", "f", f)
    TO32(22, "rzi.f32.f32", "f", f)
    TO32(23, "rmi.f32.f32", "f", f)
    TO32(24, "rpi.f32.f32", "f", f)
    TO32(25, "rpi.ftz.f32.f32", "f", f)
    TO32(26, "sat.f32.f32", "f", f)
    TO32(27, "ftz.f32.f32", "f", f)
    TO64(28, "rni.f64.f64", "d", w)
    TO64(29, "rzi.f64.f64", "d", w)
    TO64(30, "rmi.f64.f64", "d", w)
    TO64(31, "rpi.f64.f64", "d", w)
    TO16(32, "rni.f16.f16", "h", h)
    TO16(33, "rpi.f16.f16", "h", h)
    TO16(34, "rn.bf16.f32", "f", f)
    TO16(35, "rz.bf16.f32", "f", f)
    TO16(36, "rn.bf16.f32", "f", e)
    TO16(37, "rz.bf16.f32", "f", e)
    TO16(38, "rn.relu.bf16.f32", "f", f)
    TO16(39, "rn.relu.f16.f32", "f", f)
    TO32(40, "f32.bf16", "h", b)
    TO32(41, "sat.f32.f16", "h", h)
    TO64(42, "sat.f64.f64", "d", w)
}
