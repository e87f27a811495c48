// Boxes of tensors of one to five dimensions, inside the tensor and beyond its ends.
// compile: compute_90a
// launch: tensor_tiles grid 1 block 32
// arg: out u32 2048
// arg: in u32 4096 noise 16

__device__ unsigned at_shared(const void *pointer) { return (unsigned)__cvta_generic_to_shared(pointer); }

__device__ void start(unsigned long long *barrier, unsigned count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1; fence.mbarrier_init.release.cluster; fence.proxy.async;" ::"r"(
                     at_shared(barrier)),
                 "r"(count)
                 : "memory");
}

__device__ void expect(unsigned long long *barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at_shared(barrier)), "r"(bytes) : "memory");
}

__device__ void wait(unsigned long long *barrier, unsigned parity) {
    asm volatile(
        "{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra again; }" ::"r"(at_shared(barrier)),
        "r"(parity)
        : "memory");
}

__device__ __align__(128) unsigned char maps[16][128];

#define NUMBER(field, value) \
    asm volatile("tensormap.replace.tile." field ".shared::cta.b1024.b32 [%0], %1;" ::"l"(at), "r"(value) : "memory")
#define CHOICE(field, value) \
    asm volatile("tensormap.replace.tile." field ".shared::cta.b1024.b32 [%0], %1;" ::"l"(at), "n"(value) : "memory")
#define EACH(field, value)                                                                                                 \
    asm volatile("tensormap.replace.tile." field ".shared::cta.b1024.b32 [%0], %1, %2;" ::"l"(at), "n"(D), "r"(value) : "memory")

/// A dimension: elements, bytes from one to the next, extent and steps of a box.
struct Dimension {
    unsigned size;
    unsigned long long stride;
    unsigned box, step;
};

template <int D> __device__ void dimension(unsigned long long at, const Dimension &it) {
    EACH("global_dim", it.size);
    EACH("box_dim", it.box);
    EACH("element_stride", it.step);
    if constexpr (D > 0)
        asm volatile("tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%0], %1, %2;" ::"l"(at), "n"(D - 1), "l"(it.stride)
                     : "memory");
}

/// Builds a tensor map with a whole warp.
template <int Rank, int Element, int Swizzle, int Fill>
__device__ void *describe(int number, const void *start, const Dimension (&all)[Rank]) {
    __shared__ __align__(128) unsigned map[32];
    unsigned long long at = at_shared(map);
    __syncwarp();
    map[threadIdx.x % 32] = 0;
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
        asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"l"(at), "l"(start) : "memory");
        NUMBER("rank", Rank - 1);
        dimension<0>(at, all[0]);
        if constexpr (Rank > 1) dimension<1>(at, all[1]);
        if constexpr (Rank > 2) dimension<2>(at, all[2]);
        if constexpr (Rank > 3) dimension<3>(at, all[3]);
        if constexpr (Rank > 4) dimension<4>(at, all[4]);
        CHOICE("elemtype", Element);
        CHOICE("interleave_layout", 0);
        CHOICE("swizzle_mode", Swizzle);
        CHOICE("fill_mode", Fill);
    }
    __syncwarp();
    void *to = maps[number];
    asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;" ::"l"(to),
                 "l"(at)
                 : "memory");
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(to) : "memory");
    return to;
}

/// Words of shared memory that are recorded after each copy.
#define WORDS 128
#define LOAD(dimensions, map, ...)                                                                                    \
    if (threadIdx.x == 0) {                                                                                           \
        expect(&barrier, bytes);                                                                                      \
        asm volatile("cp.async.bulk.tensor." dimensions                                                               \
                     ".shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {" __VA_ARGS__ "}], [%2];" ::"r"( \
                         at_shared(words)),                                                                           \
                     "l"(map), "r"(at_shared(&barrier)), "r"(x), "r"(y), "r"(z)                                       \
                     : "memory");                                                                                     \
    }                                                                                                                 \
    wait(&barrier, phase++ & 1);                                                                                      \
    for (unsigned word = threadIdx.x; word < WORDS; word += 32) {                                                     \
        out[word] = words[word];                                                                                      \
        words[word] = 0xcafe0000 + word;                                                                              \
    }                                                                                                                 \
    out += WORDS;                                                                                                     \
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");                                                      \
    __syncwarp();

extern "C" __global__ void tensor_tiles(unsigned *out, const unsigned *in) {
    __shared__ __align__(1024) unsigned words[WORDS];
    __shared__ unsigned long long barrier;
    unsigned phase = 0, bytes;
    int x = 0, y = 0, z = 0;
    for (unsigned word = threadIdx.x; word < WORDS; word += 32) words[word] = 0xcafe0000 + word;
    if (threadIdx.x == 0) start(&barrier, 1);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();

    // 100 bytes, boxes of 32.
    void *line = describe<1, 0, 0, 0>(0, in, {{100, 0, 32, 1}});
    bytes = 32;
    x = 16;
    LOAD("1d", line, "%3")
    x = 80;
    LOAD("1d", line, "%3")
    x = -16;
    LOAD("1d", line, "%3")
    x = 208;
    LOAD("1d", line, "%3")
    // 30 by 20 words in rows of 128 bytes, boxes of 16 by 8.
    void *plane = describe<2, 2, 0, 0>(1, in + 4, {{30, 0, 16, 1}, {20, 128, 8, 1}});
    bytes = 512;
    x = 4, y = 2;
    LOAD("2d", plane, "%3, %4")
    x = 20, y = 15;
    LOAD("2d", plane, "%3, %4")
    x = -8, y = -3;
    LOAD("2d", plane, "%3, %4")
    x = 8, y = 40;
    LOAD("2d", plane, "%3, %4")
    // 16 by 8 by 7 halves, boxes of 8 by 4 by 3.
    void *space = describe<3, 1, 0, 0>(2, in + 8, {{16, 0, 8, 1}, {8, 48, 4, 1}, {7, 400, 3, 1}});
    bytes = 192;
    x = 8, y = 1, z = 2;
    LOAD("3d", space, "%3, %4, %5")
    x = 8, y = 6, z = 6;
    LOAD("3d", space, "%3, %4, %5")
    x = -8, y = -1, z = -1;
    LOAD("3d", space, "%3, %4, %5")
    void *four = describe<4, 2, 0, 0>(3, in, {{8, 0, 4, 1}, {4, 32, 2, 1}, {3, 128, 2, 1}, {6, 384, 3, 1}});
    bytes = 192;
    x = 4, y = 1, z = 4;
    LOAD("4d", four, "%3, %4, %4, %5")
    x = -4, y = 2, z = -1;
    LOAD("4d", four, "%3, %4, %4, %5")
    void *five = describe<5, 2, 0, 0>(4, in, {{8, 0, 4, 1}, {4, 32, 2, 1}, {3, 128, 2, 1}, {2, 384, 2, 1}, {4, 768, 3, 1}});
    bytes = 384;
    x = 4, y = 1, z = 2;
    LOAD("5d", five, "%3, %4, %4, %4, %5")
    x = 8, y = 0, z = -2;
    LOAD("5d", five, "%3, %4, %4, %4, %5")
}
