// Lanes of a warp that take turns by bar.warp.sync, in a part of the warp first.
// launch: bar_warp_sync grid 1 block 32
// arg: out u32 64

extern "C" __global__ void bar_warp_sync(unsigned *out) {
    __shared__ volatile unsigned words[32];
    unsigned i = threadIdx.x;
    words[i] = i * i;
    if (i < 16) {
        __syncwarp(0x0000ffff);
        unsigned other = words[15 - i];
        __syncwarp(0x0000ffff);
        words[i] = other + 1;
    }
    __syncwarp();
    out[i] = words[31 - i];
    for (unsigned turn = 0; turn < 32; turn++) {
        if (i == turn) words[(turn + 1) % 32] += words[turn];
        __syncwarp();
    }
    out[32 + i] = words[i];
}
