// Leaves memory of several kinds, and frees wrongly.
#include <stdlib.h>
#include <string.h>

struct channel { int x, y, z, w, kind; };
int cudaMalloc(void **, size_t);
int cudaFree(void *);
int cudaMallocHost(void **, size_t);
int cudaFreeHost(void *);
int cudaMallocManaged(void **, size_t, unsigned);
int cudaMallocAsync(void **, size_t, void *);
int cudaMallocArray(void **, const struct channel *, size_t, size_t, unsigned);
int cudaStreamCreate(void **);

static void *kept;

__attribute__((noinline)) static void *make(size_t bytes) {
    void *block;
    cudaMalloc(&block, bytes); // the line of make
    return block;
}

static void free_late(void) {
    cudaFree(kept);
}

int main(int count, char **words) {
    void *other;
    struct channel channel = {32, 0, 0, 0, 2};
    kept = make(1000000);
    atexit(free_late);
    if (!strcmp(words[count - 1], "clean")) {
        return 0;
    }
    for (int index = 0; index < 3; index++) {
        make(4096); // the line of the loop
    }
    cudaMallocHost(&other, 8192);
    cudaMallocManaged(&other, 5000, 1);
    cudaMallocAsync(&other, 6000, 0);
    cudaMallocArray(&other, &channel, 16, 16, 0);
    cudaStreamCreate(&other);

    void *twice = make(100);
    cudaFree(twice); // the line of the first free
    cudaFree(twice); // the line of the second free
    void *inside = make(200);
    cudaFree((char *)inside + 16);
    cudaFree(inside);
    cudaFree(&other);
    cudaMallocHost(&other, 10);
    cudaFree(other);
    cudaFreeHost(other);
    exit(7);
}
