// Addition and subtraction of f32 in all roundings, flushed, saturated.
// launch: add_f32 grid 4 block 100
// arg: out f32 4000
// arg: in f32 400 corners slow
// arg: in f32 400 corners

#define OP(k, text)                                                   \
    {                                                                 \
        float d;                                                      \
        asm volatile(text " %0, %1, %2;" : "=f"(d) : "f"(x), "f"(y)); \
        out[(k) * 400 + i] = d;                                         \
    }

extern "C" __global__ void add_f32(float *out, const float *a, const float *b) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = a[i], y = b[i];
    OP(0, "add.f32")
    OP(1, "add.rz.f32")
    OP(2, "add.rm.f32")
    OP(3, "add.rp.f32")
    OP(4, "add.rn.ftz.f32")
    OP(5, "add.sat.f32")
    OP(6, "sub.rn.f32")
    OP(7, "sub.rz.ftz.f32")
    OP(8, "sub.rm.f32")
    OP(9, "sub.rp.ftz.sat.f32")
}
