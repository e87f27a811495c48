// Quicksort by recursion, each thread a row in local memory.
// launch: quicksort grid 1 block 8
// arg: inout s32 128 random 67

__device__ __noinline__ void sort(int *row, int low, int high) {
    if (low >= high) return;
    int pivot = row[(low + high) / 2], i = low, j = high;
    while (i <= j) {
        while (row[i] < pivot) i++;
        while (row[j] > pivot) j--;
        if (i <= j) {
            int t = row[i];
            row[i++] = row[j];
            row[j--] = t;
        }
    }
    sort(row, low, j);
    sort(row, i, high);
}

extern "C" __global__ void quicksort(int *values) {
    int row[16];
    for (int k = 0; k < 16; k++) row[k] = values[threadIdx.x * 16 + k];
    sort(row, 0, 15);
    for (int k = 0; k < 16; k++) values[threadIdx.x * 16 + k] = row[k];
}
