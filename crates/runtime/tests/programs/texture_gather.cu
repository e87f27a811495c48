// Four texels at once, a channel each, and sizes that a kernel asks for.
#include "texture.h"

__global__ void gather(cudaTextureObject_t texture, bool normalized, float4 *to) {
    int i = threadIdx.x;
    float x = (i - 3) * 0.71875f, y = (i - 5) * 0.40625f;
    if (normalized) x /= 6, y /= 5;
    to[i] = tex2Dgather<float4>(texture, x, y, 0);
    to[i + 24] = tex2Dgather<float4>(texture, x, y, 1);
}

__global__ void bytes(cudaTextureObject_t texture, uint4 *to) {
    uchar4 got = tex2Dgather<uchar4>(texture, 1.5f + threadIdx.x, 1.25f, 2);
    to[threadIdx.x] = make_uint4(got.x, got.y, got.z, got.w);
}

__global__ void sizes(cudaTextureObject_t texture, cudaSurfaceObject_t surface, unsigned *to) {
    asm volatile("txq.width.b32 %0, [%1];" : "=r"(to[0]) : "l"(texture));
    asm volatile("txq.height.b32 %0, [%1];" : "=r"(to[1]) : "l"(texture));
    asm volatile("suq.width.b32 %0, [%1];" : "=r"(to[2]) : "l"(surface));
    asm volatile("suq.height.b32 %0, [%1];" : "=r"(to[3]) : "l"(surface));
}

int main() {
    const int W = 6, H = 5;
    float2 texels[W * H];
    uchar4 small[W * H];
    for (int i = 0; i < W * H; i++) texels[i] = make_float2(i + 1, -i - 1);
    fill(small, sizeof small, 5);
    cudaArray_t array = array_of(texels, W, H, 0, cudaArrayTextureGather);
    cudaArray_t of_bytes = array_of(small, W, H, 0, cudaArrayTextureGather);
    float4 *results = shared_memory<float4>(48);
    for (int mode = 0; mode < 4; mode++)
        for (int normalized = 0; normalized < 2; normalized++) {
            cudaTextureDesc how = sampling(cudaFilterModePoint, (cudaTextureAddressMode)mode, normalized);
            how.borderColor[0] = 50;
            how.borderColor[1] = 60;
            cudaTextureObject_t texture = texture_of(resource(array), how);
            gather<<<1, 24>>>(texture, normalized, results);
            char title[64];
            snprintf(title, sizeof title, "%s, %s", MODES[mode], normalized ? "normalized" : "elements");
            show_bits(title, results, 192);
            CHECK(cudaDestroyTextureObject(texture));
        }
    cudaTextureObject_t texture = texture_of(resource(of_bytes), sampling(cudaFilterModePoint, cudaAddressModeClamp, false));
    bytes<<<1, 4>>>(texture, (uint4 *)results);
    show_bits("bytes", results, 16);

    cudaArray_t written;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    CHECK(cudaMallocArray(&written, &format, 7, 3, cudaArraySurfaceLoadStore));
    cudaResourceDesc from = resource(written);
    cudaSurfaceObject_t surface;
    CHECK(cudaCreateSurfaceObject(&surface, &from));
    sizes<<<1, 1>>>(texture, surface, (unsigned *)results);
    show_bits("sizes", results, 4);
    CHECK(cudaDestroySurfaceObject(surface));
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFreeArray(array));
    CHECK(cudaFreeArray(of_bytes));
    CHECK(cudaFreeArray(written));
    return 0;
}
