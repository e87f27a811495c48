// Batches of copies in one call.
#include "show.h"

int main() {
    const int count = 5;
    unsigned char source[count][64], *device[count], target[count][64];
    void *to[count];
    const void *from[count];
    size_t sizes[count];
    for (int i = 0; i < count; i++) {
        CHECK(cudaMalloc(&device[i], 64));
        CHECK(cudaMemset(device[i], 0xaa, 64));
        fill(source[i], 64, i);
        to[i] = device[i];
        from[i] = source[i];
        sizes[i] = 64 - i;
    }
    CHECK(cudaDeviceSynchronize());
    cudaMemcpyAttributes attributes[2] = {};
    attributes[0].srcAccessOrder = cudaMemcpySrcAccessOrderDuringApiCall;
    attributes[1].srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    size_t starts[2] = {0, 3};
    cudaStream_t stream = cudaStreamPerThread;
    CHECK(cudaMemcpyBatchAsync(to, from, sizes, count, attributes, starts, 2, stream));
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < count; i++) CHECK(cudaMemcpy(target[i], device[i], 64, cudaMemcpyDeviceToHost));
    for (int i = 0; i < count; i++)
        printf("%d: same %d, kept %d\n", i, memcmp(target[i], source[i], 64 - i) == 0, i == 0 || target[i][64 - i] == 0xaa);

    SHOW(cudaMemcpyBatchAsync(to, from, sizes, count, attributes, starts, 2, (cudaStream_t)0));
    size_t wrong[2] = {1, 3};
    SHOW(cudaMemcpyBatchAsync(to, from, sizes, count, attributes, wrong, 2, stream));
    attributes[1].srcAccessOrder = cudaMemcpySrcAccessOrderInvalid;
    SHOW(cudaMemcpyBatchAsync(to, from, sizes, count, attributes, starts, 2, stream));

    cudaMemcpy3DBatchOp copy = {};
    copy.src.type = copy.dst.type = cudaMemcpyOperandTypePointer;
    copy.src.op.ptr.ptr = source[0];
    copy.dst.op.ptr.ptr = device[0];
    copy.dst.op.ptr.rowLength = 16;
    copy.extent = make_cudaExtent(8, 4, 1);
    copy.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    CHECK(cudaMemset(device[0], 0, 64));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy3DBatchAsync(1, &copy, 0, stream));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(target[0], device[0], 64, cudaMemcpyDeviceToHost));
    int misplaced = 0;
    for (int i = 0; i < 64; i++) misplaced += target[0][i] != (i % 16 < 8 ? source[0][i / 16 * 8 + i % 16] : 0);
    printf("box: misplaced %d\n", misplaced);
    SHOW(cudaMemcpy3DBatchAsync(1, &copy, 1, stream));
    copy.extent.height = 0;
    SHOW(cudaMemcpy3DBatchAsync(1, &copy, 0, stream));
    for (int i = 0; i < count; i++) CHECK(cudaFree(device[i]));
    return 0;
}
