// cp.async of 4, 8 and 16 bytes into shared memory, in groups; bytes beyond the source's size are zero.
// launch: cp_async grid 1 block 32
// arg: out u32 384
// arg: in u32 384 noise 63

extern "C" __global__ void cp_async(unsigned *out, const unsigned *in) {
    __shared__ __align__(16) unsigned words[384];
    unsigned i = threadIdx.x, base = (unsigned)__cvta_generic_to_shared(words);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(base + 4 * i), "l"(in + i) : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(base + 128 + 8 * i), "l"(in + 32 + 2 * i) : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(base + 384 + 16 * i), "l"(in + 96 + 4 * i) : "memory");
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(base + 896 + 16 * i), "l"(in + 224 + 4 * i),
                 "r"(i % 17)
                 : "memory");
    words[352 + i] = 0;
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    unsigned early = words[i];
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    for (unsigned k = 0; k < 352; k += 32) out[k + i] = words[k + 31 - i];
    out[352 + i] = early;
}
