// Boxes of memory: allocation, a fill of a part, and a kernel that walks rows and slices.
#include "show.h"

const size_t W = 60, H = 10, D = 5;

__global__ void sum_slices(cudaPitchedPtr box, cudaExtent extent, unsigned *sums) {
    size_t z = blockIdx.x;
    const char *slice = (const char *)box.ptr + z * box.pitch * box.ysize;
    unsigned sum = 0;
    for (size_t y = 0; y < extent.height; y++)
        for (size_t x = threadIdx.x; x < extent.width; x += blockDim.x)
            sum += ((const unsigned char *)slice)[y * box.pitch + x];
    atomicAdd(&sums[z], sum);
}

static void show_sums(cudaPitchedPtr box, unsigned *sums) {
    CHECK(cudaMemset(sums, 0, D * sizeof(unsigned)));
    sum_slices<<<D, 32>>>(box, make_cudaExtent(W, H, D), sums);
    CHECK(cudaGetLastError());
    unsigned host[D];
    CHECK(cudaMemcpy(host, sums, sizeof host, cudaMemcpyDeviceToHost));
    printf("sums:");
    for (size_t z = 0; z < D; z++) printf(" %u", host[z]);
    printf("\n");
}

int main() {
    cudaPitchedPtr box;
    CHECK(cudaMalloc3D(&box, make_cudaExtent(W, H, D)));
    printf("pitch %zu, xsize %zu, ysize %zu\n", box.pitch, box.xsize, box.ysize);
    unsigned *sums;
    CHECK(cudaMalloc(&sums, D * sizeof(unsigned)));

    CHECK(cudaMemset3D(box, 1, make_cudaExtent(W, H, D)));
    show_sums(box, sums);
    CHECK(cudaMemset3D(box, 3, make_cudaExtent(W / 2, H / 2, D)));
    show_sums(box, sums);
    CHECK(cudaMemset3D(box, 5, make_cudaExtent(W, H, 2)));
    show_sums(box, sums);
    CHECK(cudaMemset3DAsync(box, 258, make_cudaExtent(1, 1, 1), cudaStreamPerThread));
    CHECK(cudaDeviceSynchronize());
    show_sums(box, sums);
    SHOW(cudaMemset3D(box, 9, make_cudaExtent(0, H, D)));
    SHOW(cudaMemset3D(box, 9, make_cudaExtent(W, 0, D)));
    SHOW(cudaMemset3D(box, 9, make_cudaExtent(W, H, 0)));
    show_sums(box, sums);
    CHECK(cudaFree(sums));
    CHECK(cudaFree(box.ptr));
    return 0;
}
