// Conway's game on a torus, a generation a launch.
// launch: life grid 2x2 block 16x16
// launch: life_back grid 2x2 block 16x16
// launch: life grid 2x2 block 16x16
// arg: inout u8 1024 value 0
// arg: inout u8 1024 random 41

__device__ void step(unsigned char *to, const unsigned char *from) {
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y, alive = 0;
    for (int dy = -1; dy <= 1; dy++)
        for (int dx = -1; dx <= 1; dx++)
            if (dx || dy) alive += from[((y + dy) & 31) * 32 + ((x + dx) & 31)] & 1;
    to[y * 32 + x] = alive == 3 || (alive == 2 && (from[y * 32 + x] & 1));
}

extern "C" __global__ void life(unsigned char *to, const unsigned char *from) { step(to, from); }
extern "C" __global__ void life_back(unsigned char *from, unsigned char *to) { step(to, from); }
