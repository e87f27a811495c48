// Allocation and release of device memory, and the thread's last error.
#include "show.h"

int main() {
    void *empty = (void *)1;
    SHOW(cudaMalloc(&empty, 0));
    printf("an empty block is null: %d\n", empty == NULL);
    SHOW(cudaFree(empty));
    SHOW(cudaMalloc((void **)NULL, 16));

    unsigned char *blocks[8];
    int aligned = 1, distinct = 1;
    for (int i = 0; i < 8; i++) {
        CHECK(cudaMalloc(&blocks[i], 1000 + i));
        aligned &= (size_t)blocks[i] % 256 == 0;
        for (int j = 0; j < i; j++) distinct &= blocks[i] >= blocks[j] + 1000 + j || blocks[j] >= blocks[i] + 1000 + i;
    }
    printf("aligned to 256: %d, disjoint: %d\n", aligned, distinct);

    SHOW(cudaFree(blocks[0] + 8));
    SHOW(cudaFree(blocks[0]));
    SHOW(cudaFree(blocks[0]));
    int local = 0;
    SHOW(cudaFree(&local));
    for (int i = 1; i < 8; i++) CHECK(cudaFree(blocks[i]));

    size_t before = 0, total = 0, during = 0, after = 0;
    CHECK(cudaMemGetInfo(&before, &total));
    void *large = NULL;
    CHECK(cudaMalloc(&large, 64 << 20));
    CHECK(cudaMemGetInfo(&during, &total));
    CHECK(cudaFree(large));
    CHECK(cudaMemGetInfo(&after, &total));
    printf("free memory is less by at least the block: %d, and comes back: %d, and is at most the total: %d\n",
           before - during >= 64 << 20, after == before, before <= total);

    SHOW(cudaMalloc(&large, total * 2));

    cudaError_t failed = cudaFree((void *)0x10);
    printf("failed: %s\n", cudaGetErrorName(failed));
    printf("peek: %s\n", cudaGetErrorName(cudaPeekAtLastError()));
    printf("a call that succeeds keeps the error: %s, ", cudaGetErrorName(cudaFree(NULL)));
    printf("%s\n", cudaGetErrorName(cudaPeekAtLastError()));
    printf("get: %s\n", cudaGetErrorName(cudaGetLastError()));
    printf("get again: %s\n", cudaGetErrorName(cudaGetLastError()));
    return 0;
}
