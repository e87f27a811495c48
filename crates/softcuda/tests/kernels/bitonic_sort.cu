// Sorts a block's words in a network of comparisons.
// launch: bitonic_sort grid 1 block 256
// arg: inout s32 256 random 37

extern "C" __global__ void bitonic_sort(int *values) {
    __shared__ int own[256];
    unsigned i = threadIdx.x;
    own[i] = values[i];
    __syncthreads();
    for (unsigned size = 2; size <= 256; size *= 2) {
        for (unsigned stride = size / 2; stride > 0; stride /= 2) {
            unsigned other = i ^ stride;
            if (other > i) {
                bool ascending = (i & size) == 0;
                int a = own[i], b = own[other];
                if ((a > b) == ascending) {
                    own[i] = b;
                    own[other] = a;
                }
            }
            __syncthreads();
        }
    }
    values[i] = own[i];
}
