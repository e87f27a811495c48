// Boxes that take every second or third row. The step of the first dimension has no effect.
// compile: compute_90a
// launch: tensor_steps grid 1 block 32
// arg: out u32 1280
// arg: in u32 4096 iota

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
#define WORDS 256
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

extern "C" __global__ void tensor_steps(unsigned *out, const unsigned *in) {
    __shared__ __align__(1024) unsigned words[WORDS];
    __shared__ unsigned long long barrier;
    unsigned phase = 0, bytes;
    int x = 0, y = 0, z = 0;
    for (unsigned word = threadIdx.x; word < WORDS; word += 32) words[word] = 0xcafe0000 + word;
    if (threadIdx.x == 0) start(&barrier, 1);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();

    x = 4, y = 2;
    void *rows = describe<2, 2, 0, 0>(0, in, {{64, 0, 16, 1}, {64, 256, 16, 3}});
    bytes = 64 * 6;
    LOAD("2d", rows, "%3, %4")
    y = 55;
    LOAD("2d", rows, "%3, %4")
    void *columns = describe<2, 2, 0, 0>(1, in, {{64, 0, 16, 2}, {64, 256, 8, 2}});
    bytes = 64 * 4;
    y = 5;
    LOAD("2d", columns, "%3, %4")
    x = 52;
    LOAD("2d", columns, "%3, %4")
    x = -4;
    LOAD("2d", columns, "%3, %4")
}
