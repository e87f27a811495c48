// setp with two outputs and with a predicate combined in, negated too; predicated instructions under both.
// launch: setp_combine grid 4 block 100
// arg: out u32 400
// arg: in s32 400 corners slow
// arg: in f32 400 corners

#define TWO(k, text)                                                                                  \
    {                                                                                                 \
        unsigned d;                                                                                   \
        asm volatile("{.reg .pred p, q, r; setp.gt.s32 r, %1, 2; " text                               \
                     " mov.u32 %0, 0; @p add.u32 %0, %0, 1; @!q add.u32 %0, %0, 2;}"                  \
                     : "=r"(d)                                                                        \
                     : "r"(x), "f"(y));                                                               \
        mask |= d << (2 * (k));                                                                         \
    }

extern "C" __global__ void setp_combine(unsigned *out, const int *a, const float *b) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, mask = 0;
    int x = a[i];
    float y = b[i];
    TWO(0, "setp.lt.s32 p|q, %1, 31;")
    TWO(1, "setp.lt.and.s32 p|q, %1, 64, r;")
    TWO(2, "setp.lt.or.s32 p|q, %1, 0, r;")
    TWO(3, "setp.lt.xor.s32 p|q, %1, 255, r;")
    TWO(4, "setp.lt.and.s32 p|q, %1, 64, !r;")
    TWO(5, "setp.le.f32 p|q, %2, 0f3F800000;")
    TWO(6, "setp.leu.and.f32 p|q, %2, 0f3F800000, r;")
    TWO(7, "setp.nan.or.f32 p|q, %2, %2, r;")
    TWO(8, "setp.geu.xor.ftz.f32 p|q, %2, 0f00000000, !r;")
    TWO(9, "setp.eq.and.b32 p|q, %1, -1, r;")
    out[i] = mask;
}
