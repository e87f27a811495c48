// A fast Fourier transform of a block's 64 numbers, with its roots of unity as an argument.
// compile: --fmad=false
// launch: fft grid 1 block 32
// arg: inout f32 128 random 104
// arg: in f32 64 random 105

extern "C" __global__ void fft(float2 *values, const float2 *roots) {
    __shared__ float2 own[64];
    unsigned i = threadIdx.x;
    for (unsigned k = i; k < 64; k += 32) own[__brev(k) >> 26] = values[k];
    __syncthreads();
    for (unsigned half = 1; half < 64; half *= 2) {
        unsigned at = i % half, low = (i - at) * 2 + at, high = low + half;
        float2 root = roots[at * (32 / half)], a = own[low], b = own[high];
        float2 turned = make_float2(b.x * root.x - b.y * root.y, b.x * root.y + b.y * root.x);
        own[low] = make_float2(a.x + turned.x, a.y + turned.y);
        own[high] = make_float2(a.x - turned.x, a.y - turned.y);
        __syncthreads();
    }
    for (unsigned k = i; k < 64; k += 32) values[k] = own[k];
}
