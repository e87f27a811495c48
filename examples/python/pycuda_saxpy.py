"""y = a * x + y with PyCUDA: a context, memory, copies, a kernel of PTX, events, in whatever CUDA driver is there.

    freehold run --device soft -- python3 examples/python/pycuda_saxpy.py
"""

import numpy
import pycuda.driver as cuda

PTX = b"""
.version 7.0
.target sm_50
.address_size 64
.visible .entry saxpy(.param .f32 a, .param .u64 x, .param .u64 y, .param .u32 count)
{
    .reg .pred %outside;
    .reg .b32 %index, %block, %width, %limit;
    .reg .b64 %x, %y, %offset;
    .reg .f32 %a, %one, %other;
    mov.u32 %block, %ctaid.x;
    mov.u32 %width, %ntid.x;
    mov.u32 %index, %tid.x;
    mad.lo.u32 %index, %block, %width, %index;
    ld.param.u32 %limit, [count];
    setp.ge.u32 %outside, %index, %limit;
    @%outside ret;
    mul.wide.u32 %offset, %index, 4;
    ld.param.u64 %x, [x];
    add.u64 %x, %x, %offset;
    ld.param.u64 %y, [y];
    add.u64 %y, %y, %offset;
    ld.param.f32 %a, [a];
    ld.global.f32 %one, [%x];
    ld.global.f32 %other, [%y];
    fma.rn.f32 %other, %a, %one, %other;
    st.global.f32 [%y], %other;
    ret;
}
"""

COUNT = 1000


def main():
    cuda.init()
    device = cuda.Device(0)
    context = device.make_context()
    try:
        x = numpy.arange(COUNT, dtype=numpy.float32)
        y = numpy.ones(COUNT, dtype=numpy.float32)
        device_x = cuda.mem_alloc(x.nbytes)
        device_y = cuda.mem_alloc(y.nbytes)
        cuda.memcpy_htod(device_x, x)
        cuda.memcpy_htod(device_y, y)

        saxpy = cuda.module_from_buffer(PTX).get_function("saxpy")
        stream = cuda.Stream()
        start, end = cuda.Event(), cuda.Event()
        start.record(stream)
        saxpy(
            numpy.float32(2),
            device_x,
            device_y,
            numpy.uint32(COUNT),
            grid=((COUNT + 255) // 256, 1),
            block=(256, 1, 1),
            stream=stream,
        )
        end.record(stream)
        end.synchronize()
        assert start.time_till(end) >= 0

        result = numpy.empty_like(y)
        cuda.memcpy_dtoh(result, device_y)
        assert (result == 2 * x + 1).all()
        device_x.free()
        device_y.free()
        print(f"{device.name()}: {COUNT} elements are right")
    finally:
        context.pop()
        context.detach()


main()
