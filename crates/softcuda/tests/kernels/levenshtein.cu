// The distance of two words, along diagonals, with a barrier for each.
// compile: -lineinfo
// launch: levenshtein grid 1 block 64
// arg: out u32 1
// arg: in u8 48 random 101
// arg: in u8 40 random 102

extern "C" __global__ void levenshtein(unsigned *out, const unsigned char *a, const unsigned char *b) {
    __shared__ unsigned table[49][41];
    unsigned i = threadIdx.x;
    for (unsigned k = i; k <= 48; k += 64) table[k][0] = k;
    for (unsigned k = i; k <= 40; k += 64) table[0][k] = k;
    __syncthreads();
    for (unsigned diagonal = 2; diagonal <= 88; diagonal++) {
        unsigned row = i + 1, column = diagonal - row;
        if (row <= 48 && column >= 1 && column <= 40 && row < diagonal) {
            unsigned change = table[row - 1][column - 1] + (a[row - 1] % 4 != b[column - 1] % 4);
            table[row][column] = min(change, 1 + min(table[row - 1][column], table[row][column - 1]));
        }
        __syncthreads();
    }
    if (i == 0) *out = table[48][40];
}
