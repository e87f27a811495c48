// Surfaces: reads and writes in one, two and three dimensions and of layers, and the boundary modes.
#include "texture.h"

__global__ void write(cudaSurfaceObject_t one, cudaSurfaceObject_t two, cudaSurfaceObject_t three,
                      cudaSurfaceObject_t layers) {
    int x = threadIdx.x, y = threadIdx.y, z = threadIdx.z;
    if (y == 0 && z == 0) surf1Dwrite((unsigned)(x + 1), one, x * 4);
    if (z == 0) surf2Dwrite(make_float2(x, y), two, x * 8, y);
    surf3Dwrite((unsigned char)(x + 8 * y + 32 * z), three, x, y, z);
    surf2DLayeredwrite((unsigned short)(x + 16 * y + 256 * z), layers, x * 2, y, z);
}

__global__ void change(cudaSurfaceObject_t two, cudaSurfaceObject_t three, unsigned *to) {
    int x = threadIdx.x, y = threadIdx.y;
    float2 value = surf2Dread<float2>(two, x * 8, y);
    surf2Dwrite(make_float2(value.y + 0.5f, value.x * 2), two, x * 8, y);
    unsigned char byte;
    surf3Dread(&byte, three, x, y, 1);
    to[y * 8 + x] = byte;
}

__global__ void beyond(cudaSurfaceObject_t two, float2 *to) {
    int x = (int)threadIdx.x - 2, y = (int)threadIdx.y - 1, i = threadIdx.y * 12 + threadIdx.x;
    surf2Dread(&to[i], two, x * 8, y, cudaBoundaryModeZero);
    surf2Dread(&to[i + 72], two, x * 8, y, cudaBoundaryModeClamp);
}

__global__ void write_beyond(cudaSurfaceObject_t two) {
    int x = (int)threadIdx.x - 2, y = (int)threadIdx.y - 1;
    if (x < 0 || y < 0 || x >= 8 || y >= 4) surf2Dwrite(make_float2(9, 9), two, x * 8, y, cudaBoundaryModeZero);
    if (x == 9 && y == 2) surf2Dwrite(make_float2(77, 78), two, x * 8, y, cudaBoundaryModeClamp);
}

__global__ void fault(cudaSurfaceObject_t two, float2 *to) {
    surf2Dread(to, two, 8 * 8, 0, cudaBoundaryModeTrap);
}

static cudaSurfaceObject_t surface_of(cudaArray_t array) {
    cudaResourceDesc from = resource(array);
    cudaSurfaceObject_t made;
    CHECK(cudaCreateSurfaceObject(&made, &from));
    cudaResourceDesc got;
    CHECK(cudaGetSurfaceObjectResourceDesc(&got, made));
    printf("surface of kind %d, the same array %d\n", got.resType, got.res.array.array == array);
    return made;
}

int main() {
    const int W = 8, H = 4, D = 3;
    cudaArray_t one, two, three, layers;
    cudaChannelFormatDesc word = cudaCreateChannelDesc<unsigned>(), pair = cudaCreateChannelDesc<float2>(),
                          byte = cudaCreateChannelDesc<unsigned char>(), half = cudaCreateChannelDesc<unsigned short>();
    CHECK(cudaMallocArray(&one, &word, W, 0, cudaArraySurfaceLoadStore));
    CHECK(cudaMallocArray(&two, &pair, W, H, cudaArraySurfaceLoadStore));
    CHECK(cudaMalloc3DArray(&three, &byte, make_cudaExtent(W, H, D), cudaArraySurfaceLoadStore));
    CHECK(cudaMalloc3DArray(&layers, &half, make_cudaExtent(W, H, D), cudaArraySurfaceLoadStore | cudaArrayLayered));
    cudaSurfaceObject_t to_one = surface_of(one), to_two = surface_of(two), to_three = surface_of(three),
                        to_layers = surface_of(layers);
    write<<<1, dim3(W, H, D)>>>(to_one, to_two, to_three, to_layers);
    CHECK(cudaDeviceSynchronize());

    unsigned words[W];
    CHECK(cudaMemcpy2DFromArray(words, sizeof words, one, 0, 0, sizeof words, 1, cudaMemcpyDeviceToHost));
    show_bits("one dimension", words, W);
    float2 pairs[W * H];
    CHECK(cudaMemcpy2DFromArray(pairs, W * 8, two, 0, 0, W * 8, H, cudaMemcpyDeviceToHost));
    show_bits("two dimensions", pairs, W * H * 2);
    unsigned char bytes[W * H * D];
    unsigned short halves[W * H * D];
    cudaMemcpy3DParms copy = {0};
    copy.srcArray = three;
    copy.dstPtr = make_cudaPitchedPtr(bytes, W, W, H);
    copy.extent = make_cudaExtent(W, H, D);
    copy.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaMemcpy3D(&copy));
    show_bits("three dimensions", bytes, W * H * D / 4);
    copy.srcArray = layers;
    copy.dstPtr = make_cudaPitchedPtr(halves, W * 2, W, H);
    CHECK(cudaMemcpy3D(&copy));
    show_bits("layers", halves, W * H * D / 2);

    unsigned *results = shared_memory<unsigned>(512);
    change<<<1, dim3(W, H)>>>(to_two, to_three, results);
    show_bits("read", results, W * H);
    CHECK(cudaMemcpy2DFromArray(pairs, W * 8, two, 0, 0, W * 8, H, cudaMemcpyDeviceToHost));
    show_bits("changed", pairs, W * H * 2);
    beyond<<<1, dim3(12, 6)>>>(to_two, (float2 *)results);
    show_bits("beyond", results, 288);
    write_beyond<<<1, dim3(12, 6)>>>(to_two);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy2DFromArray(pairs, W * 8, two, 0, 0, W * 8, H, cudaMemcpyDeviceToHost));
    show_bits("written beyond", pairs, W * H * 2);

    CHECK(cudaDestroySurfaceObject(to_one));
    CHECK(cudaDestroySurfaceObject(to_three));
    CHECK(cudaDestroySurfaceObject(to_layers));
    fault<<<1, 1>>>(to_two, (float2 *)results);
    printf("beyond with trap: %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
    printf("then: %s\n", cudaGetErrorName(cudaFreeArray(two)));
    return 0;
}
