// Functions of the host in stream order: callbacks, which get a status, and host functions, which do not.
#include "show.h"

static char text[256];

struct Note {
    const char *word;
    const int *value;
};

static void append(const Note *note) {
    size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, "%s=%d ", note->word, *note->value);
}

static void CUDART_CB note_callback(cudaStream_t, cudaError_t status, void *data) {
    append((const Note *)data);
    if (status != cudaSuccess) strcat(text, "failed ");
}

static void CUDART_CB note_function(void *data) { append((const Note *)data); }

__global__ void square(int *value) { *value *= *value; }

int main() {
    int *block = NULL;
    static int host[3] = {3, 0, 0};
    CHECK(cudaMalloc(&block, sizeof(int)));
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    Note notes[3] = {{"start", &host[0]}, {"square", &host[1]}, {"fourth", &host[2]}};
    CHECK(cudaStreamAddCallback(stream, note_callback, &notes[0], 0));
    CHECK(cudaMemcpyAsync(block, &host[0], sizeof(int), cudaMemcpyHostToDevice, stream));
    square<<<1, 1, 0, stream>>>(block);
    CHECK(cudaMemcpyAsync(&host[1], block, sizeof(int), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaLaunchHostFunc(stream, note_function, &notes[1]));
    square<<<1, 1, 0, stream>>>(block);
    CHECK(cudaMemcpyAsync(&host[2], block, sizeof(int), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamAddCallback(stream, note_callback, &notes[2], 0));
    CHECK(cudaStreamSynchronize(stream));
    printf("%s\n", text);
    SHOW(cudaStreamAddCallback(stream, note_callback, NULL, 1));
    SHOW(cudaStreamAddCallback(stream, NULL, NULL, 0));
    SHOW(cudaLaunchHostFunc(stream, NULL, NULL));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(block));
    return 0;
}
