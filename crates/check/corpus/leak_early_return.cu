// A function returns early when there is nothing to do, and does not free its scratch memory then.
// On a GPU the memory is gone until the process ends. A server runs out of memory after days.
// Origin: error paths and short cuts.
// kind: leak
#include "corpus.h"

__global__ void sum(const int *in, int *scratch, int count) {
    int sum = 0;
    for (int i = 0; i < count; i++) sum += in[i];
    *scratch = sum;
}

static int sum_of(const int *in, int count) {
    int *scratch = NULL;
    CHECK(cudaMalloc(&scratch, BYTES)); // allocated
    if (count == 0) {
#ifdef FIXED
        CHECK(cudaFree(scratch));
#endif
        return 0;
    }
    sum<<<1, 1>>>(in, scratch, count);
    int result = read_back(scratch, 1)[0];
    CHECK(cudaFree(scratch));
    return result;
}

int main() {
    int *in = new_counted();
    bool is_right = sum_of(in, 100) == 4950 && sum_of(in, 0) == 0;
    CHECK(cudaFree(in));
    return finish(is_right);
}
