// cvta, isspacep and generic addresses: one function writes through pointers into every state space.
// launch: state_spaces grid 1 block 32
// arg: out u32 320
// arg: in u32 32 iota

__device__ unsigned in_global[32];
__constant__ unsigned in_constant[4] = {3, 5, 7, 11};

__device__ __noinline__ unsigned bump(unsigned *at, unsigned by) {
    *at += by;
    return *at;
}

__device__ __noinline__ unsigned kind(const void *at) {
    unsigned d;
    asm volatile(
        "{.reg .pred p; .reg .u32 t;\n\t"
        "isspacep.global p, %1; selp.u32 %0, 1, 0, p;\n\t"
        "isspacep.shared p, %1; selp.u32 t, 2, 0, p; or.b32 %0, %0, t;\n\t"
        "isspacep.local p, %1; selp.u32 t, 4, 0, p; or.b32 %0, %0, t;\n\t"
        "isspacep.const p, %1; selp.u32 t, 8, 0, p; or.b32 %0, %0, t;}"
        : "=r"(d)
        : "l"(at));
    return d;
}

extern "C" __global__ void state_spaces(unsigned *out, unsigned *in) {
    __shared__ unsigned in_shared[32];
    unsigned i = threadIdx.x, own[4] = {i, 2 * i, 3 * i, 4 * i};
    in_shared[i] = 100 * i;
    in_global[i] = 1000 * i;
    out[i] = bump(&in_shared[i], 1);
    out[32 + i] = bump(&in_global[i], 2);
    out[64 + i] = bump(&own[i % 4], 3);
    out[96 + i] = own[0] + own[1] + own[2] + own[3];
    out[128 + i] = kind(&in_shared[i]) | kind(&in_global[i]) << 4 | kind(own) << 8 | kind(in_constant) << 12 |
                   kind(in) << 16;
    unsigned long long back, again;
    unsigned *shared_at = &in_shared[i];
    asm volatile("cvta.to.shared.u64 %0, %2; cvta.shared.u64 %1, %0;" : "=l"(back), "=l"(again) : "l"(shared_at));
    out[160 + i] = again == (unsigned long long)shared_at;
    asm volatile("cvta.to.local.u64 %0, %2; cvta.local.u64 %1, %0;" : "=l"(back), "=l"(again) : "l"(&own[1]));
    out[192 + i] = again == (unsigned long long)&own[1];
    asm volatile("cvta.to.const.u64 %0, %2; cvta.const.u64 %1, %0;" : "=l"(back), "=l"(again) : "l"(&in_constant[2]));
    out[224 + i] = *(unsigned *)again;
    asm volatile("cvta.to.global.u64 %0, %2; cvta.global.u64 %1, %0;" : "=l"(back), "=l"(again) : "l"(in + i));
    out[256 + i] = *(unsigned *)again;
    out[288 + i] = in_constant[i % 4];
}
