"""Freehold as a memory resource of cuda.core. Run under `freehold run`."""

import numpy
import pytest

core = pytest.importorskip("cuda.core")

import freehold  # noqa: E402
import freehold.cuda_core  # noqa: E402


@pytest.fixture
def device():
    device = core.Device(0)
    device.set_current()
    before = device.memory_resource
    device.memory_resource = freehold.cuda_core.MemoryResource(device)
    yield device
    device.memory_resource = before


def test_buffers_are_blocks_of_the_pool(device):
    stream = device.create_stream()
    before = freehold.live_bytes()
    buffer = device.allocate(1000, stream=stream)
    assert buffer.size == 1000 and buffer.is_device_accessible and not buffer.is_host_accessible
    assert freehold.owner_of(int(buffer.handle)).nbytes == 1000
    buffer.close()
    assert freehold.live_bytes() == before
    stream.sync()


def test_a_collected_buffer_is_freed(device):
    stream = device.create_stream()
    before = freehold.live_bytes()
    buffer = device.allocate(1 << 20, stream=stream)
    assert freehold.live_bytes() == before + (1 << 20)
    del buffer
    assert freehold.live_bytes() == before


def test_buffers_are_filled_and_copied(device):
    stream = device.create_stream()
    buffer = device.allocate(64, stream=stream)
    buffer.fill(7, stream=stream)
    copied = buffer.copy_to(stream=stream)
    assert freehold.owner_of(int(copied.handle)).nbytes == 64
    host = core.LegacyPinnedMemoryResource().allocate(64, stream=stream)
    copied.copy_to(host, stream=stream)
    stream.sync()
    assert numpy.from_dlpack(host).tobytes() == bytes([7] * 64)


def test_a_shortage_is_explained(device):
    stream = device.create_stream()
    with pytest.raises(freehold.OutOfMemoryError, match="^out of memory: .*request less than the device has"):
        device.allocate(1 << 60, stream=stream)


def test_it_describes_itself(device):
    assert repr(device.memory_resource).startswith("<freehold.cuda_core.MemoryResource of device 0, ")
