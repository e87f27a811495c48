// Fills with a byte, linear and of rectangles.
#include "show.h"

const size_t BYTES = 5000;

static void show(const char *name, const unsigned char *block) {
    static unsigned char host[BYTES];
    CHECK(cudaMemcpy(host, block, BYTES, cudaMemcpyDeviceToHost));
    unsigned counts[256] = {0};
    for (size_t i = 0; i < BYTES; i++) counts[host[i]]++;
    printf("%s:", name);
    for (int value = 0; value < 256; value++)
        if (counts[value]) printf(" %02x x %u", value, counts[value]);
    printf(", %016llx\n", checksum(host, BYTES));
}

int main() {
    unsigned char *block = NULL;
    CHECK(cudaMalloc(&block, BYTES));
    CHECK(cudaMemset(block, 0x5a, BYTES));
    show("all", block);
    CHECK(cudaMemset(block + 3, 0x1234, 10));
    show("the low byte counts", block);
    CHECK(cudaMemset(block, -1, 1));
    show("minus one", block);
    CHECK(cudaMemsetAsync(block + 4000, 0, 1000, cudaStreamPerThread));
    CHECK(cudaDeviceSynchronize());
    show("asynchronous", block);
    CHECK(cudaMemset2D(block + 10, 100, 7, 33, 20));
    show("rectangle", block);
    CHECK(cudaMemset2DAsync(block + 60, 100, 8, 5, 49, cudaStreamPerThread));
    CHECK(cudaDeviceSynchronize());
    show("narrow rectangle", block);

    unsigned char *pinned = NULL, *managed = NULL, local[8];
    CHECK(cudaMallocHost(&pinned, 100));
    CHECK(cudaMallocManaged(&managed, 100));
    CHECK(cudaMemset(pinned, 9, 100));
    CHECK(cudaMemset(managed, 10, 100));
    CHECK(cudaDeviceSynchronize());
    printf("pinned %d, managed %d\n", pinned[99], managed[99]);

    SHOW(cudaMemset(block, 1, 0));
    SHOW(cudaMemset(NULL, 1, 0));
    SHOW(cudaMemset2D(block, 100, 1, 0, 10));
    SHOW(cudaMemset2D(block, 100, 1, 10, 0));
    SHOW(cudaMemset(NULL, 1, 16));
    SHOW(cudaMemset(local, 1, sizeof local));
    SHOW(cudaMemset(block, 1, BYTES + 1));
    SHOW(cudaMemset2D(block, 10, 1, 11, 2));
    show("nothing changed", block);
    CHECK(cudaFree(block));
    CHECK(cudaFree(managed));
    CHECK(cudaFreeHost(pinned));
    return 0;
}
