// Copies of rectangles between memories of different pitches.
#include "show.h"

static unsigned char host[64 * 48], back[64 * 48];

int main() {
    fill(host, sizeof host, 3);
    unsigned char *wide = NULL, *narrow = NULL;
    size_t pitch = 0;
    CHECK(cudaMallocPitch(&wide, &pitch, 64, 48));
    CHECK(cudaMalloc(&narrow, 40 * 30));
    CHECK(cudaMemset(narrow, 0xee, 40 * 30));
    CHECK(cudaMemset2D(wide, pitch, 0x11, 64, 48));

    CHECK(cudaMemcpy2D(wide, pitch, host, 64, 64, 48, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy2D(narrow + 3, 40, wide + 5 * pitch + 7, pitch, 33, 20, cudaMemcpyDeviceToDevice));
    unsigned char part[40 * 30];
    CHECK(cudaMemcpy(part, narrow, sizeof part, cudaMemcpyDeviceToHost));
    int wrong = 0;
    for (int y = 0; y < 30; y++)
        for (int x = 0; x < 40; x++) {
            bool copied = y < 20 && x >= 3 && x < 36;
            wrong += part[y * 40 + x] != (copied ? host[(y + 5) * 64 + x - 3 + 7] : 0xee);
        }
    printf("part: wrong %d, %016llx\n", wrong, checksum(part, sizeof part));

    memset(back, 0, sizeof back);
    CHECK(cudaMemcpy2DAsync(back, 64, wide, pitch, 50, 48, cudaMemcpyDefault, cudaStreamPerThread));
    CHECK(cudaDeviceSynchronize());
    printf("fifty columns: %016llx\n", checksum(back, sizeof back));
    CHECK(cudaMemcpy2D(back, 64, host + 8, 64, 16, 40, cudaMemcpyHostToHost));
    printf("on the host: %016llx\n", checksum(back, sizeof back));
    CHECK(cudaMemcpy2D(back, 1, wide, pitch, 1, 48, cudaMemcpyDeviceToHost));
    printf("one column: %016llx\n", checksum(back, 48));

    SHOW(cudaMemcpy2D(narrow, 40, wide, pitch, 41, 2, cudaMemcpyDeviceToDevice));
    SHOW(cudaMemcpy2D(wide, pitch, narrow, 40, 41, 2, cudaMemcpyDeviceToDevice));
    SHOW(cudaMemcpy2DAsync(narrow, 40, wide, pitch, 41, 2, cudaMemcpyDeviceToDevice, 0));
    SHOW(cudaMemcpy2D(narrow, 40, wide, pitch, 0, 2, cudaMemcpyDeviceToDevice));
    SHOW(cudaMemcpy2D(narrow, 40, wide, pitch, 8, 0, cudaMemcpyDeviceToDevice));
    SHOW(cudaMemcpy2D(narrow, 40, wide, pitch, 8, 2, (cudaMemcpyKind)7));
    SHOW(cudaMemcpy2D(NULL, 40, wide, pitch, 8, 2, cudaMemcpyDeviceToDevice));
    SHOW(cudaMemcpy2D(narrow, 40, wide, pitch, 40, 31, cudaMemcpyDeviceToDevice));
    CHECK(cudaFree(wide));
    CHECK(cudaFree(narrow));
    return 0;
}
