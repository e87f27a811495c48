// A running sum of each warp by shuffles, with a last warp that is not full.
// launch: scan_warp grid 1 block 77
// arg: out s32 77
// arg: in s32 77 random 34

extern "C" __global__ void scan_warp(int *out, const int *in) {
    unsigned members = __activemask();
    int lane = threadIdx.x % 32, value = in[threadIdx.x];
    for (int offset = 1; offset < 32; offset *= 2) {
        int before = __shfl_up_sync(members, value, offset);
        if (lane >= offset) value += before;
    }
    out[threadIdx.x] = value;
}
