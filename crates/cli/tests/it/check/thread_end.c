/* Calls in the destructor of a thread's own value, which runs when the thread-locals of libraries are gone: correct. */
#include <pthread.h>
#include <stdio.h>

typedef int cudaError_t;
typedef void *cudaStream_t, *cudaEvent_t;
cudaError_t cudaMalloc(void **, size_t), cudaFree(void *), cudaDeviceSynchronize(void);
cudaError_t cudaMallocHost(void **, size_t), cudaFreeHost(void *);
cudaError_t cudaMemcpyAsync(void *, const void *, size_t, int, cudaStream_t), cudaMemsetAsync(void *, int, size_t, cudaStream_t);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *, unsigned), cudaStreamSynchronize(cudaStream_t);
cudaError_t cudaEventCreate(cudaEvent_t *), cudaEventRecord(cudaEvent_t, cudaStream_t), cudaEventDestroy(cudaEvent_t);

enum { BYTES = 4096, TO_HOST = 2, NON_BLOCKING = 1 };

static pthread_key_t key;
static cudaStream_t stream;
static void *block;
static char *host;
static int failures;

static void check(int error) { failures += error != 0; }

static void work(void) {
    cudaEvent_t event;
    check(cudaMemsetAsync(block, 1, BYTES, stream));
    check(cudaMemcpyAsync(host, block, BYTES, TO_HOST, stream));
    check(cudaEventCreate(&event));
    check(cudaEventRecord(event, stream));
    check(cudaStreamSynchronize(stream));
    check(cudaEventDestroy(event));
    check(host[0] != 1);
}

static void end(void *unused) {
    (void)unused;
    work();
}

static void *begin(void *unused) {
    work();
    check(pthread_setspecific(key, &key));
    return unused;
}

int main(void) {
    pthread_t thread;
    check(cudaStreamCreateWithFlags(&stream, NON_BLOCKING));
    check(cudaMalloc(&block, BYTES));
    check(cudaMallocHost((void **)&host, BYTES));
    check(pthread_key_create(&key, end));
    check(pthread_create(&thread, NULL, begin, NULL));
    check(pthread_join(thread, NULL));
    check(cudaFree(block));
    check(cudaFreeHost(host));
    puts(failures == 0 ? "done" : "calls failed");
    return 0;
}
