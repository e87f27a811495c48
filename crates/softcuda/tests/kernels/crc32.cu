// The check sum of Ethernet, a row of bytes a thread, with a table that the kernel makes in shared memory.
// launch: crc32 grid 1 block 32
// arg: out u32 32
// arg: in u8 1024 random 42

extern "C" __global__ void crc32(unsigned *out, const unsigned char *bytes) {
    __shared__ unsigned table[256];
    for (unsigned entry = threadIdx.x; entry < 256; entry += 32) {
        unsigned value = entry;
        for (int bit = 0; bit < 8; bit++) value = value & 1 ? value >> 1 ^ 0xedb88320u : value >> 1;
        table[entry] = value;
    }
    __syncthreads();
    unsigned sum = ~0u;
    for (unsigned k = 0; k <= threadIdx.x; k++) sum = sum >> 8 ^ table[(sum ^ bytes[threadIdx.x * 32 + k]) & 255];
    out[threadIdx.x] = ~sum;
}
