// Peer access of a device to itself and to devices that do not exist.
#include "show.h"

int main() {
    int can = 77, value = 77;
    SHOW(cudaDeviceCanAccessPeer(&can, 0, 0));
    printf("to itself: %d\n", can);
    SHOW(cudaDeviceCanAccessPeer(&can, 0, 100));
    SHOW(cudaDeviceCanAccessPeer(NULL, 0, 0));
    SHOW(cudaDeviceEnablePeerAccess(0, 0));
    SHOW(cudaDeviceEnablePeerAccess(100, 0));
    SHOW(cudaDeviceEnablePeerAccess(0, 5));
    SHOW(cudaDeviceDisablePeerAccess(0));
    SHOW(cudaDeviceDisablePeerAccess(100));
    SHOW(cudaDeviceGetP2PAttribute(&value, cudaDevP2PAttrAccessSupported, 0, 0));
    SHOW(cudaDeviceGetP2PAttribute(&value, cudaDevP2PAttrAccessSupported, 0, 100));
    SHOW(cudaDeviceGetP2PAttribute(NULL, cudaDevP2PAttrAccessSupported, 0, 0));

    int *from = NULL, *to = NULL, host[4] = {1, 2, 3, 4}, back[4] = {};
    CHECK(cudaMalloc(&from, sizeof host));
    CHECK(cudaMalloc(&to, sizeof host));
    CHECK(cudaMemcpy(from, host, sizeof host, cudaMemcpyHostToDevice));
    SHOW(cudaMemcpyPeer(to, 0, from, 0, sizeof host));
    SHOW(cudaMemcpyPeer(to, 0, from, 100, sizeof host));
    SHOW(cudaMemcpyPeerAsync(to, -1, from, 0, sizeof host, 0));
    CHECK(cudaMemcpy(back, to, sizeof back, cudaMemcpyDeviceToHost));
    printf("%d %d %d %d\n", back[0], back[1], back[2], back[3]);
    return 0;
}
