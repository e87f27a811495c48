// Distances in a graph, level by level, until no thread changes anything.
// compile: compute_80 --maxrregcount=32
// launch: breadth_first grid 1 block 128
// arg: out u32 128
// arg: in u32 384 random 103

extern "C" __global__ void breadth_first(unsigned *out, const unsigned *edges) {
    __shared__ unsigned distance[128];
    unsigned i = threadIdx.x;
    distance[i] = i == 0 ? 0 : ~0u;
    __syncthreads();
    for (unsigned level = 0;; level++) {
        bool changed = false;
        if (distance[i] == level)
            for (unsigned k = 0; k < 3; k++)
                changed |= atomicMin(&distance[edges[3 * i + k] % 128], level + 1) > level + 1;
        if (!__syncthreads_or(changed)) break;
    }
    out[i] = distance[i];
}
