// Address modes and filters in one, two and three dimensions, with coordinates far outside.
#include "texture.h"

const int W = 5, H = 4, D = 3;

__global__ void fetch(cudaTextureObject_t one, cudaTextureObject_t two, cudaTextureObject_t three, bool normalized,
                      float *to) {
    int i = threadIdx.x;
    float x = (i - 16) * 0.6875f, y = (i - 11) * 0.40625f, z = (i - 20) * 0.28125f;
    if (normalized) x /= 8, y /= 4, z /= 4;
    to[i] = tex1D<float>(one, x);
    to[i + 48] = tex2D<float>(two, x, y);
    to[i + 96] = tex3D<float>(three, x, y, z);
}

__global__ void odd(cudaTextureObject_t two, float *to) {
    const float values[] = {1e9f, -1e9f, 1e30f, -1e30f, INFINITY, -INFINITY, NAN, -0.0f};
    to[threadIdx.x] = tex2D<float>(two, values[threadIdx.x], 1.5f);
    to[threadIdx.x + 8] = tex2D<float>(two, 1.5f, values[threadIdx.x]);
}

int main() {
    float texels[W * H * D];
    for (int i = 0; i < W * H * D; i++) texels[i] = i + 1;
    cudaArray_t one = array_of(texels, W), two = array_of(texels, W, H), three = array_of(texels, W, H, D);
    float *results = shared_memory<float>(144);
    for (int normalized = 0; normalized < 2; normalized++)
        for (int filter = 0; filter < 2; filter++)
            for (int mode = 0; mode < 4; mode++) {
                cudaTextureDesc how =
                    sampling((cudaTextureFilterMode)filter, (cudaTextureAddressMode)mode, normalized);
                how.borderColor[0] = 100;
                cudaTextureObject_t textures[] = {texture_of(resource(one), how), texture_of(resource(two), how),
                                                  texture_of(resource(three), how)};
                fetch<<<1, 48>>>(textures[0], textures[1], textures[2], normalized, results);
                char title[64];
                snprintf(title, sizeof title, "%s, %s, %s", MODES[mode], filter ? "linear" : "point",
                         normalized ? "normalized" : "elements");
                show_bits(title, results, 144);
                odd<<<1, 8>>>(textures[1], results);
                show_bits("odd coordinates", results, 16);
                for (cudaTextureObject_t texture : textures) CHECK(cudaDestroyTextureObject(texture));
            }
    cudaTextureDesc mixed = sampling(cudaFilterModeLinear, cudaAddressModeWrap, true);
    mixed.addressMode[1] = cudaAddressModeMirror;
    mixed.addressMode[2] = cudaAddressModeBorder;
    cudaTextureObject_t textures[] = {texture_of(resource(one), mixed), texture_of(resource(two), mixed),
                                      texture_of(resource(three), mixed)};
    fetch<<<1, 48>>>(textures[0], textures[1], textures[2], true, results);
    show_bits("wrap, mirror and border", results, 144);
    for (cudaTextureObject_t texture : textures) CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFreeArray(one));
    CHECK(cudaFreeArray(two));
    CHECK(cudaFreeArray(three));
    return 0;
}
