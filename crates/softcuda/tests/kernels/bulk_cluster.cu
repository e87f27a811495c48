// Bulk copies within a cluster, and one from global memory to several blocks of it.
// compile: compute_90
// launch: bulk_cluster grid 8 block 32
// arg: out u32 4096
// arg: in u32 4096 noise 12

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

extern "C" __global__ void __cluster_dims__(4, 1, 1) bulk_cluster(unsigned *out, const unsigned *in) {
    __shared__ __align__(128) unsigned words[512];
    __shared__ unsigned long long barriers[2];
    unsigned i = threadIdx.x, rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    for (unsigned word = i; word < 512; word += 32) words[word] = rank * 1000 + word;
    if (i == 0) {
        start(barriers, 1);
        start(barriers + 1, 1);
        expect(barriers, 256);
        // From ranks 0 and 2.
        expect(barriers + 1, rank % 2 ? 640 + 128 : 640);
    }
    asm volatile("fence.proxy.async; barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
    if (i == 0) {
        unsigned to, barrier, next = (rank + 1) % 4;
        asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(at_shared(words + 64)), "r"(next));
        asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(barrier) : "r"(at_shared(barriers)), "r"(next));
        asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" ::"r"(to),
                     "r"(at_shared(words)), "r"(barrier)
                     : "memory");
        if (rank == 0)
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], 640, [%2], %3;" ::"r"(
                    at_shared(words + 128)),
                "l"(in + blockIdx.x / 4 * 2048), "r"(at_shared(barriers + 1)), "h"((short)0xf)
                : "memory");
        if (rank == 2)
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], 128, [%2], %3;" ::"r"(
                    at_shared(words + 320)),
                "l"(in + 512 + blockIdx.x / 4 * 2048), "r"(at_shared(barriers + 1)), "h"((short)0xa)
                : "memory");
    }
    wait(barriers, 0);
    wait(barriers + 1, 0);
    asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
    for (unsigned word = i; word < 512; word += 32) out[blockIdx.x * 512 + word] = words[word];
}
