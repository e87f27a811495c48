// cp.async with a predicate: where it is true the source is not read, and zeros are written.
// launch: cp_async_ignore grid 1 block 64
// arg: out u32 704
// arg: in u32 512 noise 83


extern "C" __global__ void cp_async_ignore(unsigned *out, const unsigned *in) {
    __shared__ __align__(16) unsigned words[704];
    unsigned t = threadIdx.x, at = (unsigned)__cvta_generic_to_shared(words);
    for (unsigned j = t; j < 704; j += 64) words[j] = 0xeeeeeeee;
    __syncthreads();
    asm volatile("{.reg .pred p; setp.eq.u32 p, %2, 0; cp.async.ca.shared.global [%0], [%1], 4, p;}" ::"r"(at + 4 * t), "l"(in + t), "r"(t % 3) : "memory");
    asm volatile("{.reg .pred p; setp.eq.u32 p, %2, 0; cp.async.ca.shared.global [%0+256], [%1], 8, p;}" ::"r"(at + 8 * t), "l"(in + 2 * t), "r"(t % 2) : "memory");
    asm volatile("{.reg .pred p; setp.eq.u32 p, %2, 0; cp.async.cg.shared.global [%0+768], [%1], 16, p;}" ::"r"(at + 16 * t), "l"(in + 4 * t), "r"(t % 5) : "memory");
    // Lanes that read nothing have an address in common.
    const unsigned *where = t % 4 ? in + 256 + 4 * t : in;
    asm volatile("{.reg .pred p; setp.eq.u32 p, %2, 0; cp.async.ca.shared.global [%0+1792], [%1], 16, p;}" ::"r"(at + 16 * t), "l"(where), "r"(t % 4) : "memory");
    asm volatile("cp.async.commit_group; cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    for (unsigned j = t; j < 704; j += 64) out[j] = words[j];
}
