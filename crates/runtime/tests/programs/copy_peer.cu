// Copies between devices by their numbers. One device is enough: it is its own peer.
#include "show.h"

int main() {
    const size_t bytes = 30000;
    static unsigned char host[bytes], back[bytes];
    fill(host, bytes, 5);
    unsigned char *one = NULL, *two = NULL;
    CHECK(cudaMalloc(&one, bytes));
    CHECK(cudaMalloc(&two, bytes));
    CHECK(cudaMemcpy(one, host, bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpyPeer(two, 0, one, 0, bytes));
    CHECK(cudaMemcpy(back, two, bytes, cudaMemcpyDeviceToHost));
    printf("same: %d\n", memcmp(host, back, bytes) == 0);
    CHECK(cudaMemset(two, 0, bytes));
    CHECK(cudaMemcpyPeerAsync(two + 100, 0, one, 0, 500, cudaStreamPerThread));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(back, two, bytes, cudaMemcpyDeviceToHost));
    printf("part: %d, before %d, after %d\n", memcmp(host, back + 100, 500) == 0, back[99], back[600]);

    int can = -1;
    SHOW(cudaDeviceCanAccessPeer(&can, 0, 0));
    printf("a device is not its peer: %d\n", can);
    SHOW(cudaMemcpyPeer(two, 0, one, 0, 0));
    SHOW(cudaMemcpyPeer(two, 99, one, 0, 16));
    SHOW(cudaMemcpyPeer(two, 0, one, -1, 16));
    SHOW(cudaMemcpyPeer(NULL, 0, one, 0, 16));
    CHECK(cudaFree(one));
    CHECK(cudaFree(two));
    return 0;
}
