"""Arrays go from PyTorch to Freehold, CuPy and Numba and back without a copy, in the order of streams. Run under `freehold run`."""

import gc

import cupy
import numpy
import pytest
import torch
from numba import cuda

import freehold
import freehold.broker
from broker_support import Server, eventually


def test_a_tensor_goes_around_without_a_copy():
    tensor = torch.arange(12, dtype=torch.float32, device="cuda").reshape(3, 4)
    ours = freehold.from_dlpack(tensor)
    assert (ours.ptr, ours.shape, ours.strides, ours.dtype) == (tensor.data_ptr(), (3, 4), (16, 4), "float32")
    theirs = cupy.from_dlpack(ours)
    assert theirs.data.ptr == tensor.data_ptr()
    theirs += 1
    numbas = cuda.as_cuda_array(freehold.asarray(theirs)).reshape(12)
    # A copy instead of a kernel: Numba's compiler needs a newer nvJitLink than the one that PyTorch has loaded.
    numbas.copy_to_device(2 * numbas.copy_to_host())
    back = torch.from_dlpack(freehold.asarray(numbas).__dlpack__(stream=1))
    assert back.data_ptr() == tensor.data_ptr()
    assert back.tolist() == [2.0 * (number + 1) for number in range(12)]
    del tensor, ours, theirs, numbas
    gc.collect()
    assert back.sum().item() == 156.0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int8, torch.bool, torch.complex64, torch.float8_e4m3fn])
def test_types_of_pytorch_survive(dtype):
    tensor = torch.zeros(8, dtype=dtype, device="cuda")
    array = freehold.from_dlpack(tensor)
    assert f"torch.{array.dtype}" == str(dtype)
    assert torch.from_dlpack(array).dtype == dtype
    assert freehold.alloc(64).view(dtype, 8).dtype == array.dtype


def test_strided_tensors_survive():
    tensor = torch.arange(24, device="cuda").reshape(2, 3, 4).permute(2, 0, 1)[1:, :, ::2]
    again = torch.from_dlpack(freehold.from_dlpack(tensor))
    assert again.stride() == tensor.stride()
    assert again.tolist() == tensor.tolist()


def test_work_of_a_side_stream_is_waited_for():
    side = torch.cuda.Stream()
    block = freehold.alloc(1 << 22, stream=side)
    with torch.cuda.stream(side):
        numbers = torch.from_dlpack(block.view("float32"))
        for _ in range(50):
            numbers.fill_(1).add_(1)
    # CuPy works in the default stream, and waits for the other.
    assert float(cupy.from_dlpack(block.view("float32")).sum()) == 2.0 * (1 << 20)
    array = freehold.from_dlpack(torch.ones(1 << 20, device="cuda"), stream=side)
    with torch.cuda.stream(side):
        assert torch.from_dlpack(array).sum().item() == 1 << 20


def test_a_tensor_sees_a_vector_that_grows():
    cache = freehold.DeviceVec("float32")
    cache.resize(1000)
    first = torch.from_dlpack(cache)
    first.fill_(3)
    cache.resize(4_000_000)
    whole = torch.from_dlpack(cache.view((1000, 4000)))
    assert whole.data_ptr() == first.data_ptr()
    whole.view(-1)[1000:] = 1
    assert whole.sum().item() == 3 * 1000 + 3_999_000
    assert cupy.asarray(cache)[:1000].get().tolist() == [3.0] * 1000


def test_a_model_is_leased_and_computes_the_same():
    server = Server()
    broker = freehold.broker.connect(server.socket)
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)).to("cuda")
    numbers = torch.randn(5, 16, device="cuda")
    wanted = model(numbers)
    broker.publish("model", model.state_dict())
    other = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)).to("meta")
    lease = broker.lease("model")
    other.load_state_dict(lease.torch(), assign=True)
    assert other[0].weight.data_ptr() == lease["0.weight"].ptr
    torch.testing.assert_close(other(numbers), wanted, rtol=0, atol=0)
    with pytest.raises(BufferError, match="4 arrays use the lease"):
        lease.close()
    del other
    gc.collect()
    lease.close()
    broker.drop("model")
    eventually(lambda: broker.stats()[:3] == (0, 0, 0), "no memory is left at the broker")
    server.close()


def test_a_published_parameter_needs_no_detaching():
    server = Server()
    broker = freehold.broker.connect(server.socket)
    broker.publish("parameters", dict(torch.nn.Linear(3, 2).to("cuda").named_parameters()))
    leased = broker.lease("parameters").numba()
    assert leased["weight"].copy_to_host().shape == (2, 3)
    with pytest.raises(TypeError, match="array '' cannot be published: the array is the host's"):
        broker.publish("host", torch.zeros(3))
    del leased
    server.close()


def test_numpy_is_told_to_copy_first():
    with pytest.raises(BufferError, match="copy it to the device first"):
        freehold.from_dlpack(numpy.zeros(3))
