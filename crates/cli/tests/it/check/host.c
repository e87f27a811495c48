/* Loads and stores of the host beside work that uses the same memory, one way for each word. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int cudaError_t;
typedef void *cudaStream_t;
cudaError_t cudaMalloc(void **, size_t), cudaFree(void *), cudaMallocHost(void **, size_t), cudaFreeHost(void *);
cudaError_t cudaMemcpyAsync(void *, const void *, size_t, int, cudaStream_t);
cudaError_t cudaLaunchHostFunc(cudaStream_t, void (*)(void *), void *);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *, unsigned), cudaStreamDestroy(cudaStream_t);
cudaError_t cudaStreamSynchronize(cudaStream_t);

enum { HALF = 512, WORDS = 2 * HALF };

static int *host;
static sigjmp_buf after;
static volatile int flag;

static void *write_first(void *none) {
    (void)none;
    host[7] = 1; /* in a thread */
    return NULL;
}

static void handle(int signal) {
    (void)signal;
    siglongjmp(after, 1);
}

static void raise_flag(void *none) {
    (void)none;
    flag = 1;
}

static void require(int is_right, const char *what) {
    if (is_right) return;
    printf("wrong: %s\n", what);
    exit(3);
}

int main(int count, char **words) {
    const char *word = count > 1 ? words[1] : "";
    int *device, sum = 0;
    cudaStream_t stream;
    cudaStreamCreateWithFlags(&stream, 1);
    cudaMalloc((void **)&device, WORDS * sizeof(int));
    cudaMallocHost((void **)&host, WORDS * sizeof(int));
    for (int i = 0; i < WORDS; i++) host[i] = i;
    cudaMemcpyAsync(device, host, HALF * sizeof(int), 1, stream); /* copy to the device */
    if (strcmp(word, "halves") == 0) {
        /* The rest of the page is the program's. */
        for (int i = HALF; i < WORDS; i++) host[i] *= 2;
        for (int i = HALF; i < WORDS; i++) sum += host[i];
        require(sum == 2 * HALF * (HALF + WORDS - 1) / 2, "the sum of the second half");
    } else if (strcmp(word, "reads") == 0) {
        for (int i = 0; i < WORDS; i++) sum += host[i];
        require(sum == WORDS * (WORDS - 1) / 2, "the sum");
    } else if (strcmp(word, "store") == 0) {
        host[HALF - 1] = 1; /* store */
    } else if (strcmp(word, "load") == 0) {
        cudaMemcpyAsync(host + HALF, device, HALF * sizeof(int), 2, stream); /* copy to the host */
        sum = host[HALF]; /* load */
    } else if (strcmp(word, "thread") == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, write_first, NULL);
        pthread_join(thread, NULL);
    } else if (strcmp(word, "handler") == 0) {
        /* The program's own handler gets what is not about this memory. */
        signal(SIGSEGV, handle);
        cudaMemcpyAsync(device, host, HALF * sizeof(int), 1, stream);
        host[WORDS - 1] = 5;
        if (sigsetjmp(after, 1) == 0) *(volatile int *)8 = 1;
        else sum = 1;
        require(sum == 1 && host[WORDS - 1] == 5, "the handler");
    } else if (strcmp(word, "flag") == 0) {
        /* A function in the stream tells the program that the copy is done. */
        cudaMemcpyAsync(host + HALF, device, HALF * sizeof(int), 2, stream);
        cudaLaunchHostFunc(stream, raise_flag, NULL);
        while (!flag) {}
        for (int i = 0; i < HALF; i++) sum += host[HALF + i];
        require(sum == HALF * (HALF - 1) / 2, "the sum of what was copied");
    }
    cudaStreamSynchronize(stream);
    cudaFree(device);
    cudaFreeHost(host);
    cudaStreamDestroy(stream);
    puts("done");
    return 0;
}
