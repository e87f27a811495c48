// redux.sync of every type in parts of a warp, and where values wrap.
// launch: redux_masks grid 1 block 96
// arg: out u32 2016

__device__ unsigned noise(unsigned i) {
    i = (i + 1) * 2654435761u;
    i = (i ^ i >> 15) * 2246822519u;
    return i ^ i >> 13;
}

#define OP(text)                                                                                    \
    asm volatile("redux.sync." text " %0, %1, %2;" : "=r"(d) : "r"(x), "r"(mask));                   \
    out[n++ * 96 + t] = d;
#define ALL OP("add.u32") OP("add.s32") OP("min.u32") OP("min.s32") OP("max.u32") OP("max.s32") OP("and.b32") OP("or.b32") OP("xor.b32")

extern "C" __global__ void redux_masks(unsigned *out) {
    unsigned t = threadIdx.x, lane = t % 32, n = 0, d, mask = 0xffffffff, x = noise(t);
    ALL
    if (lane < 8) {
        mask = 0xff, x = lane == 3 ? 0x80000000 : 5;
        ALL
    } else if (lane % 3 == 0) {
        mask = 0x49249200, x = ~(1u << lane);
        ALL
    } else if (lane == 31) {
        mask = 0x80000000;
        OP("add.s32")
        OP("min.s32")
    }
    if (t >= 64) {
        n = 18, mask = 0xffffffff, x = 0xffffffff;
        OP("add.u32")
        OP("max.s32")
        OP("max.u32")
    }
}
