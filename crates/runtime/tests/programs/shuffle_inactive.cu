// What a shuffle returns for a lane that does not take part, as reductions over less than a warp ask for.
#include "show.h"

__global__ void reduce_eight(const int *from, int *to) {
    int lane = threadIdx.x;
    int value = from[lane];
    unsigned mask = __ballot_sync(0xffffffff, lane < 8);
    if (lane < 8) {
        for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(mask, value, offset);
    }
    to[lane] = value;
}

__global__ void read_others(const int *from, int *to) {
    int lane = threadIdx.x;
    int value = from[lane];
    to[lane] = 7;
    if (lane % 2 == 0) {
        to[lane] = __shfl_sync(0x55555555, value, lane + 1);
        to[lane + 32] = __shfl_xor_sync(0x55555555, value, 3);
    }
}

int main() {
    int host[64], back[64], *from, *to;
    for (int i = 0; i < 64; i++) host[i] = 100 + i;
    CHECK(cudaMalloc(&from, sizeof host));
    CHECK(cudaMalloc(&to, sizeof host));
    CHECK(cudaMemcpy(from, host, sizeof host, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(to, 0, sizeof host));
    reduce_eight<<<1, 32>>>(from, to);
    CHECK(cudaMemcpy(back, to, sizeof back, cudaMemcpyDeviceToHost));
    printf("sum of eight: %d, lane 31 keeps %d\n", back[0], back[31]);
    read_others<<<1, 32>>>(from, to);
    CHECK(cudaMemcpy(back, to, sizeof back, cudaMemcpyDeviceToHost));
    printf("%d %d %d, %d %d\n", back[0], back[2], back[30], back[32], back[34]);
    return 0;
}
