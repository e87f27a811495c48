// A barrier of the whole grid, by cooperative groups.
// launch: grid_sync grid 4 block 64 cooperative
// arg: inout u32 256 iota
// arg: out u32 256

#include <cooperative_groups.h>

extern "C" __global__ void grid_sync(unsigned *a, unsigned *b) {
    auto grid = cooperative_groups::this_grid();
    unsigned i = (unsigned)grid.thread_rank(), n = (unsigned)grid.size();
    for (unsigned round = 0; round < 4; round++) {
        b[i] = a[(i + 65) % n] + round;
        grid.sync();
        a[i] = b[(i * 3 + 1) % n];
        grid.sync();
    }
}
