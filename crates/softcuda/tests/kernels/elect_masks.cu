// elect.sync in parts of a warp: one lane of each, which is a member.
// launch: elect_masks grid 1 block 64
// arg: out u32 256


#define ELECT(k, mask)                                                                                                \
    {                                                                                                                 \
        unsigned d, p;                                                                                                \
        asm volatile("{.reg .pred q; elect.sync %0|q, %2; selp.u32 %1, 1, 0, q;}" : "=r"(d), "=r"(p) : "r"(mask));    \
        unsigned chosen = __ballot_sync(mask, p);                                                                     \
        out[k * 64 + t] = __popc(chosen) | (chosen == 1u << d) << 8 | ((mask) >> d & 1) << 9;                         \
    }

extern "C" __global__ void elect_masks(unsigned *out) {
    unsigned t = threadIdx.x, lane = t % 32;
    ELECT(0, 0xffffffffu)
    if (lane % 2) ELECT(1, 0xaaaaaaaau) else ELECT(1, 0x55555555u)
    if (lane == 17) ELECT(2, 0x20000u)
    unsigned p;
    asm volatile("{.reg .pred q; elect.sync _|q, 0xffffffff; selp.u32 %0, 1, 0, q;}" : "=r"(p));
    out[192 + t] = __popc(__ballot_sync(0xffffffffu, p));
}
