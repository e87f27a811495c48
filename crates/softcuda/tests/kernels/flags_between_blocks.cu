// Two blocks that hand a value back and forth by flags, a hundred times.
// launch: flags_between_blocks grid 2 block 32
// arg: inout u32 2 value 0

extern "C" __global__ void flags_between_blocks(unsigned *words) {
    if (threadIdx.x) return;
    unsigned own = blockIdx.x, seen;
    for (unsigned round = 0; round < 100; round++) {
        do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(words) : "memory");
        while (seen != 2 * round + own);
        words[1] = words[1] * 5 + own + 1;
        asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(words), "r"(seen + 1) : "memory");
    }
}
