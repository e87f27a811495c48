// trap, brkpt and a failing assert on paths that no thread takes, and a function that does not return.
// launch: never_taken grid 1 block 32
// arg: out u32 32
// arg: value u32 5

__device__ __noinline__ void stop(unsigned x) {
    if (x == 7) asm volatile("trap;");
    asm volatile("exit;");
}

extern "C" __global__ void never_taken(unsigned *out, unsigned five) {
    unsigned i = threadIdx.x;
    if (five == 6) asm volatile("trap;");
    if (five == 7) asm volatile("brkpt;");
    if (i == 40) __trap();
    out[i] = i * five;
    if (i > 20) stop(i);
    out[i] += 1000;
}
