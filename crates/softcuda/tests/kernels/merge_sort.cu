// Sorted runs merged by the place of each element in the other run.
// launch: merge_sort grid 1 block 128
// arg: inout u32 128 random 109

extern "C" __global__ void merge_sort(unsigned *values) {
    __shared__ unsigned a[128], b[128];
    unsigned i = threadIdx.x, *from = a, *to = b;
    a[i] = values[i];
    for (unsigned run = 1; run < 128; run *= 2) {
        __syncthreads();
        unsigned start = i / (2 * run) * 2 * run, mine = (i - start) / run, other = start + (1 - mine) * run;
        unsigned key = from[i], low = 0, high = run;
        while (low < high) {
            unsigned middle = (low + high) / 2, seen = from[other + middle];
            if (seen < key || (mine && seen == key))
                low = middle + 1;
            else
                high = middle;
        }
        to[start + (i - start) % run + low] = key;
        unsigned *t = from;
        from = to;
        to = t;
    }
    __syncthreads();
    values[i] = from[i];
}
