// A warp that makes and a warp that takes: arrive on one barrier, wait on the other.
// launch: bar_producer_consumer grid 1 block 64
// arg: out u32 32
// arg: value u32 10

extern "C" __global__ void bar_producer_consumer(unsigned *out, unsigned rounds) {
    __shared__ unsigned box[32];
    unsigned lane = threadIdx.x % 32;
    if (threadIdx.x < 32) {
        for (unsigned round = 0; round < rounds; round++) {
            asm volatile("bar.sync 1, 64;" ::: "memory");
            box[lane] = round * 100 + lane;
            asm volatile("bar.arrive 2, 64;" ::: "memory");
        }
    } else {
        unsigned sum = 0;
        asm volatile("bar.arrive 1, 64;" ::: "memory");
        for (unsigned round = 0; round < rounds; round++) {
            asm volatile("bar.sync 2, 64;" ::: "memory");
            sum += box[31 - lane] * (round + 1);
            if (round + 1 < rounds) asm volatile("barrier.cta.arrive.aligned 1, 64;" ::: "memory");
        }
        out[lane] = sum;
    }
}
