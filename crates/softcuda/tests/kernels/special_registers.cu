// Registers that say where a thread is, in a grid and blocks of three dimensions with a partial last warp.
// launch: special_registers grid 2x1x2 block 3x4x3 shared 100
// arg: out u32 3168

#define READ(k, name)                                                \
    {                                                                \
        unsigned d;                                                  \
        asm volatile("mov.u32 %0, %%" name ";" : "=r"(d));           \
        out[(k) * 144] = d;                                            \
    }

extern "C" __global__ void special_registers(unsigned *out) {
    unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    out += block * 36 + thread;
    READ(0, "tid.x")
    READ(1, "tid.y")
    READ(2, "tid.z")
    READ(3, "ntid.x")
    READ(4, "ntid.y")
    READ(5, "ntid.z")
    READ(6, "ctaid.x")
    READ(7, "ctaid.y")
    READ(8, "ctaid.z")
    READ(9, "nctaid.x")
    READ(10, "nctaid.y")
    READ(11, "nctaid.z")
    READ(12, "laneid")
    READ(13, "lanemask_eq")
    READ(14, "lanemask_lt")
    READ(15, "lanemask_le")
    READ(16, "lanemask_gt")
    READ(17, "lanemask_ge")
    READ(18, "dynamic_smem_size")
    unsigned wanted = thread / 32, warp;
    asm volatile("mov.u32 %0, %%warpid;" : "=r"(warp));
    out[19 * 144] = __shfl_sync(__activemask(), warp, 0) == warp;
    out[20 * 144] = wanted;
    unsigned short narrow;
    asm volatile("mov.u16 %0, %%tid.x;" : "=h"(narrow));
    out[21 * 144] = narrow;
}
