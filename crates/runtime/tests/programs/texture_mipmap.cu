// Mipmapped arrays: levels given, levels of gradients, filters between levels, and limits of levels.
#include "texture.h"

const int W = 16, H = 8, LEVELS = 4;

__global__ void levels(cudaTextureObject_t texture, float *to) {
    int i = threadIdx.x;
    to[i] = tex2DLod<float>(texture, 0.3f, 0.6f, (i - 8) * 0.15625f);
}

__global__ void gradients(cudaTextureObject_t texture, float *to) {
    int i = threadIdx.x;
    float step = (1 << (i % 8)) / 64.0f * (1 + i / 8 * 0.25f);
    to[i] = tex2DGrad<float>(texture, 0.3f, 0.6f, make_float2(step, 0), make_float2(0, step));
    to[i + 32] = tex2DGrad<float>(texture, 0.3f, 0.6f, make_float2(step, step * 0.5f), make_float2(step * 0.25f, 0));
}

__global__ void plain(cudaTextureObject_t texture, float *to) {
    to[threadIdx.x] = tex2D<float>(texture, threadIdx.x * 0.09375f, threadIdx.x * 0.0625f);
}

__global__ void lines(cudaTextureObject_t texture, float *to) {
    int i = threadIdx.x;
    to[i] = tex1DLod<float>(texture, i * 0.0625f, i * 0.125f);
}

int main() {
    cudaMipmappedArray_t mipmap, line;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    CHECK(cudaMallocMipmappedArray(&mipmap, &format, make_cudaExtent(W, H, 0), LEVELS));
    CHECK(cudaMallocMipmappedArray(&line, &format, make_cudaExtent(W, 0, 0), 10));
    for (int level = 0; level < 5; level++) {
        cudaArray_t array;
        cudaExtent extent;
        cudaChannelFormatDesc got;
        unsigned flags;
        float texels[W * H];
        for (int i = 0; i < W * H; i++) texels[i] = (level + 1) * 1000 + i;
        if (level < LEVELS) {
            CHECK(cudaGetMipmappedArrayLevel(&array, mipmap, level));
            CHECK(cudaArrayGetInfo(&got, &extent, &flags, array));
            printf("level %d: %zu x %zu x %zu, flags %x\n", level, extent.width, extent.height, extent.depth, flags);
            to_array(array, texels, extent.width, extent.height, 0);
        }
        CHECK(cudaGetMipmappedArrayLevel(&array, line, level));
        CHECK(cudaArrayGetInfo(&got, &extent, &flags, array));
        printf("line %d: %zu x %zu x %zu, flags %x\n", level, extent.width, extent.height, extent.depth, flags);
        to_array(array, texels, extent.width, 0, 0);
    }
    cudaArray_t none;
    SHOW(cudaGetMipmappedArrayLevel(&none, mipmap, LEVELS));
    SHOW(cudaGetMipmappedArrayLevel(&none, line, 5));

    cudaResourceDesc from = {};
    from.resType = cudaResourceTypeMipmappedArray;
    from.res.mipmap.mipmap = mipmap;
    float *results = shared_memory<float>(64);
    for (int filter = 0; filter < 2; filter++)
        for (int between = 0; between < 2; between++)
            for (int limit = 0; limit < 3; limit++) {
                cudaTextureDesc how = sampling((cudaTextureFilterMode)filter, cudaAddressModeClamp, true);
                how.mipmapFilterMode = (cudaTextureFilterMode)between;
                how.maxMipmapLevelClamp = limit == 1 ? 1.75f : 10;
                how.minMipmapLevelClamp = limit == 1 ? 0.5f : 0;
                how.mipmapLevelBias = limit == 2 ? 0.625f : 0;
                cudaTextureObject_t texture = texture_of(from, how);
                char title[64];
                snprintf(title, sizeof title, "filter %d, between levels %d, limits %d", filter, between, limit);
                levels<<<1, 40>>>(texture, results);
                show_bits(title, results, 40);
                gradients<<<1, 32>>>(texture, results);
                show_bits("gradients", results, 64);
                plain<<<1, 12>>>(texture, results);
                show_bits("no level", results, 12);
                CHECK(cudaDestroyTextureObject(texture));
            }
    from.res.mipmap.mipmap = line;
    cudaTextureDesc how = sampling(cudaFilterModeLinear, cudaAddressModeWrap, true);
    how.mipmapFilterMode = cudaFilterModeLinear;
    how.maxMipmapLevelClamp = 10;
    cudaTextureObject_t texture = texture_of(from, how);
    lines<<<1, 40>>>(texture, results);
    show_bits("one dimension", results, 40);
    CHECK(cudaDestroyTextureObject(texture));

    cudaResourceViewDesc view = {};
    view.format = cudaResViewFormatFloat1;
    view.firstMipmapLevel = 1;
    view.lastMipmapLevel = 2;
    from.res.mipmap.mipmap = mipmap;
    how = sampling(cudaFilterModePoint, cudaAddressModeClamp, true);
    how.maxMipmapLevelClamp = 10;
    for (int size : {1, 2}) {
        view.width = W / size;
        view.height = H / size;
        cudaError_t made = cudaCreateTextureObject(&texture, &from, &how, &view);
        printf("a view of size %d: %s\n", size, cudaGetErrorName(made));
        if (made != cudaSuccess) continue;
        levels<<<1, 40>>>(texture, results);
        show_bits("levels of the view", results, 40);
        cudaResourceViewDesc got;
        CHECK(cudaGetTextureObjectResourceViewDesc(&got, texture));
        printf("view: format %d, %zu x %zu x %zu, levels %u to %u\n", got.format, got.width, got.height, got.depth,
               got.firstMipmapLevel, got.lastMipmapLevel);
        CHECK(cudaDestroyTextureObject(texture));
    }
    CHECK(cudaFreeMipmappedArray(mipmap));
    CHECK(cudaFreeMipmappedArray(line));
    return 0;
}
