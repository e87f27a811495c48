// match.any and match.all in parts of a warp.
// launch: match_masks grid 1 block 64
// arg: out u32 512

__device__ unsigned noise(unsigned i) {
    i = (i + 1) * 2654435761u;
    i = (i ^ i >> 15) * 2246822519u;
    return i ^ i >> 13;
}

#define ANY(k, mask, x) \
    asm volatile("match.any.sync.b32 %0, %1, %2;" : "=r"(d) : "r"(x), "r"(mask)); \
    out[k * 64 + t] = d;
#define WIDE(k, mask, x) \
    asm volatile("match.any.sync.b64 %0, %1, %2;" : "=r"(d) : "l"(x), "r"(mask)); \
    out[k * 64 + t] = d;
#define EVERY(k, mask, x) \
    asm volatile("{.reg .pred q; match.all.sync.b32 %0|q, %2, %3; selp.u32 %1, 1, 0, q;}" : "=r"(d), "=r"(p) : "r"(x), "r"(mask)); \
    out[k * 64 + t] = d ^ p << 31;

extern "C" __global__ void match_masks(unsigned *out) {
    unsigned t = threadIdx.x, lane = t % 32, d, p, x = noise(t) % 4;
    ANY(0, 0xffffffffu, x)
    if (lane < 16) {
        ANY(1, 0xffffu, x / 2)
        EVERY(2, 0xffffu, 7u)
        EVERY(3, 0xffffu, lane / 15)
    } else {
        ANY(1, 0xffff0000u, lane % 5)
        EVERY(2, 0xffff0000u, t / 32)
        EVERY(3, 0xffff0000u, lane)
    }
    unsigned long long y = (unsigned long long)x << 40 | lane % 2;
    WIDE(4, 0xffffffffu, y)
    if (lane % 3) {
        WIDE(5, 0xb6db6db6u, y >> 32)
        EVERY(6, 0xb6db6db6u, (unsigned)(lane > 40))
    }
    asm volatile("match.all.sync.b64 %0, %1, 0xffffffff;" : "=r"(d) : "l"(y & 0));
    out[448 + t] = d;
}
