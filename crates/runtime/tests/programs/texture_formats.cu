// Formats of elements: integers of 8, 16 and 32 bits, halves and floats, with one, two and four channels, read as they are
// and as fractions.
#include "texture.h"
#include <cuda_fp16.h>

template <class T> __global__ void fetch(cudaTextureObject_t texture, T *to) {
    to[threadIdx.x] = tex2D<T>(texture, threadIdx.x % 4 + 0.25f, threadIdx.x / 4 + 0.75f);
}

template <class T, class R> static void show(const char *title, cudaTextureReadMode read, bool linear = false) {
    T texels[8];
    fill(texels, sizeof texels, sizeof(T) + 3);
    cudaArray_t array = array_of(texels, 4, 2);
    cudaTextureDesc how = sampling(linear ? cudaFilterModeLinear : cudaFilterModePoint, cudaAddressModeClamp, false, read);
    cudaTextureObject_t texture = texture_of(resource(array), how);
    R *results = shared_memory<R>(8);
    fetch<R><<<1, 8>>>(texture, results);
    show_bits(title, results, sizeof(R) * 2);
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFreeArray(array));
    CHECK(cudaFree(results));
}

__global__ void fetch_half(cudaTextureObject_t texture, float4 *to) {
    to[threadIdx.x] = tex2D<float4>(texture, threadIdx.x * 0.3125f, 0.5f + threadIdx.x * 0.0625f);
}

// Channels that a format lacks, as `tex` returns them.
__global__ void fetch_all(cudaTextureObject_t texture, float *to) {
    float r, g, b, a;
    asm volatile("tex.2d.v4.f32.f32 {%0, %1, %2, %3}, [%4, {%5, %6}];"
                 : "=f"(r), "=f"(g), "=f"(b), "=f"(a) : "l"(texture), "f"(1.5f), "f"(0.5f));
    to[0] = r, to[1] = g, to[2] = b, to[3] = a;
}

template <class T> static void show_all(const char *title, cudaTextureReadMode read, float border) {
    T texels[8];
    fill(texels, sizeof texels, 9);
    cudaArray_t array = array_of(texels, 4, 2);
    cudaTextureDesc how = sampling(cudaFilterModePoint, cudaAddressModeBorder, false, read);
    cudaTextureObject_t texture = texture_of(resource(array), how);
    float *results = shared_memory<float>(4);
    fetch_all<<<1, 1>>>(texture, results);
    show_bits(title, results, 4);
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFreeArray(array));
}

static void show_halves(int channels) {
    unsigned short texels[8 * 4];
    const unsigned short some[] = {0x3c00, 0xc000, 0x3555, 0x0001, 0x7bff, 0x8000, 0x03ff, 0x7c00};
    for (int i = 0; i < 32; i++) texels[i] = some[(i * 3 + i / 8) % 7];
    cudaChannelFormatDesc format = {16, channels > 1 ? 16 : 0, channels > 2 ? 16 : 0, channels > 2 ? 16 : 0,
                                    cudaChannelFormatKindFloat};
    cudaArray_t array;
    CHECK(cudaMallocArray(&array, &format, 4, 2));
    CHECK(cudaMemcpy2DToArray(array, 0, 0, texels, 8 * channels, 8 * channels, 2, cudaMemcpyHostToDevice));
    float4 *results = shared_memory<float4>(16);
    for (int filter = 0; filter < 2; filter++) {
        cudaTextureDesc how = sampling((cudaTextureFilterMode)filter, cudaAddressModeClamp, false);
        cudaTextureObject_t texture = texture_of(resource(array), how);
        fetch_half<<<1, 16>>>(texture, results);
        char title[64];
        snprintf(title, sizeof title, "half, %d channels, %s", channels, filter ? "linear" : "point");
        show_bits(title, results, 64);
        CHECK(cudaDestroyTextureObject(texture));
    }
    CHECK(cudaFreeArray(array));
}

int main() {
    const cudaTextureReadMode element = cudaReadModeElementType, fraction = cudaReadModeNormalizedFloat;
    show<unsigned, unsigned>("uint", element);
    show<int2, int2>("int2", element);
    show<uint4, uint4>("uint4", element);
    show<float, float>("float", element);
    show<float2, float2>("float2", element);
    show<float4, float4>("float4", element);
    // Elements of 8 and 16 bits, printed in words.
    show<uchar4, uchar4>("uchar4", element);
    show<char4, char4>("char4", element);
    show<short2, short2>("short2", element);
    show<ushort4, ushort4>("ushort4", element);
    show<unsigned char, float>("uchar as a fraction", fraction);
    show<signed char, float>("schar as a fraction", fraction);
    show<uchar2, float2>("uchar2 as fractions", fraction);
    show<uchar4, float4>("uchar4 as fractions", fraction);
    show<char4, float4>("char4 as fractions", fraction);
    show<unsigned short, float>("ushort as a fraction", fraction);
    show<short2, float2>("short2 as fractions", fraction);
    show<ushort4, float4>("ushort4 as fractions", fraction);
    show<uchar4, float4>("uchar4 as fractions, linear", fraction, true);
    show<char4, float4>("char4 as fractions, linear", fraction, true);
    show<short2, float2>("short2 as fractions, linear", fraction, true);
    show<float2, float2>("float2, linear", element, true);
    for (int channels : {1, 2, 4}) show_halves(channels);
    show_all<float>("missing channels of float", element, 0);
    show_all<float2>("missing channels of float2", element, 0);
    show_all<unsigned char>("missing channels of uchar", fraction, 0);
    show_all<unsigned>("missing channels of uint", element, 0);
    return 0;
}
