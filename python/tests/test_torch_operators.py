"""PyTorch's operators on the software device: they equal those of the CPU, in the order of streams."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import freehold.torch.operators as operators  # noqa: E402

pytestmark = pytest.mark.skipif(not operators.is_enabled(), reason="not under `freehold run --device soft`")


def on_both(compute, *shapes):
    """Returns what a function computes from the same numbers on the CPU and on the device."""
    generator = torch.Generator().manual_seed(7)
    tensors = [torch.randn(shape, generator=generator) for shape in shapes]
    return compute(*tensors), compute(*[tensor.cuda() for tensor in tensors])


def losses(model, inputs, targets, device, steps=5, optimizer=torch.optim.SGD, **options):
    """Returns the losses of a few steps of training."""
    model = model.to(device)
    inputs, targets = inputs.to(device), targets.to(device)
    optimizer = optimizer(model.parameters(), lr=0.05, **options)
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def assert_trains_alike(make, inputs, classes, **options):
    targets = torch.arange(inputs.shape[0]) % classes
    torch.manual_seed(3)
    expected = losses(make(), inputs, targets, "cpu", **options)
    torch.manual_seed(3)
    found = losses(make(), inputs, targets, "cuda", **options)
    assert found == pytest.approx(expected, rel=1e-4)
    assert found[-1] < found[0]


def test_a_perceptron_trains_as_on_the_cpu():
    def make():
        return torch.nn.Sequential(torch.nn.Linear(12, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))

    inputs = torch.randn(16, 12, generator=torch.Generator().manual_seed(1))
    assert_trains_alike(make, inputs, 4)
    assert_trains_alike(make, inputs, 4, optimizer=torch.optim.AdamW)
    assert_trains_alike(make, inputs, 4, optimizer=torch.optim.Adam, fused=True)


def test_a_convolutional_network_trains_as_on_the_cpu():
    def make():
        nn = torch.nn
        features = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, groups=2)]
        return nn.Sequential(*features, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))

    inputs = torch.randn(10, 3, 12, 12, generator=torch.Generator().manual_seed(1))
    assert_trains_alike(make, inputs, 5)


def test_a_tensor_prints_its_elements():
    text = str(torch.arange(3, device="cuda") * 1.5)
    assert text == "tensor([0.0000, 1.5000, 3.0000], device='cuda:0')"


def test_the_same_seed_gives_the_same_numbers():
    torch.manual_seed(11)
    first = torch.rand(100, device="cuda"), torch.randn(100, device="cuda")
    torch.manual_seed(11)
    second = torch.rand(100, device="cuda"), torch.randn(100, device="cuda")
    assert torch.equal(first[0], second[0]) and torch.equal(first[1], second[1])
    assert not torch.equal(torch.rand(100, device="cuda"), first[0])
    assert 0.3 < first[0].mean().item() < 0.7


def test_random_numbers_of_the_device_leave_those_of_the_cpu_alone():
    torch.manual_seed(11)
    expected = torch.rand(4)
    torch.manual_seed(11)
    torch.nn.functional.dropout(torch.ones(10, device="cuda"), 0.5)
    torch.rand(4, device="cuda")
    assert torch.equal(torch.rand(4), expected)


def test_wrong_shapes_are_an_error_of_the_call():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        torch.ones(2, 3, device="cuda") @ torch.ones(2, 3, device="cuda")
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.ones(2, device="cuda") + torch.ones(2)
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        torch.ones(5, 1, device="cuda").logical_and_(torch.ones(5, 5, device="cuda"))


def test_a_value_that_is_wrong_for_zeros_is_computed():
    numbers = torch.tensor([4, 9], device="cuda")
    assert (numbers // numbers).tolist() == [1, 1]
    assert torch.multinomial(torch.tensor([0.0, 1.0], device="cuda"), 1).tolist() == [1]


def test_an_index_out_of_range_is_an_error_of_the_next_wait():
    wrong = torch.tensor([9], device="cuda")
    torch.zeros(3, device="cuda").gather(0, wrong)
    with pytest.raises(RuntimeError, match="aten::gather failed on the software device: .*out of bounds"):
        torch.cuda.synchronize()
    assert torch.ones(2, device="cuda").sum().item() == 2
def test_a_transformer_trains_as_on_the_cpu():
    def make():
        layer = torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
        return torch.nn.Sequential(torch.nn.TransformerEncoder(layer, 2), torch.nn.Flatten(), torch.nn.Linear(16 * 6, 3))

    inputs = torch.randn(8, 6, 16, generator=torch.Generator().manual_seed(1))
    assert_trains_alike(make, inputs, 3, optimizer=torch.optim.AdamW)




def test_dropout_of_attention_has_the_gradients_of_what_it_computed():
    attend = torch.nn.functional.scaled_dot_product_attention
    query, key, value = (torch.randn(1, 2, 8, 4, device="cuda", dtype=torch.double, requires_grad=True) for _ in range(3))

    def seeded(*tensors):
        torch.manual_seed(5)
        return attend(*tensors, dropout_p=0.5, is_causal=True)

    assert not torch.allclose(seeded(query, key, value), attend(query, key, value, is_causal=True))
    assert torch.autograd.gradcheck(seeded, (query, key, value))


def test_recurrent_networks_equal_those_of_the_cpu():
    for kind in (torch.nn.LSTM, torch.nn.GRU):
        torch.manual_seed(2)
        network = kind(5, 7, num_layers=2, bidirectional=True)
        inputs = torch.randn(4, 3, 5)
        expected = network(inputs)[0]
        expected.sum().backward()
        gradient = network.weight_ih_l0.grad.clone()
        network.zero_grad()
        found = network.cuda()(inputs.cuda())[0]
        found.sum().backward()
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(network.weight_ih_l0.grad.cpu(), gradient, rtol=1e-4, atol=1e-5)


def test_layer_norm_of_halves_is_computed_in_single_precision():
    def compute(device, dtype):
        generator = torch.Generator().manual_seed(5)
        values = [torch.randn(shape, generator=generator).half() for shape in ((6, 64), (64,), (64,))]
        tensors = [value.to(device, dtype).requires_grad_() for value in values]
        result = torch.nn.functional.layer_norm(tensors[0], (64,), *tensors[1:])
        result.square().mean().backward()
        return [result, *(tensor.grad for tensor in tensors)]

    for made, expected in zip(compute("cuda", torch.half), compute("cpu", torch.float)):
        assert made.dtype == torch.half
        torch.testing.assert_close(made.float().cpu(), expected, atol=2e-3, rtol=2e-3)


def normalized_in_parts(whole, gradient, weight, bias, running, sizes):
    """Normalizes a batch in parts, as the processes of SyncBatchNorm do. Returns the result, gradients and running statistics."""
    parts, count = whole.split(sizes), torch.tensor([size * whole[0, 0].numel() for size in sizes], device=whole.device)
    means, deviations = zip(*[torch.batch_norm_stats(part, 1e-5) for part in parts])
    counts = count.to(means[0].dtype)
    mean, deviation = torch.batch_norm_gather_stats_with_counts(
        whole, torch.stack(means), torch.stack(deviations), *running, 0.1, 1e-5, counts
    )
    result = torch.batch_norm_elemt(whole, weight, bias, mean, deviation, 1e-5)
    pairs = zip(gradient.split(sizes), parts)
    each = [torch.batch_norm_backward_reduce(*pair, mean, deviation, weight, True, True, True) for pair in pairs]
    sums = [torch.stack(tensors).sum(0) for tensors in zip(*each)]
    to_input = torch.batch_norm_backward_elemt(gradient, whole, mean, deviation, weight, *sums[:2], count.int())
    return [result, to_input, sums[2], sums[3], *running]


@pytest.mark.parametrize("sizes", [[4, 2], [1, 5], [6]])
def test_a_batch_normalized_in_parts_equals_the_whole(sizes):
    generator = torch.Generator().manual_seed(11)
    whole, gradient = torch.randn(2, 6, 3, 5, generator=generator).add(2).unbind()
    weight, bias = torch.rand(2, 3, generator=generator).unbind()
    inputs = [tensor.clone().requires_grad_() for tensor in (whole, weight, bias)]
    running = [torch.zeros(3), torch.ones(3)]
    expected = torch.nn.functional.batch_norm(inputs[0], *running, *inputs[1:], training=True)
    expected.backward(gradient)
    tensors = [one.cuda() for one in (whole, gradient, weight, bias)]
    found = normalized_in_parts(*tensors, [torch.zeros(3).cuda(), torch.ones(3).cuda()], sizes)
    wanted = [expected.detach(), *[one.grad for one in inputs], *running]
    for one, other in zip(found, wanted):
        torch.testing.assert_close(one.cpu(), other, rtol=1e-4, atol=1e-5)


def test_parts_of_halves_are_normalized_in_single_precision():
    whole = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(2)).half()
    mean, deviation = torch.batch_norm_stats(whole.cuda(), 1e-5)
    assert mean.dtype == deviation.dtype == torch.float32
    torch.testing.assert_close(mean.cpu(), whole.float().mean((0, 2)))
    assert torch.batch_norm_elemt(whole.cuda(), None, None, mean, deviation, 1e-5).dtype == torch.float16


def test_an_assertion_checks_its_size_at_once_and_its_value_in_the_stream():
    torch._assert_async(torch.tensor(0.5, device="cuda"))
    for wrong, message in (([], "no values"), ([1, 1], "more than one value")):
        with pytest.raises(RuntimeError, match=message):
            torch._assert_async(torch.tensor(wrong, device="cuda"))
    torch._assert_async(torch.tensor(False, device="cuda"), "the loss is finite")
    with pytest.raises(RuntimeError, match="the loss is finite"):
        torch.cuda.synchronize()


def test_a_transformer_trains_in_half_precision_with_autocast_and_a_scaler():
    torch.manual_seed(6)
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1, batch_first=True)
    model = torch.nn.Sequential(torch.nn.TransformerEncoder(layer, 2), torch.nn.Flatten(), torch.nn.Linear(16 * 6, 3)).cuda()
    optimizer, scaler = torch.optim.AdamW(model.parameters(), lr=0.01), torch.amp.GradScaler("cuda")
    inputs, targets = torch.randn(8, 6, 16, device="cuda"), torch.arange(8, device="cuda") % 3
    found = []
    for _ in range(12):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        found.append(loss.item())
    assert all(0 <= loss < 3 for loss in found) and found[-1] < found[0] / 3
