// Cooperative groups as the newest compiler expands them.
// compile: cuda13
// launch: cuda13_groups grid 2 block 64
// arg: out u32 256
// arg: in u32 128 random 121

#include <cooperative_groups.h>

namespace cg = cooperative_groups;

extern "C" __global__ void cuda13_groups(unsigned *out, const unsigned *in) {
    auto block = cg::this_thread_block();
    auto tile = cg::tiled_partition<16>(block);
    unsigned i = blockIdx.x * 64 + threadIdx.x, sum = in[i];
    for (unsigned offset = tile.size() / 2; offset; offset /= 2) sum += tile.shfl_xor(sum, offset);
    out[i] = sum;
    block.sync();
    out[128 + i] = block.group_index().x * 1000 + tile.meta_group_rank() * 100 + tile.thread_rank();
}
