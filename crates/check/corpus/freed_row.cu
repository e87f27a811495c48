// A table of row pointers in device memory still has the address of a row that was freed.
// On a GPU the kernel reads memory that belongs to nobody, and the old numbers are still there.
// Origin: tables whose rows are owned one by one.
// kind: use-after-free
#include "corpus.h"

__global__ void first_of_rows(int *const *rows, int *out) {
    out[threadIdx.x] = rows[threadIdx.x][1]; // access
}

int main() {
    int *rows[4], **table = NULL, *out = new_zeroed(4);
    for (int row = 0; row < 4; row++) {
        CHECK(cudaMalloc(&rows[row], BYTES)); // allocated
        write_counted(rows[row]);
    }
    CHECK(cudaMalloc(&table, sizeof rows));
    CHECK(cudaMemcpy(table, rows, sizeof rows, cudaMemcpyHostToDevice));
#ifndef FIXED
    CHECK(cudaFree(rows[2])); // freed
#endif
    first_of_rows<<<1, 4>>>(table, out);
    bool is_right = is_linear(read_back(out, 4), 0, 1);
    for (int row = 0; row < 4; row++)
        if (IS_FIXED || row != 2) CHECK(cudaFree(rows[row]));
    CHECK(cudaFree(table));
    CHECK(cudaFree(out));
    return finish(is_right);
}
