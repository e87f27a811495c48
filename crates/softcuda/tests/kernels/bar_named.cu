// Several named barriers: halves of a block meet by themselves, in loops of different lengths.
// launch: bar_named grid 1 block 128
// arg: out u32 128

extern "C" __global__ void bar_named(unsigned *out) {
    __shared__ unsigned words[128];
    unsigned i = threadIdx.x, half = i / 64, base = half * 64, own = i - base;
    words[i] = i;
    unsigned rounds = half ? 7 : 3;
    for (unsigned round = 0; round < rounds; round++) {
        asm volatile("bar.sync %0, 64;" ::"r"(half + 1) : "memory");
        unsigned next = words[base + (own + 1) % 64];
        asm volatile("barrier.sync.aligned %0, 64;" ::"r"(half + 1) : "memory");
        words[i] = next + round;
    }
    asm volatile("barrier.sync 0;" ::: "memory");
    out[i] = words[i] + words[127 - i];
}
