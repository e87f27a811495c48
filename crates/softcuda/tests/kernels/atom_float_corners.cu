// One atomic addition of each corner to each corner: subnormal numbers are flushed in some places and kept in others.
// launch: atom_float_corners grid 4 block 100
// arg: inout f32 400 corners slow
// arg: inout f16x2 400 corners slow
// arg: inout bf16x2 400 corners slow
// arg: inout f64 400 corners slow
// arg: in f32 400 corners
// arg: in f16x2 400 corners
// arg: in bf16x2 400 corners
// arg: in f64 400 corners
// arg: out f32 400
// compare: any-nan

extern "C" __global__ void atom_float_corners(float *f32, unsigned *f16, unsigned *bf16, double *f64, const float *a,
                                              const unsigned *b, const unsigned *c, const double *d, float *shared) {
    __shared__ float own[100];
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    own[threadIdx.x] = f32[i];
    asm volatile("red.global.add.f32 [%0], %1;" ::"l"(f32 + i), "f"(a[i]) : "memory");
    asm volatile("red.global.add.noftz.f16x2 [%0], %1;" ::"l"(f16 + i), "r"(b[i]) : "memory");
    asm volatile("red.global.add.noftz.bf16x2 [%0], %1;" ::"l"(bf16 + i), "r"(c[i]) : "memory");
    asm volatile("red.global.add.f64 [%0], %1;" ::"l"(f64 + i), "d"(d[i]) : "memory");
    atomicAdd(&own[threadIdx.x], a[i]);
    shared[i] = own[threadIdx.x];
}
