// Variables of a module with initial values, some the addresses of others, changed by one launch and read by the next.
// launch: device_globals_change grid 1 block 8
// launch: device_globals_read grid 1 block 8
// arg: out u64 64

struct Link {
    int value;
    Link *next;
};
extern __device__ Link second;
__device__ Link third = {30, nullptr};
__device__ Link first = {10, &second};
__device__ Link second = {20, &third};
__device__ unsigned short halves[3] = {1, 2, 65535};
__device__ long long wide = -5;
__device__ double real = 0.1;
__device__ float reals[2][2] = {{1, 2}, {3}};
__device__ unsigned zeroed[8];
__device__ unsigned *middle = &zeroed[3];

extern "C" __global__ void device_globals_change(unsigned long long *) {
    zeroed[threadIdx.x] += threadIdx.x * 11;
    if (threadIdx.x == 0) {
        third.next = &first;
        wide *= 7;
        halves[1]++;
        real += 0.2;
        reals[1][1] = reals[0][1] * 5;
    }
}

extern "C" __global__ void device_globals_read(unsigned long long *out) {
    unsigned i = threadIdx.x;
    const Link *link = &first;
    for (unsigned k = 0; k < i; k++) link = link->next;
    out[i] = link->value;
    out[8 + i] = halves[i % 3];
    out[16 + i] = wide + i;
    out[24 + i] = __double_as_longlong(real * i);
    out[32 + i] = __float_as_uint(reals[i / 4][i % 2]);
    out[40 + i] = middle[(int)i % 4 - 2];
    out[48 + i] = middle - zeroed;
    out[56 + i] = zeroed[7 - i];
}
