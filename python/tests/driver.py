"""The driver API, as far as the tests need it."""

import ctypes


class Driver:
    """The primary context of device 0, current in this thread."""

    def __init__(self):
        self.gates = []
        self.library = ctypes.CDLL("libcuda.so.1")
        self("cuInit", 0)
        context = ctypes.c_void_p()
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self("cuCtxSetCurrent", context)

    def __call__(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        assert status == 0, f"{name} returned {status}"

    def stream(self):
        stream = ctypes.c_void_p()
        self("cuStreamCreate", ctypes.byref(stream), 1)
        return stream.value

    def is_idle(self, stream):
        return self.library.cuStreamQuery(ctypes.c_void_p(stream)) == 0

    def synchronize(self):
        self("cuCtxSynchronize")

    def fill(self, block, value, stream):
        address, count = ctypes.c_uint64(block.ptr), ctypes.c_size_t(block.nbytes)
        self("cuMemsetD8Async", address, ctypes.c_ubyte(value), count, ctypes.c_void_p(stream))

    def read(self, block):
        self.synchronize()
        data = (ctypes.c_ubyte * block.nbytes)()
        self("cuMemcpyDtoH_v2", data, ctypes.c_uint64(block.ptr), ctypes.c_size_t(block.nbytes))
        return bytes(data)

    def gate(self, stream):
        """Holds a stream. Returns a function that opens the gate."""
        word = ctypes.c_void_p()
        self("cuMemHostAlloc", ctypes.byref(word), ctypes.c_size_t(4096), 2)
        value = ctypes.c_uint32.from_address(word.value)
        value.value = 0
        self("cuStreamWaitValue32_v2", ctypes.c_void_p(stream), ctypes.c_uint64(word.value), ctypes.c_uint32(1), 0)

        def open_gate():
            value.value = 1

        self.gates.append(open_gate)
        return open_gate

    def open_gates(self):
        for open_gate in self.gates:
            open_gate()
