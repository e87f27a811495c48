// Bulk copies between global and shared memory: sizes, several threads, one barrier for several copies, groups.
// compile: compute_90
// launch: bulk_copy grid 2 block 64
// arg: out u32 4096
// arg: in u32 4096 noise 11

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

extern "C" __global__ void bulk_copy(unsigned *out, const unsigned *in) {
    __shared__ __align__(128) unsigned words[2048];
    __shared__ unsigned long long barrier;
    unsigned i = threadIdx.x, block = blockIdx.x * 2048;
    for (unsigned word = i; word < 2048; word += 64) words[word] = word;
    if (i == 0) start(&barrier, 1);
    __syncthreads();
    if (i == 0) {
        expect(&barrier, 16 + 32 + 4000);
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 16, [%2];" ::"r"(at_shared(words)),
                     "l"(in + block + 4), "r"(at_shared(&barrier))
                     : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %3, [%2];" ::"r"(at_shared(words + 8)),
                     "l"(in + block + 1000), "r"(at_shared(&barrier)), "r"(32)
                     : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %3, [%2];" ::"r"(at_shared(words + 20)),
                     "l"(in + block), "r"(at_shared(&barrier)), "r"(4000)
                     : "memory");
    }
    wait(&barrier, 0);
    // Each of four threads copies its part back.
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (i % 16 == 0) {
        unsigned part = i / 16 * 400;
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(out + block + part), "r"(at_shared(words + part)),
                     "r"(i == 48 ? 3136 : 1600)
                     : "memory");
        asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
    }
}
