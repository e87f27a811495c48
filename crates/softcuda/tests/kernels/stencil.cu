// Heat along a rod: barriers in a loop whose length is an argument.
// launch: stencil grid 1 block 100
// arg: inout f32 100 random 39
// arg: value u32 25

extern "C" __global__ void stencil(float *rod, unsigned steps) {
    __shared__ float heat[102];
    unsigned i = threadIdx.x + 1;
    heat[i] = rod[threadIdx.x];
    if (i == 1) heat[0] = 1.0f;
    if (i == 100) heat[101] = -1.0f;
    __syncthreads();
    for (unsigned step = 0; step < steps; step++) {
        float next = 0.25f * heat[i - 1] + 0.5f * heat[i] + 0.25f * heat[i + 1];
        __syncthreads();
        heat[i] = next;
        __syncthreads();
    }
    rod[threadIdx.x] = heat[i];
}
