// A spin lock for which all lanes of a warp contend: who has it goes on though the others spin.
// compile: compute_70
// launch: spin_lock_lanes grid 2 block 64
// arg: inout u32 1 value 0
// arg: inout u32 1 value 0

extern "C" __global__ void spin_lock_lanes(unsigned *lock, volatile unsigned *count) {
    while (atomicCAS(lock, 0, 1) != 0) {}
    __threadfence();
    *count = *count + threadIdx.x;
    __threadfence();
    atomicExch(lock, 0);
}
