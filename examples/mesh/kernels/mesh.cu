// The kernels of the mesh. Each one is a pure function of what it reads, and every arithmetic operation has an explicit
// rounding and order: whichever worker or device computes a tile, it gets the same bits.
// compile: compute_80

// Cells along the edge of a tile.
#define TILE 32
// The most steps of an epoch, which is also the width of a patch's margin around its tile, in its own cells.
#define STEPS 8
// Cells along the edge of a coarse patch, and of a fine one.
#define COARSE (TILE + 2 * STEPS)
#define FINE (2 * TILE + 2 * STEPS)
// The margin in which a tile is checked for steepness, and the cells along an edge that are checked, with one more to
// compare the last with.
#define AROUND 4
#define SEEN (TILE + 2 * AROUND + 1)
#define SOURCES 4

// The part of the surplus of its neighbours that a cell gains in a step: fine cells are half as wide.
#define COARSE_RATE 0.05f
#define FINE_RATE 0.2f
// A tile is refined if neighbouring cells differ by more.
#define STEEP 0.02f

// An epoch: cells along the edge of the domain, the first rows of the memory that is read and of the memory that is
// written, the steps, and the hot discs.
struct Frame {
    int size, in_row, out_row, steps;
    int x[SOURCES], y[SOURCES], radius[SOURCES];
};

// No heat leaves the domain: beyond its edge is its mirror image.
__device__ int mirrored(int at, int size) { return at < 0 ? -1 - at : at >= size ? 2 * size - 1 - at : at; }

// Whether a disc may reach a tile or its margin, so that most tiles need not check every cell.
__device__ bool reached(const Frame &frame, int left, int top) {
    bool is_near = false;
#pragma unroll
    for (int k = 0; k < SOURCES; k++) {
        int far = frame.radius[k] + STEPS;
        is_near |= frame.x[k] >= left - far && frame.x[k] < left + TILE + far && frame.y[k] >= top - far &&
                   frame.y[k] < top + TILE + far;
    }
    return is_near;
}

// A cell at the beginning of an epoch: discs are hot, if the tile is near one.
__device__ float cell(const float *in, const Frame &frame, bool is_near, int x, int y) {
    x = mirrored(x, frame.size);
    y = mirrored(y, frame.size);
    bool is_hot = false;
    if (is_near) {
#pragma unroll
        for (int k = 0; k < SOURCES; k++) {
            int across = x - frame.x[k], down = y - frame.y[k];
            is_hot |= across * across + down * down <= frame.radius[k] * frame.radius[k];
        }
    }
    return is_hot ? 1.0f : in[(long long)(y - frame.in_row) * frame.size + x];
}

// One step of a cell with its neighbours.
__device__ float step(float rate, float here, float left, float right, float up, float down) {
    float around = __fadd_rn(__fadd_rn(left, right), __fadd_rn(up, down));
    return __fmaf_rn(rate, __fmaf_rn(-4.0f, here, around), here);
}

// The slope of a cell: that of its flatter side, or none if the sides disagree in sign.
__device__ float slope(float before, float here, float after) {
    float first = __fsub_rn(here, before), second = __fsub_rn(after, here);
    if (first > 0.0f && second > 0.0f) return first < second ? first : second;
    if (first < 0.0f && second < 0.0f) return first > second ? first : second;
    return 0.0f;
}

__device__ unsigned mixed(unsigned bits) {
    bits = (bits ^ bits >> 16) * 0x7feb352du;
    bits = (bits ^ bits >> 15) * 0x846ca68bu;
    return bits ^ bits >> 16;
}

// Rows of the initial field: squares, some of them warm.
extern "C" __global__ void begin(float *out, int size, int row, int rows, unsigned seed) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= (long long)size * rows) return;
    unsigned x = at % size * 8 / size, y = (row + at / size) * 8 / size;
    unsigned bits = mixed(seed * 64u + y * 8u + x);
    out[at] = bits % 4 == 0 ? __fmul_rn((float)(bits >> 24), 1.0f / 512.0f) : 0.0f;
}

// Flags tiles that are steep, themselves or a few cells around them. One block per tile, from `first` on.
extern "C" __global__ void flag(unsigned *flags, const float *in, unsigned first, Frame frame) {
    __shared__ float patch[SEEN * SEEN];
    unsigned tile = first + blockIdx.x;
    int left = tile % (frame.size / TILE) * TILE, top = tile / (frame.size / TILE) * TILE;
    bool is_near = reached(frame, left, top);
    // One thread per cell of some rows; the remaining threads only wait.
    int x = threadIdx.x % SEEN, first_row = threadIdx.x / SEEN, rows = blockDim.x / SEEN, is_steep = 0;
    if (first_row == rows) first_row = SEEN;
    for (int y = first_row; y < SEEN; y += rows)
        patch[y * SEEN + x] = cell(in, frame, is_near, left - AROUND + x, top - AROUND + y);
    __syncthreads();
    for (int y = first_row; y < SEEN - 1 && x < SEEN - 1; y += rows) {
        const float *at = &patch[y * SEEN + x];
        is_steep |= fabsf(__fsub_rn(at[1], at[0])) > STEEP;
        is_steep |= fabsf(__fsub_rn(at[SEEN], at[0])) > STEEP;
    }
    is_steep = __syncthreads_or(is_steep);
    if (threadIdx.x == 0) flags[blockIdx.x] = is_steep;
}

