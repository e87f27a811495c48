"""Numba, CuPy and NVRTC on the software device: `freehold run -- python3 numba_cupy.py PACKAGES NAME`, for one of the functions here."""

import site
import sys

# Unlike PYTHONPATH, this runs the file with which numba-cuda takes the place of numba.cuda.
site.addsitedir(sys.argv[1])

import numpy as np


def numba():
    from numba import config, cuda, float32, int32

    # These grids are small.
    config.CUDA_LOW_OCCUPANCY_WARNINGS = 0

    @cuda.jit
    def add(a, b, to):
        tile = cuda.shared.array(128, float32)
        i = cuda.grid(1)
        tile[cuda.threadIdx.x] = a[i] if i < a.size else 0
        cuda.syncthreads()
        # The neighbour's element, which another thread stored.
        j = cuda.threadIdx.x ^ 1
        if i ^ 1 < to.size:
            to[i ^ 1] = tile[j] + b[i ^ 1]

    @cuda.jit
    def histogram(values, counts):
        own = cuda.shared.array(8, int32)
        if cuda.threadIdx.x < 8:
            own[cuda.threadIdx.x] = 0
        cuda.syncthreads()
        i = cuda.grid(1)
        if i < values.size:
            cuda.atomic.add(own, values[i], 1)
        cuda.syncthreads()
        if cuda.threadIdx.x < 8:
            cuda.atomic.add(counts, cuda.threadIdx.x, own[cuda.threadIdx.x])

    a, b = np.arange(1000, dtype=np.float32), np.full(1000, 0.5, dtype=np.float32)
    to = cuda.to_device(np.zeros(1000, dtype=np.float32))
    add[8, 128](cuda.to_device(a), cuda.to_device(b), to)
    np.testing.assert_array_equal(to.copy_to_host(), a + b)

    values = (np.arange(5000) * 7 % 8).astype(np.int32)
    counts = cuda.to_device(np.zeros(8, dtype=np.int32))
    histogram[40, 128](cuda.to_device(values), counts)
    np.testing.assert_array_equal(counts.copy_to_host(), np.bincount(values, minlength=8))


def cupy():
    import cupy as cp

    assert cp.cuda.runtime.getDeviceCount() == 1
    a = cp.arange(1000, dtype=cp.float64)
    np.testing.assert_array_equal(cp.asnumpy(a * 2 + 1), np.arange(1000) * 2.0 + 1)
    assert float(a.sum()) == 499500.0
    assert (float(a.max()), int(a.argmin())) == (999.0, 0)
    np.testing.assert_array_equal(cp.asnumpy(cp.sort(a[::-1])), np.arange(1000.0))
    kernel = cp.RawKernel('extern "C" __global__ void triple(int *to) { to[threadIdx.x] = 3 * threadIdx.x; }', "triple")
    to = cp.zeros(32, dtype=cp.int32)
    kernel((1,), (32,), (to,))
    np.testing.assert_array_equal(cp.asnumpy(to), 3 * np.arange(32))


def triton():
    """Attention, a layer normalization and dropout in Triton, on arrays of CuPy: Triton's compiler calls the `ptxas` of `freehold run`."""
    import cupy as cp
    import numba_cupy_triton as kernels

    class Tensor:
        """An array as Triton wants a tensor."""

        def __init__(self, array):
            self.array = array
            self.dtype = f"torch.{array.dtype.name}"

        def data_ptr(self):
            return self.array.data.ptr

    random = np.random.default_rng(5)
    count, width = 128, 64
    q, k, v = (random.normal(0, 0.5, (count, width)).astype(np.float16) for _ in range(3))
    to = cp.empty((count, width), dtype=cp.float32)
    arguments = [Tensor(cp.asarray(array)) for array in (q, k, v)] + [Tensor(to)]
    kernels.attend[(count // 64,)](*arguments, count, 0.125, QUERIES=64, KEYS=32, WIDTH=width, num_stages=3)
    weights = np.exp(q.astype(float) @ k.astype(float).T * 0.125)
    expected = weights @ v.astype(float) / weights.sum(1, keepdims=True)
    np.testing.assert_allclose(to.get(), expected, atol=2e-3)

    x = random.normal(3, 2, (10, 200)).astype(np.float32)
    to = cp.empty_like(cp.asarray(x))
    kernels.normalize[(10,)](Tensor(cp.asarray(x)), Tensor(to), 200, SIZE=256)
    expected = (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)
    np.testing.assert_allclose(to.get(), expected, atol=1e-5)

    x = cp.arange(1, 5001, dtype=cp.float32)
    kept = []
    for seed in (1, 1, 2):
        to = cp.empty_like(x)
        kernels.drop[(5,)](Tensor(x), Tensor(to), 5000, seed, SIZE=1024)
        np.testing.assert_array_equal((to / x).get(), np.where(to.get() == 0, 0, 4))
        kept.append((to != 0).get())
    np.testing.assert_array_equal(kept[0], kept[1])
    assert not np.array_equal(kept[0], kept[2])
    assert 0.2 < kept[0].mean() < 0.3, kept[0].mean()


def nvml():
    import ctypes

    library = ctypes.CDLL("libnvidia-ml.so.1")
    count = ctypes.c_uint(99)
    assert library.nvmlInit_v2() == 0
    assert library.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0
    assert count.value == 1, count.value
    assert library.nvmlShutdown() == 0


def nvrtc():
    """A program compiled for sm_90, and its machine code, which the driver loads."""
    from cuda.bindings import driver, nvrtc as compiler

    def check(result):
        assert int(result[0]) == 0, result
        return result[1] if len(result) == 2 else result[1:]

    source = b'extern "C" __global__ void square(int *to) { to[threadIdx.x] = threadIdx.x * threadIdx.x; }'
    program = check(compiler.nvrtcCreateProgram(source, b"square.cu", 0, [], []))
    check(compiler.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=sm_90"]))
    image = b" " * check(compiler.nvrtcGetCUBINSize(program))
    check(compiler.nvrtcGetCUBIN(program, image))

    check(driver.cuInit(0))
    context = check(driver.cuDevicePrimaryCtxRetain(0))
    check(driver.cuCtxSetCurrent(context))
    module = check(driver.cuModuleLoadData(image))
    function = check(driver.cuModuleGetFunction(module, b"square"))
    memory = check(driver.cuMemAlloc(128))
    arguments = np.array([int(memory)], dtype=np.uint64)
    pointers = np.array([arguments.ctypes.data], dtype=np.uint64)
    check(driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, 0, pointers.ctypes.data, 0))
    to = np.zeros(32, dtype=np.int32)
    check(driver.cuMemcpyDtoH(to.ctypes.data, memory, 128))
    np.testing.assert_array_equal(to, np.arange(32) ** 2)


globals()[sys.argv[2]]()
