// Elimination in a matrix of doubles, column by column, without pivots.
// compile: --fmad=false
// launch: lu grid 1 block 12x12
// arg: inout f64 144 random 106

extern "C" __global__ void lu(double *matrix) {
    __shared__ double own[12][12];
    unsigned c = threadIdx.x, r = threadIdx.y;
    own[r][c] = matrix[r * 12 + c] + (r == c ? 50.0 : 0.0);
    __syncthreads();
    for (unsigned k = 0; k < 11; k++) {
        if (c == k && r > k) own[r][k] /= own[k][k];
        __syncthreads();
        if (r > k && c > k) own[r][c] -= own[r][k] * own[k][c];
        __syncthreads();
    }
    matrix[r * 12 + c] = own[r][c];
}
