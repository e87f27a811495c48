// The second file of the program.
static __device__ int state = 2;

static __global__ void change() { state *= 100; }
__global__ void second(int *result) { *result = state; }

int second_unit(int *device) {
    change<<<1, 1>>>();
    second<<<1, 1>>>(device);
    int result = 0;
    cudaMemcpy(&result, device, sizeof result, cudaMemcpyDeviceToHost);
    return result;
}
