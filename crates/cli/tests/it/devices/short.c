// Memory that was freed in the order of a stream whose work is held, when there is no other: cudaMalloc waits for that work, because
// any stream may use its block at once. A later allocation in another stream waits on the device.
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

int cudaMalloc(void **, size_t);
int cudaFree(void *);
int cudaMallocHost(void **, size_t);
int cudaMallocAsync(void **, size_t, void *);
int cudaFreeAsync(void *, void *);
int cudaMemset(void *, int, size_t);
int cudaMemsetAsync(void *, int, size_t, void *);
int cudaMemcpyAsync(void *, const void *, size_t, int, void *);
int cudaMemGetInfo(size_t *, size_t *);
int cudaStreamCreateWithFlags(void **, unsigned);
int cudaStreamQuery(void *);
int cudaLaunchHostFunc(void *, void (*)(void *), void *);
int cudaDeviceSynchronize(void);

static void check(int error, int line) {
    if (error != 0) {
        printf("line %d: error %d\n", line, error);
        exit(1);
    }
}
#define CHECK(call) check(call, __LINE__)

static int gate, is_close;

static int read_word(int *word) { return __atomic_load_n(word, __ATOMIC_SEQ_CST); }
static void write_word(int *word, int value) { __atomic_store_n(word, value, __ATOMIC_SEQ_CST); }

static void pass(void *word) {
    while (read_word(word) == 0) sched_yield();
}

// Opens the gate when the other thread is about to allocate.
static void *open_late(void *unused) {
    pass(&is_close);
    for (int i = 0; i < 100000; i++) sched_yield();
    write_word(&gate, 1);
    return unused;
}

int main(void) {
    void *first, *second;
    unsigned char *block, *next, *back[2];
    size_t available, total;
    pthread_t opener;
    CHECK(cudaStreamCreateWithFlags(&first, 1));
    CHECK(cudaStreamCreateWithFlags(&second, 1));
    for (int i = 0; i < 2; i++) CHECK(cudaMallocHost((void **)&back[i], 64));
    CHECK(cudaMemGetInfo(&available, &total));
    size_t bytes = available / 4 * 3;

    // Another stream's allocation does not wait on the host.
    CHECK(cudaMallocAsync((void **)&block, bytes, first));
    CHECK(cudaLaunchHostFunc(first, pass, &gate));
    CHECK(cudaMemsetAsync(block, 1, bytes, first));
    CHECK(cudaMemcpyAsync(back[0], block + bytes - 64, 64, 2, first));
    CHECK(cudaFreeAsync(block, first));
    CHECK(cudaMallocAsync((void **)&next, bytes, second));
    CHECK(cudaMemsetAsync(next, 2, bytes, second));
    CHECK(cudaMemcpyAsync(back[1], next + bytes - 64, 64, 2, second));
    printf("the second stream waits: %d\n", cudaStreamQuery(second) == 600 && read_word(&gate) == 0);
    write_word(&gate, 1);
    CHECK(cudaDeviceSynchronize());
    printf("%d %d\n", back[0][63], back[1][63]);
    CHECK(cudaFreeAsync(next, second));
    CHECK(cudaDeviceSynchronize());

    // That of cudaMalloc does.
    write_word(&gate, 0);
    CHECK(cudaMallocAsync((void **)&block, bytes, first));
    CHECK(cudaLaunchHostFunc(first, pass, &gate));
    CHECK(cudaMemsetAsync(block, 3, bytes, first));
    CHECK(cudaFreeAsync(block, first));
    if (pthread_create(&opener, NULL, open_late, NULL) != 0) return 1;
    write_word(&is_close, 1);
    CHECK(cudaMalloc((void **)&next, bytes));
    printf("cudaMalloc has waited: %d\n", read_word(&gate));
    CHECK(cudaMemsetAsync(next, 4, bytes, second));
    CHECK(cudaMemcpyAsync(back[1], next + bytes - 64, 64, 2, second));
    CHECK(cudaDeviceSynchronize());
    printf("%d\n", back[1][63]);
    pthread_join(opener, NULL);
    CHECK(cudaFree(next));
    return 0;
}
