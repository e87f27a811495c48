// Eight threads take memory until the limit of 64 MiB is reached, at the same time, many times. Prints how much they got together
// at most and at least.
#include <pthread.h>
#include <stdio.h>

int cudaMalloc(void **, size_t);
int cudaFree(void *);
int cudaMemGetInfo(size_t *, size_t *);

enum { THREADS = 8, ROUNDS = 20, BLOCKS = 64 };
static const size_t BYTES = 1 << 20;
static pthread_barrier_t barrier;
static int taken[THREADS];

static void *take(void *word) {
    void *blocks[BLOCKS];
    int *count = word;
    for (int round = 0; round < ROUNDS; round++) {
        *count = 0;
        pthread_barrier_wait(&barrier);
        while (*count < BLOCKS && cudaMalloc(&blocks[*count], BYTES) == 0) {
            ++*count;
        }
        pthread_barrier_wait(&barrier);
        for (int block = 0; block < *count; block++) {
            cudaFree(blocks[block]);
        }
        pthread_barrier_wait(&barrier);
    }
    return 0;
}

int main(void) {
    pthread_t threads[THREADS];
    int most = 0, least = 1000;
    pthread_barrier_init(&barrier, 0, THREADS + 1);
    for (int thread = 0; thread < THREADS; thread++) {
        pthread_create(&threads[thread], 0, take, &taken[thread]);
    }
    for (int round = 0; round < ROUNDS; round++) {
        int sum = 0;
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
        for (int thread = 0; thread < THREADS; thread++) {
            sum += taken[thread];
        }
        most = sum > most ? sum : most;
        least = sum < least ? sum : least;
        pthread_barrier_wait(&barrier);
    }
    for (int thread = 0; thread < THREADS; thread++) {
        pthread_join(threads[thread], 0);
    }
    size_t available, total;
    cudaMemGetInfo(&available, &total);
    printf("%d to %d of 64 blocks, %zu of %zu left\n", least, most, available, total);
    return 0;
}
