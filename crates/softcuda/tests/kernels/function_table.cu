// Calls through a table of functions: by lane, and by a pointer made at run time.
// launch: function_table grid 1 block 32
// arg: out u32 64
// arg: in u32 32 random 68

typedef unsigned (*Function)(unsigned, unsigned);
__device__ __noinline__ unsigned plus(unsigned a, unsigned b) { return a + b; }
__device__ __noinline__ unsigned times(unsigned a, unsigned b) { return a * b; }
__device__ __noinline__ unsigned bits(unsigned a, unsigned b) { return a ^ b; }
__device__ __noinline__ unsigned keep(unsigned a, unsigned) { return a; }
__device__ Function table[4] = {plus, times, bits, keep};
__constant__ Function fixed[2] = {times, plus};

extern "C" __global__ void function_table(unsigned *out, const unsigned *in) {
    unsigned i = threadIdx.x, x = in[i];
    out[i] = table[x % 4](x, i);
    Function chosen = i & 1 ? bits : fixed[i / 16];
    out[32 + i] = chosen(x, 3);
}
