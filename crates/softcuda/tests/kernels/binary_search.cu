// The first element that is not smaller, by halving.
// launch: binary_search grid 1 block 96
// arg: out u32 96
// arg: in u32 200 iota
// arg: in u32 96 random 46

extern "C" __global__ void binary_search(unsigned *out, const unsigned *sorted, const unsigned *keys) {
    unsigned key = keys[threadIdx.x] % 450, low = 0, high = 200;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (2 * sorted[middle] < key)
            low = middle + 1;
        else
            high = middle;
    }
    out[threadIdx.x] = low;
}
