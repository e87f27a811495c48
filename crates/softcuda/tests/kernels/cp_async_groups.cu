// cp.async in a pipeline of four stages, waiting for all groups but the last two, one or none.
// launch: cp_async_groups grid 2 block 64
// arg: out u32 4096
// arg: in u32 2048 noise 81


extern "C" __global__ void cp_async_groups(unsigned *out, const unsigned *in) {
    __shared__ __align__(16) unsigned stages[4][64 * 4];
    unsigned t = threadIdx.x, at = (unsigned)__cvta_generic_to_shared(stages);
    in += blockIdx.x * 1024;
    out += blockIdx.x * 2048;
    for (unsigned stage = 0; stage < 3; stage++) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at + stage * 1024 + t * 16), "l"(in + stage * 128 + t * 4) : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    for (unsigned step = 0; step < 8; step++) {
        if (step < 6) asm volatile("cp.async.wait_group 2;" ::: "memory");
        else if (step < 7) asm volatile("cp.async.wait_group 1;" ::: "memory");
        else asm volatile("cp.async.wait_group 0;" ::: "memory");
        __syncthreads();
        for (unsigned j = 0; j < 4; j++) out[step * 256 + j * 64 + t] = stages[step % 4][j * 64 + 63 - t];
        if (step + 3 < 7)
            asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(at + (step + 3) % 4 * 1024 + t * 16), "l"(in + (step + 3) * 128 + t * 4) : "memory");
        else if (step + 3 < 8)
            for (unsigned j = 0; j < 2; j++)
                asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(at + (step + 3) % 4 * 1024 + t * 16 + j * 8), "l"(in + t * 4 + j * 2) : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
}
