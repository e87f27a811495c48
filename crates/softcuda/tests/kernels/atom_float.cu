// Atomic additions of floating-point numbers whose sums are exact, so that no order shows.
// launch: atom_float grid 4 block 64
// arg: inout f32 2 value 0.5
// arg: inout f64 2 value 0.25
// arg: inout u32 4 value 0

extern "C" __global__ void atom_float(float *single, double *twice, unsigned *packed) {
    __shared__ float own;
    __shared__ double own_double;
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x == 0) own = 0, own_double = 0;
    __syncthreads();
    float f;
    double d;
    unsigned p;
    asm volatile("atom.global.add.f32 %0, [%1], %2;" : "=f"(f) : "l"(single), "f"((float)i) : "memory");
    asm volatile("atom.global.add.f64 %0, [%1], %2;" : "=d"(d) : "l"(twice), "d"(i * 0.5) : "memory");
    asm volatile("atom.global.add.noftz.f16x2 %0, [%1], %2;" : "=r"(p) : "l"(packed), "r"(0x3c00b800) : "memory");
    asm volatile("atom.global.add.noftz.bf16x2 %0, [%1], %2;" : "=r"(p) : "l"(packed + 1), "r"(0x3f80bf80) : "memory");
    unsigned short h;
    asm volatile("atom.global.add.noftz.f16 %0, [%1], %2;" : "=h"(h) : "l"(packed + 2), "h"((unsigned short)0x3c00) : "memory");
    asm volatile("atom.global.add.noftz.bf16 %0, [%1], %2;" : "=h"(h) : "l"((char *)(packed + 2) + 2), "h"((unsigned short)0x3f80) : "memory");
    asm volatile("red.global.add.noftz.f16x2 [%0], %1;" ::"l"(packed + 3), "r"(0x34003c00) : "memory");
    atomicAdd(&own, 1.0f);
    atomicAdd(&own_double, 2.0);
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("red.global.add.f32 [%0], %1;" ::"l"(single + 1), "f"(own) : "memory");
        asm volatile("red.relaxed.gpu.global.add.f64 [%0], %1;" ::"l"(twice + 1), "d"(own_double) : "memory");
    }
}
