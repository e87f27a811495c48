// Atomics with orders and scopes, between fences of every kind: a flag hands a value from block to block.
// launch: atom_scopes grid 2 block 32
// arg: inout u32 4 value 0
// arg: out u32 32

extern "C" __global__ void atom_scopes(unsigned *words, unsigned *out) {
    unsigned i = threadIdx.x, d;
    if (blockIdx.x == 1) {
        if (i == 0) {
            words[1] = 1234;
            asm volatile("fence.acq_rel.gpu;" ::: "memory");
            asm volatile("atom.release.gpu.global.exch.b32 %0, [%1], 1;" : "=r"(d) : "l"(words) : "memory");
            asm volatile("fence.sc.sys;" ::: "memory");
            asm volatile("membar.gl;" ::: "memory");
            asm volatile("membar.cta;" ::: "memory");
            asm volatile("membar.sys;" ::: "memory");
            asm volatile("fence.acq_rel.cta;" ::: "memory");
        }
        return;
    }
    if (i == 0) {
        do asm volatile("atom.acquire.gpu.global.cas.b32 %0, [%1], 1, 2;" : "=r"(d) : "l"(words) : "memory");
        while (d != 1);
        asm volatile("atom.acq_rel.sys.global.add.u32 %0, [%1], 5;" : "=r"(d) : "l"(words + 2) : "memory");
        asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 6;" : "=r"(d) : "l"(words + 2) : "memory");
        words[3] = d;
    }
    __syncwarp();
    out[i] = *(volatile unsigned *)(words + 1) + i;
}
