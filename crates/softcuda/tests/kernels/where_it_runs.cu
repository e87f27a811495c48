// Registers whose values are the machine's own, as far as they are bound to each other.
// launch: where_it_runs grid 4 block 64
// arg: out u32 256

extern "C" __global__ void where_it_runs(unsigned *out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, smid, nsmid, warpid, nwarpid, total, dynamic;
    unsigned long long grid;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(smid));
    asm volatile("mov.u32 %0, %%nsmid;" : "=r"(nsmid));
    asm volatile("mov.u32 %0, %%warpid;" : "=r"(warpid));
    asm volatile("mov.u32 %0, %%nwarpid;" : "=r"(nwarpid));
    asm volatile("mov.u64 %0, %%gridid;" : "=l"(grid));
    asm volatile("mov.u32 %0, %%total_smem_size;" : "=r"(total));
    asm volatile("mov.u32 %0, %%dynamic_smem_size;" : "=r"(dynamic));
    out[i] = (smid < nsmid) | (warpid < nwarpid) << 1 | (total >= dynamic) << 2 | (nwarpid >= 2) << 3;
}
