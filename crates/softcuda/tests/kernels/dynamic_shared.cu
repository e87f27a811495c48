// Dynamic shared memory carved into arrays of several types, behind a static one.
// launch: dynamic_shared grid 2 block 32 shared 832
// arg: out f64 64

extern __shared__ __align__(16) unsigned char pool[];

extern "C" __global__ void dynamic_shared(double *out) {
    __shared__ unsigned short fixed[32];
    double *doubles = (double *)pool;
    float *floats = (float *)(pool + 256);
    unsigned *words = (unsigned *)(pool + 384);
    unsigned char *bytes = pool + 512;
    long long *wide = (long long *)(pool + 576);
    unsigned i = threadIdx.x;
    doubles[i] = i * 0.5;
    floats[i] = i * 0.25f;
    words[i] = i * i;
    bytes[i] = (unsigned char)(255 - i);
    bytes[32 + i] = (unsigned char)i;
    wide[i] = -(long long)i;
    fixed[i] = (unsigned short)(i + blockIdx.x);
    __syncthreads();
    unsigned j = 31 - i;
    out[blockIdx.x * 32 + i] = doubles[j] + floats[j] + words[j] + bytes[j] + bytes[32 + j] + wide[j] + fixed[j];
}
