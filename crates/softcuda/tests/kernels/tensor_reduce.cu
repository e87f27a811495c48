// Boxes that are combined with those of a tensor.
// compile: compute_90a
// launch: tensor_reduce grid 1 block 32
// arg: inout u32 13312 noise 19
// arg: in u32 256 noise 20
// compare: any-nan

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

#define REDUCE(op, map)                                                                                               \
    if (threadIdx.x == 0) {                                                                                           \
        asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta." op ".tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map), \
                     "r"(at_shared(words)), "r"(x), "r"(y)                                                            \
                     : "memory");                                                                                     \
        asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");                         \
    }                                                                                                                 \
    __syncwarp();

extern "C" __global__ void tensor_reduce(unsigned *out, const unsigned *in) {
    __shared__ __align__(1024) unsigned words[256];
    for (unsigned word = threadIdx.x; word < 256; word += 32) words[word] = in[word];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
    int x = 0, y = 0;
    x = 8, y = 6;
    void *map0 = describe<2, 2, 0, 0>(0, out + 0, {{24, 0, 16, 1}, {12, 128, 8, 1}});
    REDUCE("add", map0)
    void *map1 = describe<2, 3, 0, 0>(1, out + 512, {{24, 0, 16, 1}, {12, 128, 8, 1}});
    REDUCE("add", map1)
    void *map2 = describe<2, 4, 0, 0>(2, out + 1024, {{12, 0, 8, 1}, {12, 128, 8, 1}});
    REDUCE("add", map2)
    void *map3 = describe<2, 6, 0, 0>(3, out + 1536, {{48, 0, 32, 1}, {12, 128, 8, 1}});
    REDUCE("add", map3)
    void *map4 = describe<2, 7, 0, 0>(4, out + 2048, {{24, 0, 16, 1}, {12, 128, 8, 1}});
    REDUCE("add", map4)
    void *map5 = describe<2, 10, 0, 0>(5, out + 2560, {{48, 0, 32, 1}, {12, 128, 8, 1}});
    REDUCE("add", map5)
    void *map6 = describe<2, 2, 0, 0>(6, out + 3072, {{24, 0, 16, 1}, {12, 128, 8, 1}});
    REDUCE("min", map6)
    void *map7 = describe<2, 3, 0, 0>(7, out + 3584, {{24, 0, 16, 1}, {12, 128, 8, 1}});
    REDUCE("min", map7)
    void *map8 = describe<2, 4, 0, 0>(8, out + 4096, {{12, 0, 8, 1}, {12, 128, 8, 1}});
    REDUCE("min", map8)
    void *map9 = describe<2, 6, 0, 0>(9, out + 4608, {{48, 0, 32, 1}, {12, 128, 8, 1}});
    REDUCE("min", map9)
    void *map10 = describe<2, 10, 0, 0>(10, out + 5120, {{48, 0, 32, 1}, {12, 128, 8, 1}});
    REDUCE("min", map10)
    void *map11 = describe<2, 2, 0, 0>(11, out + 5632, {{24, 0, 16, 1}, {12, 128, 8, 1}});
    REDUCE("max", map11)
    void *map12 = describe<2, 3, 0, 0>(12, out + 6144, {{24, 0, 16, 1}, {12, 128, 8, 1}});
    REDUCE("max", map12)
    void *map13 = describe<2, 4, 0, 0>(13, out + 6656, {{12, 0, 8, 1}, {12, 128, 8, 1}});
    REDUCE("max", map13)
    void *map14 = describe<2, 6, 0, 0>(14, out + 7168, {{48, 0, 32, 1}, {12, 128, 8, 1}});
    REDUCE("max", map14)
    void *map15 = describe<2, 10, 0, 0>(15, out + 7680, {{48, 0, 32, 1}, {12, 128, 8, 1}});
    REDUCE("max", map15)
    void *map16 = describe<2, 2, 0, 0>(0, out + 8192, {{24, 0, 16, 1}, {12, 128, 8, 1}});
    REDUCE("and", map16)
    void *map17 = describe<2, 4, 0, 0>(1, out + 8704, {{12, 0, 8, 1}, {12, 128, 8, 1}});
    REDUCE("and", map17)
    void *map18 = describe<2, 2, 0, 0>(2, out + 9216, {{24, 0, 16, 1}, {12, 128, 8, 1}});
    REDUCE("or", map18)
    void *map19 = describe<2, 4, 0, 0>(3, out + 9728, {{12, 0, 8, 1}, {12, 128, 8, 1}});
    REDUCE("or", map19)
    void *map20 = describe<2, 2, 0, 0>(4, out + 10240, {{24, 0, 16, 1}, {12, 128, 8, 1}});
    REDUCE("xor", map20)
    void *map21 = describe<2, 4, 0, 0>(5, out + 10752, {{12, 0, 8, 1}, {12, 128, 8, 1}});
    REDUCE("xor", map21)
    void *map22 = describe<2, 2, 0, 0>(6, out + 11264, {{24, 0, 16, 1}, {12, 128, 8, 1}});
    REDUCE("inc", map22)
    void *map23 = describe<2, 2, 0, 0>(7, out + 11776, {{24, 0, 16, 1}, {12, 128, 8, 1}});
    REDUCE("dec", map23)
    void *map24 = describe<2, 5, 0, 0>(8, out + 12288, {{12, 0, 8, 1}, {12, 128, 8, 1}});
    REDUCE("min", map24)
    void *map25 = describe<2, 5, 0, 0>(9, out + 12800, {{12, 0, 8, 1}, {12, 128, 8, 1}});
    REDUCE("max", map25)
}
