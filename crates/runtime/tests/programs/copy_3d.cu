// Copies of boxes: parts, offsets, and between devices.
#include "show.h"

const size_t W = 48, H = 12, D = 6;
static unsigned char host[W * H * D], back[W * H * D];

static cudaMemcpy3DParms between(cudaPitchedPtr from, cudaPitchedPtr to, cudaExtent extent, cudaMemcpyKind kind) {
    cudaMemcpy3DParms copy = {0};
    copy.srcPtr = from;
    copy.dstPtr = to;
    copy.extent = extent;
    copy.kind = kind;
    return copy;
}

int main() {
    fill(host, sizeof host, 4);
    cudaPitchedPtr one, two, packed = make_cudaPitchedPtr(host, W, W, H), result = make_cudaPitchedPtr(back, W, W, H);
    CHECK(cudaMalloc3D(&one, make_cudaExtent(W, H, D)));
    CHECK(cudaMalloc3D(&two, make_cudaExtent(W, H, D)));
    cudaExtent all = make_cudaExtent(W, H, D);
    CHECK(cudaMemset3D(two, 0x77, all));

    cudaMemcpy3DParms copy = between(packed, one, all, cudaMemcpyHostToDevice);
    CHECK(cudaMemcpy3D(&copy));
    copy = between(one, two, make_cudaExtent(20, 5, 3), cudaMemcpyDeviceToDevice);
    copy.srcPos = make_cudaPos(7, 2, 1);
    copy.dstPos = make_cudaPos(3, 4, 2);
    CHECK(cudaMemcpy3DAsync(&copy, cudaStreamPerThread));
    CHECK(cudaDeviceSynchronize());
    copy = between(two, result, all, cudaMemcpyDeviceToHost);
    CHECK(cudaMemcpy3D(&copy));
    int wrong = 0;
    for (size_t z = 0; z < D; z++)
        for (size_t y = 0; y < H; y++)
            for (size_t x = 0; x < W; x++) {
                bool inside = x >= 3 && x < 23 && y >= 4 && y < 9 && z >= 2 && z < 5;
                size_t from = ((z - 2 + 1) * H + (y - 4 + 2)) * W + (x - 3 + 7);
                wrong += back[(z * H + y) * W + x] != (inside ? host[from] : 0x77);
            }
    printf("wrong %d, %016llx\n", wrong, checksum(back, sizeof back));

    cudaMemcpy3DPeerParms peer = {0};
    peer.srcPtr = one;
    peer.dstPtr = two;
    peer.extent = make_cudaExtent(W, H, 2);
    CHECK(cudaMemcpy3DPeer(&peer));
    peer.srcPos = peer.dstPos = make_cudaPos(0, 0, 4);
    CHECK(cudaMemcpy3DPeerAsync(&peer, 0));
    copy = between(two, result, all, cudaMemcpyDefault);
    CHECK(cudaMemcpy3D(&copy));
    printf("peer: %d %d, %016llx\n", memcmp(back, host, 2 * W * H) == 0, memcmp(back + 4 * W * H, host + 4 * W * H, 2 * W * H) == 0,
           checksum(back, sizeof back));

    copy.extent = make_cudaExtent(0, H, D);
    SHOW(cudaMemcpy3D(&copy));
    copy = between(two, result, make_cudaExtent(W + 1, 1, 1), cudaMemcpyDeviceToHost);
    SHOW(cudaMemcpy3D(&copy));
    copy = between(two, result, all, (cudaMemcpyKind)9);
    SHOW(cudaMemcpy3D(&copy));
    copy = between(two, make_cudaPitchedPtr(NULL, 0, 0, 0), all, cudaMemcpyDeviceToHost);
    SHOW(cudaMemcpy3D(&copy));
    SHOW(cudaMemcpy3D(NULL));
    peer.dstDevice = 99;
    SHOW(cudaMemcpy3DPeer(&peer));
    CHECK(cudaFree(one.ptr));
    CHECK(cudaFree(two.ptr));
    return 0;
}
