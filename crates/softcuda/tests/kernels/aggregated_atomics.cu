// One atomic for all lanes that pass, found by their mask; each gets its own place.
// launch: aggregated_atomics grid 4 block 64
// arg: inout u32 1 value 0
// arg: out u32 256
// arg: in u32 256 random 71
// compare: 1 sorted

extern "C" __global__ void aggregated_atomics(unsigned *count, unsigned *out, const unsigned *in) {
    unsigned value = in[blockIdx.x * blockDim.x + threadIdx.x];
    if (value & 1) {
        unsigned members = __activemask(), lane = threadIdx.x % 32, leader = __ffs(members) - 1, base = 0;
        if (lane == leader) base = atomicAdd(count, __popc(members));
        base = __shfl_sync(members, base, leader);
        out[base + __popc(members & ((1u << lane) - 1))] = value;
    }
}
