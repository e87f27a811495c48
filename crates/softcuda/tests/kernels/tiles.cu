// Tiles of cooperative groups: sizes, ranks, shuffles, votes, sums, and a coalesced group.
// launch: tiles grid 1 block 64
// arg: out u32 448
// arg: in u32 64 random 72

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

extern "C" __global__ void tiles(unsigned *out, const unsigned *in) {
    auto block = cg::this_thread_block();
    auto tile = cg::tiled_partition<8>(block);
    auto warp = cg::tiled_partition<32>(block);
    unsigned i = (unsigned)block.thread_rank(), x = in[i];
    out[i] = tile.thread_rank() + 100 * tile.meta_group_rank() + 10000 * tile.size();
    out[64 + i] = tile.shfl(x, 3) + tile.shfl_down(x, 2);
    out[128 + i] = tile.ballot(x & 1) | tile.any(x % 7 == 0) << 8 | tile.all(x % 7 != 0) << 9;
    out[192 + i] = cg::reduce(tile, x, cg::plus<unsigned>());
    out[256 + i] = cg::reduce(warp, (int)x, cg::less<int>());
    out[320 + i] = tile.match_any(x % 3);
    if (x & 4) {
        auto some = cg::coalesced_threads();
        out[384 + i] = some.num_threads() > 0;
    }
    block.sync();
}
