// Escape times: a loop that every lane leaves at its own time.
// launch: mandelbrot grid 4x2 block 8x16
// arg: out u16 1024

extern "C" __global__ void mandelbrot(unsigned short *image) {
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    float cr = -2.0f + x * (3.0f / 32), ci = -1.25f + y * (2.5f / 32), r = 0, i = 0;
    unsigned short steps = 0;
    while (r * r + i * i < 4.0f && steps < 500) {
        float t = r * r - i * i + cr;
        i = 2 * r * i + ci;
        r = t;
        steps++;
    }
    image[y * 32 + x] = steps;
}
