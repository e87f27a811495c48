// Copies in every direction, and what a direction checks.
#include "show.h"

const size_t BYTES = 100000;

int main() {
    static unsigned char source[BYTES], target[BYTES];
    unsigned char *one = NULL, *two = NULL, *pinned = NULL;
    CHECK(cudaMalloc(&one, BYTES));
    CHECK(cudaMalloc(&two, BYTES));
    CHECK(cudaMallocHost(&pinned, BYTES));

    fill(source, BYTES, 1);
    printf("source: %016llx\n", checksum(source, BYTES));
    CHECK(cudaMemcpy(one, source, BYTES, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(two, one, BYTES, cudaMemcpyDeviceToDevice));
    CHECK(cudaMemcpy(target, two, BYTES, cudaMemcpyDeviceToHost));
    printf("through the device: %016llx\n", checksum(target, BYTES));
    memset(target, 0, BYTES);
    CHECK(cudaMemcpy(target, source, BYTES, cudaMemcpyHostToHost));
    printf("on the host: %016llx\n", checksum(target, BYTES));

    fill(pinned, BYTES, 2);
    printf("pinned: %016llx\n", checksum(pinned, BYTES));
    CHECK(cudaMemcpy(one, pinned, BYTES, cudaMemcpyDefault));
    CHECK(cudaMemcpy(two, one, BYTES, cudaMemcpyDefault));
    CHECK(cudaMemcpy(target, two, BYTES, cudaMemcpyDefault));
    printf("by default: %016llx\n", checksum(target, BYTES));
    CHECK(cudaMemcpy(source, target, BYTES, cudaMemcpyDefault));
    printf("from host to host by default: %016llx\n", checksum(source, BYTES));

    CHECK(cudaMemcpy(two + 1001, one + 13, 777, cudaMemcpyDeviceToDevice));
    CHECK(cudaMemcpy(target + 5, two + 999, 781, cudaMemcpyDeviceToHost));
    printf("parts: %016llx\n", checksum(target, 1000));

    SHOW(cudaMemcpy(one, source, 0, cudaMemcpyHostToDevice));
    SHOW(cudaMemcpy(NULL, NULL, 0, cudaMemcpyDefault));
    SHOW(cudaMemcpy(one, source, 10, (cudaMemcpyKind)5));
    SHOW(cudaMemcpy(one, source, 10, (cudaMemcpyKind)-1));
    SHOW(cudaMemcpyAsync(one, source, 10, (cudaMemcpyKind)5, 0));
    SHOW(cudaMemcpy(one, two, 100, cudaMemcpyHostToDevice));
    SHOW(cudaMemcpy(target, source, 10, cudaMemcpyHostToDevice));
    SHOW(cudaMemcpy(target, source, 10, cudaMemcpyDeviceToHost));
    SHOW(cudaMemcpy(target, one, 10, cudaMemcpyDeviceToDevice));
    SHOW(cudaMemcpy(NULL, source, 10, cudaMemcpyHostToDevice));
    SHOW(cudaMemcpy(one, NULL, 10, cudaMemcpyHostToDevice));
    SHOW(cudaMemcpy(one + BYTES - 5, source, 10, cudaMemcpyHostToDevice));
    CHECK(cudaFree(one));
    CHECK(cudaFree(two));
    CHECK(cudaFreeHost(pinned));
    return 0;
}