// An epoch of tiles that are not refined: one block per tile, independent of all others.
extern "C" __global__ void coarse(float *out, const float *in, const unsigned *tiles, Frame frame) {
    __shared__ float patch[2][COARSE * COARSE];
    unsigned tile = tiles[blockIdx.x];
    int left = tile % (frame.size / TILE) * TILE, top = tile / (frame.size / TILE) * TILE;
    int x = threadIdx.x % COARSE, first = threadIdx.x / COARSE, rows = blockDim.x / COARSE, from = 0;
    bool is_near = reached(frame, left, top);
    for (int y = first; y < COARSE; y += rows)
        patch[0][y * COARSE + x] = cell(in, frame, is_near, left - STEPS + x, top - STEPS + y);
    for (int done = 1; done <= frame.steps; done++, from ^= 1) {
        __syncthreads();
        // With each step one more cell at the edge of the patch becomes invalid.
        if (x < done || x >= COARSE - done) continue;
        for (int y = first; y < COARSE; y += rows) {
            if (y < done || y >= COARSE - done) continue;
            const float *at = &patch[from][y * COARSE + x];
            patch[from ^ 1][y * COARSE + x] = step(COARSE_RATE, at[0], at[-1], at[1], at[-COARSE], at[COARSE]);
        }
    }
    __syncthreads();
    if (x < STEPS || x >= STEPS + TILE) return;
    for (int y = first; y < COARSE; y += rows)
        if (y >= STEPS && y < STEPS + TILE)
            out[(long long)(top + y - STEPS - frame.out_row) * frame.size + left + x - STEPS] = patch[from][y * COARSE + x];
}

// Fine patches for tiles: each coarse cell becomes four, with its slopes. One block per tile.
extern "C" __global__ void prolong(float *fine, const float *in, const unsigned *tiles, Frame frame) {
    unsigned tile = tiles[blockIdx.x];
    int left = tile % (frame.size / TILE) * TILE, top = tile / (frame.size / TILE) * TILE;
    float *patch = fine + (long long)blockIdx.x * FINE * FINE;
    int x = threadIdx.x % (FINE / 2);
    bool is_near = reached(frame, left, top);
    for (int y = threadIdx.x / (FINE / 2); y < FINE / 2; y += blockDim.x / (FINE / 2)) {
        int cx = left - STEPS / 2 + x, cy = top - STEPS / 2 + y;
        float here = cell(in, frame, is_near, cx, cy);
        float across = slope(cell(in, frame, is_near, cx - 1, cy), here, cell(in, frame, is_near, cx + 1, cy));
        float down = slope(cell(in, frame, is_near, cx, cy - 1), here, cell(in, frame, is_near, cx, cy + 1));
        float upper = __fmaf_rn(-0.25f, down, here), lower = __fmaf_rn(0.25f, down, here);
        float *at = &patch[2 * y * FINE + 2 * x];
        at[0] = __fmaf_rn(-0.25f, across, upper);
        at[1] = __fmaf_rn(0.25f, across, upper);
        at[FINE] = __fmaf_rn(-0.25f, across, lower);
        at[FINE + 1] = __fmaf_rn(0.25f, across, lower);
    }
}

// One step of fine patches, the `done`-th of the epoch. One block per patch.
extern "C" __global__ void refined(float *out, const float *in, int done) {
    long long start = (long long)blockIdx.x * FINE * FINE;
    int x = threadIdx.x % FINE;
    if (x < done || x >= FINE - done) return;
    for (int y = threadIdx.x / FINE; y < FINE; y += blockDim.x / FINE) {
        if (y < done || y >= FINE - done) continue;
        const float *at = &in[start + y * FINE + x];
        out[start + y * FINE + x] = step(FINE_RATE, at[0], at[-1], at[1], at[-FINE], at[FINE]);
    }
}

// The coarse cells of tiles, each the mean of four fine ones. One block per tile.
extern "C" __global__ void average(float *out, const float *fine, const unsigned *tiles, Frame frame) {
    unsigned tile = tiles[blockIdx.x];
    int left = tile % (frame.size / TILE) * TILE, top = tile / (frame.size / TILE) * TILE;
    const float *patch = fine + (long long)blockIdx.x * FINE * FINE;
    int x = threadIdx.x % TILE;
    for (int y = threadIdx.x / TILE; y < TILE; y += blockDim.x / TILE) {
        const float *at = &patch[(STEPS + 2 * y) * FINE + STEPS + 2 * x];
        float sum = __fadd_rn(__fadd_rn(at[0], at[1]), __fadd_rn(at[FINE], at[FINE + 1]));
        out[(long long)(top + y - frame.out_row) * frame.size + left + x] = __fmul_rn(0.25f, sum);
    }
}
