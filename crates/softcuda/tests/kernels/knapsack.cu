// The best load by weights: a row a round, two rows in turn.
// compile: compute_70
// launch: knapsack grid 1 block 101
// arg: out u32 101
// arg: in u8 40 random 111

extern "C" __global__ void knapsack(unsigned *out, const unsigned char *items) {
    __shared__ unsigned row[2][101];
    unsigned weight = threadIdx.x;
    row[0][weight] = 0;
    __syncthreads();
    for (unsigned k = 0; k < 20; k++) {
        unsigned heavy = 1 + items[2 * k] % 30, worth = items[2 * k + 1], best = row[k & 1][weight];
        if (weight >= heavy) best = max(best, row[k & 1][weight - heavy] + worth);
        row[~k & 1][weight] = best;
        __syncthreads();
    }
    out[weight] = row[0][weight];
}
