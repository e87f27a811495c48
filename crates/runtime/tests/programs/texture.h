// What the programs with textures have in common: arrays, texture objects, and results printed as bits.
#pragma once

#include "show.h"

// Copies a packed box of elements to an array.
template <class T> static void to_array(cudaArray_t array, const T *from, size_t width, size_t height, size_t depth) {
    cudaMemcpy3DParms copy = {0};
    copy.srcPtr = make_cudaPitchedPtr((void *)from, width * sizeof(T), width, height ? height : 1);
    copy.dstArray = array;
    copy.extent = make_cudaExtent(width, height ? height : 1, depth ? depth : 1);
    copy.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&copy));
}

// Makes an array of a box of elements; zero for a dimension that it does not have.
template <class T>
static cudaArray_t array_of(const T *from, size_t width, size_t height = 0, size_t depth = 0, unsigned flags = 0) {
    cudaArray_t array;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<T>();
    CHECK(cudaMalloc3DArray(&array, &format, make_cudaExtent(width, height, depth), flags));
    to_array(array, from, width, height, depth);
    return array;
}

static inline cudaResourceDesc resource(cudaArray_t array) {
    cudaResourceDesc made = {};
    made.resType = cudaResourceTypeArray;
    made.res.array.array = array;
    return made;
}

static inline cudaTextureDesc sampling(cudaTextureFilterMode filter, cudaTextureAddressMode mode, bool normalized,
                                       cudaTextureReadMode read = cudaReadModeElementType) {
    cudaTextureDesc made = {};
    made.addressMode[0] = made.addressMode[1] = made.addressMode[2] = mode;
    made.filterMode = filter;
    made.readMode = read;
    made.normalizedCoords = normalized;
    return made;
}

static inline cudaTextureObject_t texture_of(cudaResourceDesc from, cudaTextureDesc how) {
    cudaTextureObject_t made;
    CHECK(cudaCreateTextureObject(&made, &from, &how, NULL));
    return made;
}

// Memory that host and device use.
template <class T> static T *shared_memory(size_t count) {
    T *made;
    CHECK(cudaMallocManaged(&made, count * sizeof(T)));
    memset(made, 0, count * sizeof(T));
    return made;
}

// Waits for a kernel and prints its results.
static inline void show_bits(const char *title, const void *results, size_t count) {
    CHECK(cudaDeviceSynchronize());
    printf("%s", title);
    const unsigned *bits = (const unsigned *)results;
    for (size_t i = 0; i < count; i++) printf("%s%08x", i % 12 ? " " : "\n  ", bits[i]);
    printf("\n");
}

// A number in [0, 1) that follows from a seed.
static inline float random_unit(unsigned seed) {
    unsigned bits = seed * 2654435761u + 12345u;
    bits ^= bits >> 15;
    bits *= 2246822519u;
    bits ^= bits >> 13;
    return (bits >> 8) / 16777216.0f;
}

static const char *const MODES[] = {"wrap", "clamp", "mirror", "border"};
