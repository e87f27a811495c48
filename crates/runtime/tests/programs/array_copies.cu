// nvcc: -Xcompiler -Wno-deprecated-declarations
// Copies to, from and between arrays, in every direction.
#include "texture.h"

const int W = 20, H = 6, D = 4;
static unsigned short host[W * H * D], back[W * H * D];

static void show_array(const char *title, cudaArray_t array, size_t height) {
    memset(back, 0x55, sizeof back);
    CHECK(cudaMemcpy2DFromArray(back, W * 2, array, 0, 0, W * 2, height, cudaMemcpyDeviceToHost));
    printf("%s: %016llx\n", title, checksum(back, W * 2 * height));
}

int main() {
    fill(host, sizeof host, 1);
    cudaChannelFormatDesc format = cudaCreateChannelDesc<unsigned short>();
    cudaArray_t one, two, other, three;
    CHECK(cudaMallocArray(&one, &format, W));
    CHECK(cudaMallocArray(&two, &format, W, H));
    CHECK(cudaMallocArray(&other, &format, W, H));
    CHECK(cudaMalloc3DArray(&three, &format, make_cudaExtent(W, H, D)));
    for (cudaArray_t array : {one, two, three}) {
        cudaChannelFormatDesc got = {};
        cudaExtent extent;
        unsigned flags;
        CHECK(cudaGetChannelDesc(&got, array));
        CHECK(cudaArrayGetInfo(NULL, &extent, &flags, array));
        printf("%d %d %d %d kind %d, %zu x %zu x %zu, flags %x\n", got.x, got.y, got.z, got.w, got.f, extent.width,
               extent.height, extent.depth, flags);
    }

    // Rectangles.
    CHECK(cudaMemcpy2DToArray(two, 0, 0, host, W * 2, W * 2, H, cudaMemcpyHostToDevice));
    show_array("to an array", two, H);
    CHECK(cudaMemcpy2DToArray(two, 6, 2, host + 100, 40, 14, 3, cudaMemcpyHostToDevice));
    show_array("to a part", two, H);
    CHECK(cudaMemcpy2DToArray(other, 0, 0, host + 60, W * 2, W * 2, H, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy2DArrayToArray(other, 4, 1, two, 6, 2, 14, 3));
    show_array("between arrays", other, H);
    CHECK(cudaMemcpy2DFromArray(back, 32, two, 8, 1, 20, 4, cudaMemcpyDeviceToHost));
    for (int y = 0; y < 4; y++) printf("row %d: %016llx\n", y, checksum((char *)back + y * 32, 20));
    void *device;
    size_t pitch;
    CHECK(cudaMallocPitch(&device, &pitch, W * 2, H));
    CHECK(cudaMemcpy2DFromArray(device, pitch, two, 0, 0, W * 2, H, cudaMemcpyDeviceToDevice));
    CHECK(cudaMemcpy2DToArray(other, 0, 0, device, pitch, W * 2, H, cudaMemcpyDeviceToDevice));
    show_array("through the device", other, H);
    CHECK(cudaMemcpy2DToArray(other, 2, 0, host, W * 2, 8, 2, cudaMemcpyDefault));
    show_array("by address", other, H);

    // In a stream.
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    unsigned short *pinned;
    CHECK(cudaMallocHost(&pinned, W * H * 2));
    memcpy(pinned, host + 30, W * H * 2);
    CHECK(cudaMemcpy2DToArrayAsync(two, 0, 0, pinned, W * 2, W * 2, H, cudaMemcpyHostToDevice, stream));
    CHECK(cudaMemcpy2DFromArrayAsync(pinned, W * 2, two, 0, 0, W * 2, H, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    printf("in a stream: %016llx, the same %d\n", checksum(pinned, W * H * 2), memcmp(pinned, host + 30, W * H * 2) == 0);

    // Bytes in the order of rows, with the calls that CUDA deprecates.
    SHOW(cudaMemcpyToArray(one, 0, 0, host + 7, W * 2, cudaMemcpyHostToDevice));
    show_array("one dimension", one, 1);
    SHOW(cudaMemcpyToArray(two, 0, 0, host + 11, W * H * 2, cudaMemcpyHostToDevice));
    show_array("all rows", two, H);
    SHOW(cudaMemcpyToArray(two, 10, 2, host, W * 2, cudaMemcpyHostToDevice));
    show_array("from the middle of a row", two, H);
    SHOW(cudaMemcpyFromArray(back, two, 10, 2, 70, cudaMemcpyDeviceToHost));
    printf("from the middle of a row: %016llx\n", checksum(back, 70));
    SHOW(cudaMemcpyArrayToArray(other, 6, 1, two, 0, 3, 80));
    show_array("between rows", other, H);

    // Boxes.
    cudaMemcpy3DParms copy = {0};
    copy.srcPtr = make_cudaPitchedPtr(host, W * 2, W, H);
    copy.dstArray = three;
    copy.extent = make_cudaExtent(W, H, D);
    copy.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&copy));
    cudaMemcpy3DParms down = {0};
    down.srcArray = three;
    down.dstPtr = make_cudaPitchedPtr(back, W * 2, W, H);
    down.extent = make_cudaExtent(W, H, D);
    down.kind = cudaMemcpyDeviceToHost;
    memset(back, 0, sizeof back);
    CHECK(cudaMemcpy3D(&down));
    printf("box: the same %d\n", memcmp(back, host, sizeof host) == 0);
    copy.srcPtr = make_cudaPitchedPtr(host + 3, W * 2, W, H);
    copy.srcPos = make_cudaPos(1, 2, 0);
    copy.dstPos = make_cudaPos(5, 1, 2);
    copy.extent = make_cudaExtent(9, 3, 2);
    CHECK(cudaMemcpy3DAsync(&copy, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy3D(&down));
    printf("part of a box: %016llx\n", checksum(back, sizeof back));
    cudaMemcpy3DParms across = {0};
    across.srcArray = three;
    across.dstArray = two;
    across.srcPos = make_cudaPos(2, 1, 3);
    across.dstPos = make_cudaPos(4, 2, 0);
    across.extent = make_cudaExtent(10, 3, 1);
    across.kind = cudaMemcpyDeviceToDevice;
    CHECK(cudaMemcpy3D(&across));
    show_array("from a box to a plane", two, H);

    // Another format with elements of the same size.
    cudaArray_t bytes;
    cudaChannelFormatDesc two_bytes = cudaCreateChannelDesc<uchar2>();
    CHECK(cudaMallocArray(&bytes, &two_bytes, W, H));
    CHECK(cudaMemcpy2DArrayToArray(bytes, 0, 0, two, 0, 0, W * 2, H));
    show_array("to another format", bytes, H);

    for (cudaArray_t array : {one, two, other, three, bytes}) CHECK(cudaFreeArray(array));
    CHECK(cudaFree(device));
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaStreamDestroy(stream));
    return 0;
}
