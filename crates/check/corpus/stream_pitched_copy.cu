// Two streams fill the left and the right columns of a plane. One copy is a column too wide, so that both write one column. In the
// corrected version the two copies share all rows, but no byte.
// On a GPU the later copy decides: the column is wrong in some runs.
// Origin: inclusive bounds passed as a width.
// kind: stream-race
#include "corpus.h"

const int ROWS = 16, COLUMNS = N / ROWS, HALF = COLUMNS / 2;

int main() {
    int *left = new_pinned(), *right = new_pinned(), *plane = new_zeroed();
    cudaStream_t first = new_stream(), second = new_stream();
#ifdef FIXED
    const int width = HALF;
#else
    const int width = HALF + 1;
#endif
    const size_t pitch = COLUMNS * sizeof(int);
    for (int i = 0; i < N; i++) left[i] = -1;
    hold(first);
    CHECK(cudaMemcpy2DAsync(plane, pitch, left, pitch, width * sizeof(int), ROWS, cudaMemcpyHostToDevice, first)); // other
    CHECK(cudaMemcpy2DAsync(plane + HALF, pitch, right + HALF, pitch, HALF * sizeof(int), ROWS, cudaMemcpyHostToDevice, second)); // access
    Numbers values = read_back(plane);
    bool is_right = true;
    for (int i = 0; i < N; i++) is_right = is_right && values[i] == (i % COLUMNS < HALF ? -1 : i);
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
    CHECK(cudaFree(plane));
    CHECK(cudaFreeHost(left));
    CHECK(cudaFreeHost(right));
    return finish(is_right);
}
