// Layered arrays in one and two dimensions, cubemaps, and layered cubemaps.
#include "texture.h"

__global__ void fetch(cudaTextureObject_t one, cudaTextureObject_t two, float *to) {
    int i = threadIdx.x, layer = i % 6 - 1;
    float x = (i - 4) * 0.3125f, y = (i - 7) * 0.21875f;
    to[i] = tex1DLayered<float>(one, x, layer);
    to[i + 48] = tex2DLayered<float>(two, x, y, layer);
}

__global__ void fetch_cube(cudaTextureObject_t cube, cudaTextureObject_t layered, float *to) {
    int i = threadIdx.x;
    float x = (i % 5 - 2) * 0.4375f, y = (i / 5 % 5 - 2) * 0.4375f, z = (i / 25 % 5 - 2) * 0.4375f;
    if (i % 3 == 0) x *= 3;
    if (i % 3 == 1) y *= -2.5f;
    if (i % 7 == 1) z *= 4;
    to[i] = texCubemap<float>(cube, x, y, z);
    to[i + 128] = texCubemapLayered<float>(layered, x, y, z, i % 2);
}

int main() {
    const int W = 5, H = 4, L = 4, S = 4;
    float texels[W * H * L], faces[S * S * 12];
    for (int i = 0; i < W * H * L; i++) texels[i] = i + 1;
    for (int i = 0; i < S * S * 12; i++) faces[i] = (i / (S * S)) * 100 + i % (S * S);
    cudaArray_t one, two = array_of(texels, W, H, L, cudaArrayLayered);
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    CHECK(cudaMalloc3DArray(&one, &format, make_cudaExtent(W, 0, L), cudaArrayLayered));
    to_array(one, texels, W, 1, L);
    cudaArray_t cube = array_of(faces, S, S, 6, cudaArrayCubemap);
    cudaArray_t layered = array_of(faces, S, S, 12, cudaArrayCubemap | cudaArrayLayered);

    for (cudaArray_t array : {one, two, cube, layered}) {
        cudaChannelFormatDesc got;
        cudaExtent extent;
        unsigned flags;
        CHECK(cudaArrayGetInfo(&got, &extent, &flags, array));
        printf("%d %d %d %d kind %d, %zu x %zu x %zu, flags %x\n", got.x, got.y, got.z, got.w, got.f, extent.width,
               extent.height, extent.depth, flags);
    }

    float *results = shared_memory<float>(256);
    for (int normalized = 0; normalized < 2; normalized++)
        for (int filter = 0; filter < 2; filter++) {
            cudaTextureDesc how = sampling((cudaTextureFilterMode)filter,
                                           normalized ? cudaAddressModeWrap : cudaAddressModeBorder, normalized);
            cudaTextureObject_t of_one = texture_of(resource(one), how), of_two = texture_of(resource(two), how);
            fetch<<<1, 48>>>(of_one, of_two, results);
            show_bits(filter ? "layered, linear" : "layered, point", results, 96);
            CHECK(cudaDestroyTextureObject(of_one));
            CHECK(cudaDestroyTextureObject(of_two));
        }
    for (int seamless = 0; seamless < 2; seamless++)
        for (int filter = 0; filter < 2; filter++) {
            cudaTextureDesc how = sampling((cudaTextureFilterMode)filter, cudaAddressModeClamp, true);
            how.seamlessCubemap = seamless;
            cudaTextureObject_t of_cube = texture_of(resource(cube), how), of_layers = texture_of(resource(layered), how);
            fetch_cube<<<1, 125>>>(of_cube, of_layers, results);
            // The direction (0, 0, 0) has no face.
            CHECK(cudaDeviceSynchronize());
            results[62] = results[62 + 128] = 0;
            char title[64];
            snprintf(title, sizeof title, "cubemap, %s%s", filter ? "linear" : "point", seamless ? ", seamless" : "");
            show_bits(title, results, 125);
            show_bits("layered cubemap", results + 128, 125);
            CHECK(cudaDestroyTextureObject(of_cube));
            CHECK(cudaDestroyTextureObject(of_layers));
        }
    for (cudaArray_t array : {one, two, cube, layered}) CHECK(cudaFreeArray(array));
    return 0;
}
