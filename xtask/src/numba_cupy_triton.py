"""The kernels of the Triton case of `numba_cupy.py`, in a file of their own, because Triton reads the source of each."""

import triton
import triton.language as tl


@triton.jit
def attend(q, k, v, to, count, scale, QUERIES: tl.constexpr, KEYS: tl.constexpr, WIDTH: tl.constexpr):
    """Softmax of the scaled products of queries and keys, times the values, a few keys at a time."""
    rows = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    columns = tl.arange(0, WIDTH)
    queries = tl.load(q + rows[:, None] * WIDTH + columns[None, :])
    largest = tl.full([QUERIES], float("-inf"), tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    sums = tl.zeros([QUERIES, WIDTH], tl.float32)
    for first in range(0, count, KEYS):
        some = first + tl.arange(0, KEYS)
        keys = tl.load(k + some[None, :] * WIDTH + columns[:, None])
        values = tl.load(v + some[:, None] * WIDTH + columns[None, :])
        products = tl.dot(queries, keys) * scale
        larger = tl.maximum(largest, tl.max(products, 1))
        weights = tl.exp(products - larger[:, None])
        shrink = tl.exp(largest - larger)
        total = total * shrink + tl.sum(weights, 1)
        sums = sums * shrink[:, None] + tl.dot(weights.to(tl.float16), values)
        largest = larger
    tl.store(to + rows[:, None] * WIDTH + columns[None, :], sums / total[:, None])


@triton.jit
def normalize(x, to, count, SIZE: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, SIZE)
    is_inside = columns < count
    values = tl.load(x + row * count + columns, mask=is_inside, other=0.0)
    mean = tl.sum(values) / count
    centred = tl.where(is_inside, values - mean, 0.0)
    deviation = tl.sqrt(tl.sum(centred * centred) / count)
    tl.store(to + row * count + columns, centred / deviation, mask=is_inside)


@triton.jit
def drop(x, to, count, seed, SIZE: tl.constexpr):
    """Keeps a quarter of the elements, four times as large."""
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    is_inside = at < count
    values = tl.load(x + at, mask=is_inside)
    tl.store(to + at, tl.where(tl.rand(seed, at) < 0.25, values * 4, 0.0), mask=is_inside)
