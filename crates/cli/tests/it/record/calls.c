// Allocates 40 blocks and frees half of them in a second thread, and two in a stream. With an argument, is killed at the end.
#include <pthread.h>
#include <signal.h>
#include <string.h>

int cudaMalloc(void **, size_t);
int cudaFree(void *);
int cudaMallocHost(void **, size_t);
int cudaMallocAsync(void **, size_t, void *);
int cudaFreeAsync(void *, void *);
int cudaStreamCreate(void **);
int cudaStreamSynchronize(void *);
int cudaMemset(void *, int, size_t);

static void *blocks[40];

static void *free_half(void *unused) {
    for (int index = 0; index < 20; index++) {
        cudaFree(blocks[index]);
    }
    return unused;
}

int main(int count, char **words) {
    void *stream, *ordered, *host;
    pthread_t thread;
    for (int index = 0; index < 40; index++) {
        cudaMalloc(&blocks[index], 1024 * (index + 1));
    }
    cudaMemset(blocks[0], 1, 1024);
    cudaMallocHost(&host, 64);
    pthread_create(&thread, 0, free_half, 0);
    pthread_join(thread, 0);
    cudaStreamCreate(&stream);
    for (int index = 0; index < 2; index++) {
        cudaMallocAsync(&ordered, 5000, stream);
        cudaFreeAsync(ordered, stream);
    }
    cudaStreamSynchronize(stream);
    cudaFree(words);
    if (count > 1 && !strcmp(words[1], "killed")) {
        raise(SIGKILL);
    }
    return 0;
}
