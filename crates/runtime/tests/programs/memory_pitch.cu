// Rows of a common pitch: allocation, copies to and from packed rows, and a kernel that uses the pitch.
#include "show.h"

const int WIDTH = 100, HEIGHT = 37;

__global__ void transform(float *rows, size_t pitch, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    float *row = (float *)((char *)rows + y * pitch);
    row[x] = row[x] * 2 + y;
}

int main() {
    float *rows = NULL;
    size_t pitch = 0;
    CHECK(cudaMallocPitch(&rows, &pitch, WIDTH * sizeof(float), HEIGHT));
    printf("pitch of %zu bytes: %zu\n", WIDTH * sizeof(float), pitch);

    static float host[HEIGHT][WIDTH], back[HEIGHT][WIDTH];
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++) host[y][x] = (float)(y * 1000 + x);
    CHECK(cudaMemcpy2D(rows, pitch, host, sizeof host[0], sizeof host[0], HEIGHT, cudaMemcpyHostToDevice));
    dim3 block(16, 8), grid((WIDTH + 15) / 16, (HEIGHT + 7) / 8);
    transform<<<grid, block>>>(rows, pitch, WIDTH, HEIGHT);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy2D(back, sizeof back[0], rows, pitch, sizeof back[0], HEIGHT, cudaMemcpyDeviceToHost));

    int wrong = 0;
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++) wrong += back[y][x] != host[y][x] * 2 + y;
    printf("wrong elements: %d, first %g, last %g\n", wrong, back[0][0], back[HEIGHT - 1][WIDTH - 1]);
    CHECK(cudaFree(rows));

    size_t pitches[4];
    size_t widths[4] = {1, 512, 513, 4000};
    for (int i = 0; i < 4; i++) {
        void *block_start;
        CHECK(cudaMallocPitch(&block_start, &pitches[i], widths[i], 3));
        printf("pitch of %zu bytes: %zu\n", widths[i], pitches[i]);
        CHECK(cudaFree(block_start));
    }

    void *nothing = (void *)1;
    SHOW(cudaMallocPitch(&nothing, &pitch, 0, 10));
    printf("null: %d\n", nothing == NULL);
    nothing = (void *)1;
    SHOW(cudaMallocPitch(&nothing, &pitch, 10, 0));
    printf("null: %d\n", nothing == NULL);
    SHOW(cudaMallocPitch((void **)NULL, &pitch, 10, 10));
    return 0;
}
