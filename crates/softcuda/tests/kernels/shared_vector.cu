// Vectors, bytes and halves in shared and local memory, read in other widths than they were written.
// launch: shared_vector grid 1 block 32
// arg: out u32 160
// arg: in u32 128 noise 124

extern "C" __global__ void shared_vector(unsigned *out, const uint4 *in) {
    __shared__ uint4 wide[32];
    unsigned i = threadIdx.x;
    wide[i] = in[i];
    __syncthreads();
    const unsigned short *halves = (const unsigned short *)wide;
    const signed char *bytes = (const signed char *)wide;
    out[i] = halves[i * 7 % 256] + (unsigned)bytes[511 - i * 11];
    out[32 + i] = ((const uint2 *)wide)[63 - i].y;
    uint4 own[2] = {wide[31 - i], wide[i]};
    out[64 + i] = ((unsigned *)own)[i % 8];
    out[96 + i] = ((unsigned char *)own)[i];
    volatile uint2 *pair = (volatile uint2 *)&wide[i];
    pair->x = i;
    out[128 + i] = pair->x + wide[i].y;
}
