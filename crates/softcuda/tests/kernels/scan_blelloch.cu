// A running sum without the element itself: up the tree and down again.
// launch: scan_blelloch grid 1 block 128
// arg: out u32 256
// arg: in u32 256 random 33

extern "C" __global__ void scan_blelloch(unsigned *out, const unsigned *in) {
    __shared__ unsigned tree[256];
    unsigned thread = threadIdx.x, offset = 1;
    tree[2 * thread] = in[2 * thread];
    tree[2 * thread + 1] = in[2 * thread + 1];
    for (unsigned width = 128; width > 0; width /= 2) {
        __syncthreads();
        if (thread < width) tree[offset * (2 * thread + 2) - 1] += tree[offset * (2 * thread + 1) - 1];
        offset *= 2;
    }
    if (thread == 0) tree[255] = 0;
    for (unsigned width = 1; width < 256; width *= 2) {
        offset /= 2;
        __syncthreads();
        if (thread < width) {
            unsigned left = offset * (2 * thread + 1) - 1, right = offset * (2 * thread + 2) - 1, kept = tree[left];
            tree[left] = tree[right];
            tree[right] += kept;
        }
    }
    __syncthreads();
    out[2 * thread] = tree[2 * thread];
    out[2 * thread + 1] = tree[2 * thread + 1];
}
