// memcpy and memset as the compiler expands them, of structs and of arrays.
// launch: memory_functions grid 1 block 16
// arg: out u32 512
// arg: in u32 512 noise 74

struct Block {
    unsigned words[23];
    unsigned char bytes[7];
};

extern "C" __global__ void memory_functions(unsigned *out, const unsigned *in) {
    Block a, b;
    memcpy(&a, in + 32 * threadIdx.x, sizeof a);
    memset(&b, 0x5a, sizeof b);
    b = threadIdx.x % 2 ? a : b;
    memcpy(b.bytes, a.words + threadIdx.x % 16, 6);
    memcpy(out + 32 * threadIdx.x, &b, sizeof b - 1);
}
