// Textures of linear memory and of rows with a pitch.
#include "texture.h"

template <class T> __global__ void elements(cudaTextureObject_t texture, T *to, int first) {
    to[threadIdx.x] = tex1Dfetch<T>(texture, first + (int)threadIdx.x);
}

__global__ void plane(cudaTextureObject_t texture, float scale_x, float scale_y, float *to) {
    int i = threadIdx.x;
    to[i] = tex2D<float>(texture, (i % 8 - 1.25f) * scale_x, (i / 8 - 0.75f) * scale_y);
}

template <class T> static cudaResourceDesc linear(T *memory, size_t bytes) {
    cudaResourceDesc made = {};
    made.resType = cudaResourceTypeLinear;
    made.res.linear.devPtr = memory;
    made.res.linear.desc = cudaCreateChannelDesc<T>();
    made.res.linear.sizeInBytes = bytes;
    return made;
}

int main() {
    float *memory = shared_memory<float>(64), *results = shared_memory<float>(256);
    for (int i = 0; i < 64; i++) memory[i] = i + 0.5f;
    cudaTextureDesc how = sampling(cudaFilterModePoint, cudaAddressModeClamp, false);
    cudaTextureObject_t texture = texture_of(linear(memory, 40 * sizeof(float)), how);
    elements<<<1, 48>>>(texture, results, -4);
    show_bits("floats, with elements before and after", results, 48);
    cudaResourceDesc got;
    cudaTextureDesc sampled;
    CHECK(cudaGetTextureObjectResourceDesc(&got, texture));
    CHECK(cudaGetTextureObjectTextureDesc(&sampled, texture));
    printf("kind %d, %zu bytes, format %d %d %d %d %d, at the start %d\n", got.resType, got.res.linear.sizeInBytes,
           got.res.linear.desc.x, got.res.linear.desc.y, got.res.linear.desc.z, got.res.linear.desc.w,
           got.res.linear.desc.f, got.res.linear.devPtr == memory);
    printf("modes %d %d %d, filter %d, read %d, normalized %d\n", sampled.addressMode[0], sampled.addressMode[1],
           sampled.addressMode[2], sampled.filterMode, sampled.readMode, sampled.normalizedCoords);
    CHECK(cudaDestroyTextureObject(texture));

    uchar4 *bytes = shared_memory<uchar4>(32);
    fill(bytes, 128, 2);
    texture = texture_of(linear(bytes, 128), how);
    elements<<<1, 32>>>(texture, (uchar4 *)results, 0);
    show_bits("four bytes", results, 32);
    CHECK(cudaDestroyTextureObject(texture));
    how.readMode = cudaReadModeNormalizedFloat;
    texture = texture_of(linear((unsigned char *)bytes, 128), how);
    elements<<<1, 64>>>(texture, results, 32);
    show_bits("bytes as fractions", results, 64);
    CHECK(cudaDestroyTextureObject(texture));
    float4 *quads = shared_memory<float4>(8);
    for (int i = 0; i < 8; i++) quads[i] = make_float4(i, i + 0.25f, i + 0.5f, i + 0.75f);
    how.readMode = cudaReadModeElementType;
    texture = texture_of(linear(quads, 128), how);
    elements<<<1, 8>>>(texture, (float4 *)results, 0);
    show_bits("four floats", results, 32);
    CHECK(cudaDestroyTextureObject(texture));

    const int W = 6, H = 5;
    float texels[W * H], *pitched;
    for (int i = 0; i < W * H; i++) texels[i] = i + 1;
    size_t pitch;
    CHECK(cudaMallocPitch(&pitched, &pitch, W * sizeof(float), H));
    CHECK(cudaMemcpy2D(pitched, pitch, texels, W * sizeof(float), W * sizeof(float), H, cudaMemcpyHostToDevice));
    cudaResourceDesc from = {};
    from.resType = cudaResourceTypePitch2D;
    from.res.pitch2D.devPtr = pitched;
    from.res.pitch2D.desc = cudaCreateChannelDesc<float>();
    from.res.pitch2D.width = W;
    from.res.pitch2D.height = H;
    from.res.pitch2D.pitchInBytes = pitch;
    for (int mode = 0; mode < 4; mode++)
        for (int filter = 0; filter < 2; filter++)
            for (int normalized = 0; normalized < 2; normalized++) {
                how = sampling((cudaTextureFilterMode)filter, (cudaTextureAddressMode)mode, normalized);
                texture = texture_of(from, how);
                plane<<<1, 64>>>(texture, normalized ? 1.0f / W : 1, normalized ? 1.0f / H : 1, results);
                char title[64];
                snprintf(title, sizeof title, "pitch, %s, %s, %s", MODES[mode], filter ? "linear" : "point",
                         normalized ? "normalized" : "elements");
                show_bits(title, results, 64);
                CHECK(cudaDestroyTextureObject(texture));
            }
    CHECK(cudaFree(pitched));
    return 0;
}
