# An image of a Julia set in Numba's double precision, two dimensions, and a division that checks for zero.
# launch: kernel grid 2x2 block 8x8
# arg: value u64 0
# arg: value u64 0
# arg: value s64 256
# arg: value s64 4
# arg: out u32 256
# arg: value s64 16
# arg: value s64 16
# arg: value s64 64
# arg: value s64 4
# arg: value f64 -0.8
# arg: value f64 0.156

from numba import cuda, float64, uint32

TYPES = (uint32[:, ::1], float64, float64)


def kernel(image, real, imaginary):
    x, y = cuda.grid(2)
    if x < image.shape[1] and y < image.shape[0]:
        a = 3.0 * x / image.shape[1] - 1.5
        b = 3.0 * y / image.shape[0] - 1.5
        steps = 0
        while a * a + b * b < 4.0 and steps < 200:
            a, b = a * a - b * b + real, 2.0 * a * b + imaginary
            steps += 1
        image[y, x] = steps
