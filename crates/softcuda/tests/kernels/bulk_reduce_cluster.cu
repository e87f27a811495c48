// Bulk reductions to shared memory of another block of the cluster.
// compile: compute_90
// launch: bulk_reduce_cluster grid 2 block 32
// arg: out u32 768
// arg: in u32 768 noise 15

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

#define REDUCE(number, what)                                                                                              \
    asm volatile("cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes." what " [%0], [%1], 128, [%2];" ::"r"( \
                     to + number * 128),                                                                                  \
                 "r"(at_shared(own + number * 32)), "r"(barrier)                                                          \
                 : "memory");

extern "C" __global__ void __cluster_dims__(2, 1, 1) bulk_reduce_cluster(unsigned *out, const unsigned *in) {
    __shared__ __align__(128) unsigned words[384], own[384];
    __shared__ unsigned long long done;
    unsigned i = threadIdx.x, rank = blockIdx.x;
    for (unsigned word = i; word < 384; word += 32) {
        words[word] = in[rank * 384 + word];
        own[word] = in[(1 - rank) * 384 + word] >> 3;
    }
    if (i == 0) {
        start(&done, 1);
        expect(&done, 384 * 4);
    }
    asm volatile("fence.proxy.async; barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
    if (i == 0) {
        unsigned to, barrier;
        asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(at_shared(words)), "r"(1 - rank));
        asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(barrier) : "r"(at_shared(&done)), "r"(1 - rank));
        REDUCE(0, "and.b32")
        REDUCE(1, "or.b32")
        REDUCE(2, "xor.b32")
        REDUCE(3, "add.u32")
        REDUCE(4, "add.s32")
        REDUCE(5, "add.u64")
        REDUCE(6, "inc.u32")
        REDUCE(7, "dec.u32")
        REDUCE(8, "min.u32")
        REDUCE(9, "min.s32")
        REDUCE(10, "max.u32")
        REDUCE(11, "max.s32")
    }
    wait(&done, 0);
    asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
    for (unsigned word = i; word < 384; word += 32) out[rank * 384 + word] = words[word];
}
