// A spin lock that one thread of each warp takes, around a counter without atomics.
// launch: spin_lock_warp grid 4 block 128
// arg: inout u32 1 value 0
// arg: inout u32 1 value 0

extern "C" __global__ void spin_lock_warp(unsigned *lock, volatile unsigned *count) {
    if (threadIdx.x % 32) return;
    for (int round = 0; round < 5; round++) {
        while (atomicCAS(lock, 0, 1) != 0) {}
        __threadfence();
        *count = *count + 1;
        __threadfence();
        atomicExch(lock, 0);
    }
}
