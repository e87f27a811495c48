"""Makes Freehold PyTorch's allocator, for CUDA graphs too. To be called before anything of PyTorch uses the GPU."""

import ctypes


def use_freehold(path):
    """Plugs in libfreehold.so, which lies at `path`, and returns it."""
    import torch

    library = ctypes.CDLL(path)

    def address(function):
        return ctypes.cast(function, ctypes.c_void_p).value

    plugged = torch.cuda.memory.CUDAPluggableAllocator(path, "freehold_alloc", "freehold_free")
    allocator = plugged.allocator()
    # Without this PyTorch tells the allocator of no other stream that uses a tensor.
    allocator.set_record_stream_fn(address(library.freehold_record_use))
    # The memory of a graph stays its own until the graph is gone.
    allocator.set_begin_allocate_to_pool(address(library.freehold_pool_begin))
    allocator.set_end_allocate_to_pool_fn(address(library.freehold_pool_end))
    allocator.set_release_pool(address(library.freehold_pool_release))
    library.freehold_announce_captures()
    torch.cuda.memory.change_current_allocator(plugged)
    return library
