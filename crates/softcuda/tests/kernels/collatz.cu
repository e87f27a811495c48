// Steps to one: loops of very different lengths in one warp.
// launch: collatz grid 2 block 100
// arg: out u16 200
// arg: inout u64 1 value 0

extern "C" __global__ void collatz(unsigned short *out, unsigned long long *highest) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long n = i + 1, top = n;
    unsigned short steps = 0;
    while (n != 1) {
        n = n & 1 ? 3 * n + 1 : n / 2;
        top = max(top, n);
        steps++;
    }
    out[i] = steps;
    atomicMax(highest, top);
}
