// Lanes that leave loops at different times and meet again to vote, nested three deep.
// launch: early_leavers grid 1 block 64
// arg: out u32 192

extern "C" __global__ void early_leavers(unsigned *out) {
    unsigned i = threadIdx.x, lane = i % 32, sum = 0, votes = 0;
    for (unsigned a = 0; a < 4; a++) {
        for (unsigned b = 0; b <= lane % 5; b++) {
            unsigned c = 0;
            while ((c * 7 + a + b) % 11 != lane % 11) c++;
            if (c > 8) continue;
            sum += c * (a + 1);
        }
        votes = votes << 8 | __popc(__ballot_sync(0xffffffff, sum & 1));
        if (__any_sync(0xffffffff, sum > 1000)) break;
    }
    out[i] = sum;
    out[64 + i] = votes;
    __syncthreads();
    if (lane & 1) {
        if (lane & 2) {
            if (lane & 4) sum += 1;
            else sum += 2;
            __syncwarp(0x88888888);
        }
        sum *= 3;
    }
    __syncwarp();
    out[128 + i] = __shfl_xor_sync(0xffffffff, sum, 1);
}
