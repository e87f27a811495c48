# An image of a Julia set in Numba: two dimensions, a division that checks for zero, doubles made into integers, and a
# loop in fixed point, so that no contraction of doubles can show.
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

from numba import cuda, float64, int64, uint32

TYPES = (uint32[:, ::1], float64, float64)


def kernel(image, real, imaginary):
    x, y = cuda.grid(2)
    if x < image.shape[1] and y < image.shape[0]:
        a = int64((3.0 * x / image.shape[1] - 1.5) * 65536.0)
        b = int64((3.0 * y / image.shape[0] - 1.5) * 65536.0)
        c = int64(real * 65536.0)
        d = int64(imaginary * 65536.0)
        steps = 0
        while (a * a + b * b) >> 32 < 4 and steps < 200:
            a, b = ((a * a - b * b) >> 16) + c, ((a * b) >> 15) + d
            steps += 1
        image[y, x] = steps
