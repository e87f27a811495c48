// Clocks only go forward: the cycle counter of 32 and 64 bits, and the timer of the whole device, across a pause.
// launch: clocks grid 1 block 32
// arg: out u32 128

extern "C" __global__ void clocks(unsigned *out) {
    unsigned i = threadIdx.x, c0, c1;
    unsigned long long l0, l1, t0, t1;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t0)::"memory");
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(l0)::"memory");
    asm volatile("mov.u32 %0, %%clock;" : "=r"(c0)::"memory");
    for (int round = 0; round < 20; round++) asm volatile("nanosleep.u32 1000;" ::: "memory");
    asm volatile("mov.u32 %0, %%clock;" : "=r"(c1)::"memory");
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(l1)::"memory");
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t1)::"memory");
    out[i] = c1 != c0;
    out[32 + i] = l1 > l0;
    out[64 + i] = t1 >= t0;
    unsigned high;
    asm volatile("mov.u32 %0, %%globaltimer_hi;" : "=r"(high));
    out[96 + i] = high - (unsigned)(t0 >> 32) <= 1;
}
