// cp.async of 4, 8 and 16 bytes of which only the first are read: the others are zero.
// launch: cp_async_sizes grid 1 block 64
// arg: out u8 4096
// arg: in u8 2048 noise 82


extern "C" __global__ void cp_async_sizes(unsigned char *out, const unsigned char *in) {
    __shared__ __align__(16) unsigned char bytes[4096];
    unsigned t = threadIdx.x, at = (unsigned)__cvta_generic_to_shared(bytes);
    for (unsigned j = t; j < 4096; j += 64) bytes[j] = 0xee;
    __syncthreads();
    unsigned four = t % 5, eight = t % 9, sixteen = t % 17;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(at + 4 * t), "l"(in + 4 * t), "r"(four) : "memory");
    asm volatile("cp.async.ca.shared.global [%0+512], [%1], 8, %2;" ::"r"(at + 8 * t), "l"(in + 8 * t), "r"(eight) : "memory");
    asm volatile("cp.async.ca.shared.global.L2::64B [%0+1024], [%1], 16, %2;" ::"r"(at + 16 * t), "l"(in + 16 * t), "r"(sixteen) : "memory");
    asm volatile("cp.async.cg.shared.global.L2::256B [%0+2048], [%1], 16, %2;" ::"r"(at + 16 * t), "l"(in + 1024 + 16 * t), "r"(16 - sixteen % 17) : "memory");
    asm volatile("cp.async.ca.shared.global [%0+3072], [%1+16], 16, 0;" ::"r"(at + 16 * (t % 32)), "l"(in) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    for (unsigned j = t; j < 4096; j += 64) out[j] = bytes[j];
}
