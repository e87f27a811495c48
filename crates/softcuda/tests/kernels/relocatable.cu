// Compiled as a part of a larger program: functions that could be called from elsewhere.
// compile: --relocatable-device-code=true -lineinfo
// launch: relocatable grid 1 block 32
// arg: out u32 32

__device__ unsigned shared_by_all = 3;
__device__ unsigned visible_function(unsigned x) { return x * shared_by_all; }
static __device__ unsigned hidden = 4;
template <typename T> __device__ __noinline__ T twice(T x) { return x + x; }

extern "C" __global__ void relocatable(unsigned *out) {
    out[threadIdx.x] = visible_function(threadIdx.x) + twice(hidden) + (unsigned)twice(1.5f);
}
