// The same barrier reached from different places of the program by different warps.
// launch: barrier_two_places grid 1 block 64
// arg: out u32 64

extern "C" __global__ void barrier_two_places(unsigned *out) {
    __shared__ unsigned words[64];
    unsigned i = threadIdx.x;
    words[i] = i + 1;
    if (i < 32) {
        for (unsigned k = 0; k < 3; k++) asm volatile("barrier.sync 0;" ::: "memory");
        out[i] = words[i + 32];
    } else {
        asm volatile("barrier.sync 0;" ::: "memory");
        words[i] *= 10;
        asm volatile("barrier.sync 0;" ::: "memory");
        words[i] += words[i - 32];
        asm volatile("barrier.sync 0;" ::: "memory");
        out[i] = words[i];
    }
}
