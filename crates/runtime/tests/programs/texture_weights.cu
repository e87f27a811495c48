// The arithmetic of linear filtering: how coordinates become weights, and how weights are applied.
#include "texture.h"

__global__ void fetch_1d(cudaTextureObject_t texture, const float *x, float *to, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) to[i] = tex1D<float>(texture, x[i]);
}

__global__ void fetch_2d(cudaTextureObject_t texture, float step, int side, float *to) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < side * side) to[i] = tex2D<float>(texture, 0.5f + (i % side) * step, 0.5f + (i / side) * step);
}

__global__ void fetch_3d(cudaTextureObject_t texture, float step, int side, float *to) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int x = i % side, y = i / side % side, z = i / side / side;
    if (z < side) to[i] = tex3D<float>(texture, 0.5f + x * step, 0.5f + y * step, 0.5f + z * step);
}

static float *x, *results;

static void show_1d(const char *title, cudaArray_t array, bool normalized, int count,
                    cudaTextureReadMode read = cudaReadModeElementType) {
    cudaTextureObject_t texture =
        texture_of(resource(array), sampling(cudaFilterModeLinear, cudaAddressModeClamp, normalized, read));
    fetch_1d<<<(count + 63) / 64, 64>>>(texture, x, results, count);
    show_bits(title, results, count);
    CHECK(cudaDestroyTextureObject(texture));
}

template <class T> static void show_format(const char *title, const T (&texels)[8]) {
    cudaArray_t array = array_of(texels, 8);
    for (int i = 0; i < 120; i++) x[i] = 0.5f + i * (7.0f / 119);
    show_1d(title, array, false, 120, cudaReadModeNormalizedFloat);
    CHECK(cudaFreeArray(array));
}

template <class T> static void show_plane(const char *title, const T (&texels)[4], cudaTextureReadMode read) {
    cudaArray_t array = array_of(texels, 2, 2);
    cudaTextureObject_t texture =
        texture_of(resource(array), sampling(cudaFilterModeLinear, cudaAddressModeClamp, false, read));
    fetch_2d<<<4, 64>>>(texture, 17 / 256.0f, 15, results);
    show_bits(title, results, 225);
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFreeArray(array));
}

int main() {
    x = shared_memory<float>(1024);
    results = shared_memory<float>(1024);

    float ramp[2] = {0, 1};
    cudaArray_t array = array_of(ramp, 2);
    int count = 0;
    for (int k = 0; k < 40; k++) x[count++] = 0.5f + k / 2048.0f;
    for (int k = 1000; k < 1048; k++) x[count++] = 0.5f + k / 2048.0f;
    for (int k = 2020; k < 2052; k++) x[count++] = 0.5f + k / 2048.0f;
    show_1d("weights at multiples of 1/2048", array, false, count);
    for (int k = 0; k < 48; k++) x[k] = 0.5f + 3 / 512.0f + (k - 24) / 16777216.0f;
    show_1d("weights around 1.5/256", array, false, 48);
    for (int k = 0; k < 96; k++) x[k] = 0.25f + k / 2048.0f;
    show_1d("weights of normalized coordinates", array, true, 96);
    CHECK(cudaFreeArray(array));

    float longer[300];
    for (int i = 0; i < 300; i++) longer[i] = i;
    array = array_of(longer, 300);
    for (int k = 0; k < 120; k++) x[k] = random_unit(k);
    show_1d("normalized coordinates in 300 texels", array, true, 120);
    for (int k = 0; k < 120; k++) x[k] = 300 * random_unit(k + 500);
    show_1d("coordinates in 300 texels", array, false, 120);
    CHECK(cudaFreeArray(array));

    const float pairs[][2] = {{1.1f, 2.3f},   {1e10f, 1.0f},  {-1.7f, 1.70001f}, {1e-40f, 3e-39f},   {1.0f, -1.0f},
                              {3.3e38f, 3.4e38f}, {1.0f, 1e-7f}, {0.1f, 0.1f},   {-0.0f, -0.0f},     {1.9999999f, 1.0000001f}};
    for (auto &pair : pairs) {
        array = array_of(pair, 2);
        for (int k = 0; k <= 52; k++) x[k] = 0.5f + k * 5 / 256.0f;
        char title[64];
        snprintf(title, sizeof title, "between %g and %g", pair[0], pair[1]);
        show_1d(title, array, false, 52);
        CHECK(cudaFreeArray(array));
    }
    float special[6] = {INFINITY, 1, -INFINITY, 2, NAN, 3};
    array = array_of(special, 6);
    for (int k = 0; k < 24; k++) x[k] = 0.5f + k / 4.0f;
    show_1d("infinities and NaN", array, false, 24);
    CHECK(cudaFreeArray(array));

    float plane[4], box[8];
    for (int i = 0; i < 4; i++) plane[i] = 1 + random_unit(i + 40);
    show_plane("two dimensions", plane, cudaReadModeElementType);
    plane[0] *= 1000, plane[3] *= -3;
    show_plane("two dimensions of other magnitudes", plane, cudaReadModeElementType);
    for (int i = 0; i < 8; i++) box[i] = 1 + random_unit(i + 60);
    cudaArray_t solid = array_of(box, 2, 2, 2);
    cudaTextureObject_t texture =
        texture_of(resource(solid), sampling(cudaFilterModeLinear, cudaAddressModeClamp, false));
    fetch_3d<<<6, 64>>>(texture, 37 / 256.0f, 7, results);
    show_bits("three dimensions", results, 343);
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFreeArray(solid));

    const unsigned char u8[8] = {0, 255, 1, 77, 128, 254, 13, 200};
    const unsigned short u16[8] = {0, 65535, 1, 777, 32768, 65534, 13, 20000};
    const short s16[8] = {0, 32767, -32768, -32767, 1, -1, 1640, -7700};
    show_format("8 bits unsigned", u8);
    show_format("16 bits unsigned", u16);
    show_format("16 bits signed", s16);
    const unsigned char u8_plane[4] = {3, 250, 117, 64};
    const unsigned short u16_plane[4] = {3333, 25000, 60117, 64};
    const short s16_plane[4] = {3333, -25000, 30117, -64};
    show_plane("8 bits in two dimensions", u8_plane, cudaReadModeNormalizedFloat);
    show_plane("16 bits in two dimensions", u16_plane, cudaReadModeNormalizedFloat);
    show_plane("16 bits signed in two dimensions", s16_plane, cudaReadModeNormalizedFloat);
    return 0;
}
