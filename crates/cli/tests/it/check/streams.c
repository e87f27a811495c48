/* Errors that `freehold check` finds, one for each word. With "fixed" as the second word the program is correct. */
#include <stdio.h>
#include <string.h>

typedef int cudaError_t;
typedef void *cudaStream_t, *cudaEvent_t;
cudaError_t cudaMalloc(void **, size_t), cudaFree(void *), cudaMallocHost(void **, size_t), cudaFreeHost(void *);
cudaError_t cudaMallocAsync(void **, size_t, cudaStream_t), cudaFreeAsync(void *, cudaStream_t);
cudaError_t cudaMemcpyAsync(void *, const void *, size_t, int, cudaStream_t), cudaMemsetAsync(void *, int, size_t, cudaStream_t);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *, unsigned), cudaStreamDestroy(cudaStream_t), cudaDeviceSynchronize(void);
cudaError_t cudaEventCreate(cudaEvent_t *), cudaEventRecord(cudaEvent_t, cudaStream_t), cudaEventDestroy(cudaEvent_t);
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned), cudaGetDeviceCount(int *);

enum { BYTES = 1 << 16 };

static cudaStream_t first, second;

/* Lets the second stream wait for the first. */
static void order(void) {
    cudaEvent_t event;
    cudaEventCreate(&event);
    cudaEventRecord(event, first);
    cudaStreamWaitEvent(second, event, 0);
    cudaEventDestroy(event);
}

int main(int count, char **words) {
    const char *kind = count > 1 ? words[1] : "";
    int is_fixed = count > 2 && strcmp(words[2], "fixed") == 0;
    void *block, *host;
    if (strcmp(kind, "count") == 0) return cudaGetDeviceCount(&is_fixed);
    cudaStreamCreateWithFlags(&first, 1);
    cudaStreamCreateWithFlags(&second, 1);
    cudaMalloc(&block, BYTES);
    cudaMallocHost(&host, BYTES);
    if (strcmp(kind, "race") == 0) {
        cudaMemcpyAsync(block, host, BYTES, 1, first); /* other */
        if (is_fixed) order();
        cudaMemsetAsync(block, 0, BYTES, second); /* access */
    } else if (strcmp(kind, "early") == 0) {
        void *ordered;
        cudaMallocAsync(&ordered, BYTES, first); /* allocated */
        if (is_fixed) order();
        cudaMemsetAsync(ordered, 0, BYTES, second); /* used */
        order();
        cudaFreeAsync(ordered, second);
    } else if (strcmp(kind, "twice") == 0 && !is_fixed) {
        cudaFree(block);
    }
    cudaDeviceSynchronize();
    cudaFree(block); /* freed */
    if (strcmp(kind, "leak") != 0 || is_fixed) cudaFreeHost(host);
    cudaStreamDestroy(first);
    cudaStreamDestroy(second);
    puts("done");
    return 0;
}
