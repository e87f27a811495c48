// Bulk reductions to global memory, of every operation and type.
// compile: compute_90
// launch: bulk_reduce grid 1 block 32
// arg: inout u32 1728 noise 13
// arg: in u32 1728 noise 14
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

#define REDUCE(number, what)                                                                                     \
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group." what " [%0], [%1], 256;" ::"l"(out + number * 64), \
                 "r"(at_shared(words + number * 64))                                                             \
                 : "memory");

extern "C" __global__ void bulk_reduce(unsigned *out, const unsigned *in) {
    __shared__ __align__(128) unsigned words[1728];
    for (unsigned word = threadIdx.x; word < 1728; word += 32) words[word] = in[word];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
    if (threadIdx.x) return;
    REDUCE(0, "add.u32")
    REDUCE(1, "add.s32")
    REDUCE(2, "add.u64")
    REDUCE(3, "add.f32")
    REDUCE(4, "add.f64")
    REDUCE(5, "add.noftz.f16")
    REDUCE(6, "add.noftz.bf16")
    REDUCE(7, "min.u32")
    REDUCE(8, "min.s32")
    REDUCE(9, "min.u64")
    REDUCE(10, "min.s64")
    REDUCE(11, "min.f16")
    REDUCE(12, "min.bf16")
    REDUCE(13, "max.u32")
    REDUCE(14, "max.s32")
    REDUCE(15, "max.u64")
    REDUCE(16, "max.s64")
    REDUCE(17, "max.f16")
    REDUCE(18, "max.bf16")
    REDUCE(19, "inc.u32")
    REDUCE(20, "dec.u32")
    REDUCE(21, "and.b32")
    REDUCE(22, "and.b64")
    REDUCE(23, "or.b32")
    REDUCE(24, "or.b64")
    REDUCE(25, "xor.b32")
    REDUCE(26, "xor.b64")
    asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; cp.async.bulk.wait_group 0;" ::: "memory");
}
