// Frees that do not wait, under a limit of 64 MiB: a freed block that is still in use counts as free, and an allocation that needs
// its memory waits for it.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

typedef unsigned long long address;
struct channel { int x, y, z, w, kind; };
int cudaMalloc(void **, size_t);
int cudaFree(void *);
int cudaMallocArray(void **, const struct channel *, size_t, size_t, unsigned);
int cudaFreeArray(void *);
int cudaMemGetInfo(size_t *, size_t *);
int cudaStreamCreate(void **);
int cudaLaunchHostFunc(void *, void (*)(void *), void *);
int cuMemAlloc_v2(address *, size_t);
int cuMemFree_v2(address);
int cuMemGetInfo_v2(size_t *, size_t *);

static const size_t MIB = 1 << 20;
static atomic_int may_end, asks;

static void busy(void *unused) {
    (void)unused;
    while (!atomic_load(&may_end)) {
    }
}

static void *end(void *unused) {
    while (!atomic_load(&asks)) {
    }
    atomic_store(&may_end, 1);
    return unused;
}

/// Frees 60 MiB while work is pending, and says what is free. The work ends when an allocation is about to be made.
static void free_in_use(void *stream, void *block, pthread_t *thread) {
    size_t available, total, seen_by_driver;
    atomic_store(&may_end, 0);
    atomic_store(&asks, 0);
    cudaLaunchHostFunc(stream, busy, 0);
    printf("%d", cudaFree(block));
    cudaMemGetInfo(&available, &total);
    cuMemGetInfo_v2(&seen_by_driver, &total);
    printf(" %zu %zu", available, seen_by_driver);
    pthread_create(thread, 0, end, 0);
    atomic_store(&asks, 1);
}

int main(void) {
    void *stream, *block, *array;
    address driver;
    pthread_t thread;
    struct channel channel = {32, 0, 0, 0, 2};
    cudaStreamCreate(&stream);
    printf("%d\n", cudaMalloc(&block, 60 * MIB));

    free_in_use(stream, block, &thread);
    printf(", cudaMalloc: %d\n", cudaMalloc(&block, 62 * MIB));
    pthread_join(thread, 0);

    free_in_use(stream, block, &thread);
    printf(", cuMemAlloc: %d\n", cuMemAlloc_v2(&driver, 60 * MIB));
    pthread_join(thread, 0);
    printf("%d", cuMemFree_v2(driver));
    printf(" %d\n", cudaMalloc(&block, 60 * MIB));

    free_in_use(stream, block, &thread);
    printf(", cudaMallocArray: %d\n", cudaMallocArray(&array, &channel, 3840, 4096, 0));
    pthread_join(thread, 0);
    printf("%d", cudaMalloc(&block, 5 * MIB));
    printf(" %d", cudaFreeArray(array));
    printf(" %d\n", cudaMalloc(&block, 64 * MIB));
    return 0;
}
