"""Each line of a table is computed with PyTorch's operators on the CPU and on the software device, and must agree."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import freehold.torch.operators as operators  # noqa: E402

pytestmark = pytest.mark.skipif(not operators.is_enabled(), reason="not under `freehold run --device soft`")

TABLE = """
a + b; a - b; a * b; a / p; a // p; a % p; -a; a.abs(); a.sign(); a ** 2; p ** a; 2 ** a; 1 / p; a + 1; 3 - a; a.add(b, alpha=2)
a + i; i + 1; i // 3; i % 3; i / 2; i + True; m + m; m * a; i & 3; i | 4; i ^ 5; ~i; ~m; m & ~m; i << 2; i >> 1; a + b.double(); a.half() + b
a < b; a <= b; a == a; a != b; a > 0; i >= 2; a.isnan(); a.isinf(); a.isfinite(); a.maximum(b); a.minimum(b); a.fmax(b); a.fmin(b)
a.exp(); a.exp2(); a.expm1(); p.log(); p.log2(); p.log10(); p.log1p(); p.sqrt(); p.rsqrt(); a.sin(); a.cos(); a.tan(); a.tanh(); a.sinh(); a.cosh()
u.asin(); u.acos(); a.atan(); a.asinh(); (p + 1).acosh(); u.atanh(); a.atan2(b); a.hypot(b); a.erf(); a.erfc(); u.erfinv(); p.lgamma(); p.digamma()
a.sigmoid(); u.abs().logit(0.1); a.sinc(); a.square(); a.reciprocal(); a.floor(); a.ceil(); a.round(); a.trunc(); a.frac(); a.round(decimals=1)
a.clamp(-0.5, 0.5); a.clamp_min(0); a.clamp_max(0); a.clamp(b, b + 1); a.lerp(b, 0.3); a.lerp(b, p); a.addcmul(b, p, value=2); a.addcdiv(b, p)
a.copysign(b); a.nextafter(b); a.logaddexp(b); a.logaddexp2(b); a.xlogy(p); a.fmod(p); a.remainder(p); a.heaviside(b); a.float_power(2); a.deg2rad()
a.sum(); a.sum(0); a.sum(1, keepdim=True); a.mean(); a.mean(0); p.prod(); p.prod(1); a.std(); a.var(0); a.std(1, unbiased=False); torch.var_mean(a, 1)
a.amax(); a.amin(1); a.aminmax(dim=0); a.max(); a.max(1); a.min(0); a.argmax(); a.argmin(1); a.median(); a.median(1); a.nanmedian(); a.mode(1); a.quantile(0.3)
a.logsumexp(1); a.norm(); a.norm(1); a.norm(dim=1); a.norm(float("inf")); m.any(); m.all(); m.any(1); m.all(0); a.count_nonzero(); a.nansum(); a.nanmean()
a.cumsum(1); a.cumprod(0); a.cummax(1); a.cummin(0); a.logcumsumexp(1); a.diff(); a.dist(b); torch.cov(a); torch.corrcoef(a)
a.sort(); a.sort(0, descending=True); a.argsort(1); a.topk(2); a.topk(3, 0, largest=False); a.kthvalue(2, 1); i.unique(); i.unique_consecutive()
i.unique(return_inverse=True, return_counts=True); i.unique(dim=0); torch._unique(i); a.msort(); i.flatten().bincount(); a.histc(5, -1, 1); torch.searchsorted(r, a)
torch.bucketize(a, r); torch.isin(i, torch.tensor([1, 3], device=i.device)); a.nonzero(); m.nonzero(as_tuple=True); a.masked_select(m); m.argwhere()
a[1]; a[:, 2]; a[1:3, ::2]; a[m]; a[i[:, 0]]; a[i[:, 0], i[:, 1]]; a[[0, 2]]; a[..., None]; a[k]; a[:, k]; a[k.cpu()]; a[m[:, 0], 1]
a.gather(1, i); a.take(i); a.take_along_dim(i, 1); a.index_select(0, k); a.scatter(1, i, b); a.scatter(1, i, 2.0); a.scatter_add(1, i, b)
a.scatter_reduce(1, i, b, "amax"); a.index_add(0, k, b[:3]); a.index_copy(0, k, b[:3]); a.index_fill(0, k, 1.5); a.index_put((k,), b[:3])
a.index_put((k,), b[:3], accumulate=True); a.index_put((m,), torch.tensor(3.0)); a.index_reduce(0, k, b[:3], "prod"); a.put(i, b); a.masked_fill(m, 2)
a.masked_scatter(m, b); a.where(m, b); torch.where(m, a, 0.0); torch.where(m); a.diagonal(); a.diag_embed(); a.diag(); s.trace(); a.tril(); a.triu(1)
torch.cat([a, b]); torch.cat([a, b.half()], 1); torch.stack([a, b], 1); torch.hstack([a, b]); a.chunk(2, 1); a.split([1, 4], 1); a.unbind(1); a.unfold(1, 2, 1)
a.t(); a.t().contiguous(); a.transpose(0, 1) + 1; a.permute(1, 0).clone(); a.reshape(10, 2); a.t().reshape(-1); a.flatten(); a.view(2, 10); a.expand(2, 4, 5) + 1
a.repeat(2, 3); a.tile(2); a.repeat_interleave(2, 0); a[:3].repeat_interleave(k, 0); a.roll(1, 1)
a.flip(0); a.fliplr(); a.rot90(); a.movedim(0, 1).contiguous(); torch.meshgrid(v, v, indexing="ij"); torch.cartesian_prod(v, v); torch.combinations(v)
a @ c; a.mm(c); v @ c; a @ v; x.matmul(x); x[0].bmm(x[0]); torch.addmm(a[:, :3], a, c); torch.addmv(a[:, 0], a, v); torch.addr(a, a[:, 0], v); v.dot(v)
torch.baddbmm(x[0], x[0], x[0], beta=0.5, alpha=2); torch.addbmm(x[0, 0], x[0], x[0]); torch.einsum("ij,jk->ki", a, c); torch.kron(a, c); v.outer(v)
torch.tensordot(a, c, 1); torch.chain_matmul(a, c, c.t()); torch.cross(a[:, :3], b[:, :3], dim=1); torch.cdist(a, b); torch.nn.functional.pdist(a)
a.half() @ c.half(); a.bfloat16() @ c.bfloat16(); z @ z; z.conj(); z.conj() * z; z.real + z.imag; z.abs(); z.angle(); torch.view_as_real(z) * 2; z.conj().t() @ z
torch.complex(a, b); torch.polar(p, b); z.exp(); torch.view_as_complex(x[0, :, :, :2].contiguous()); -z.conj().imag; z.conj().clone()
s.inverse(); s.det(); s.logdet(); s.slogdet(); torch.linalg.cholesky(s); torch.linalg.solve(s, a); torch.linalg.eigvalsh(s); torch.linalg.svdvals(a)
torch.linalg.qr(s)[1].abs(); torch.linalg.lstsq(s, a).solution; torch.linalg.matrix_power(s, 3); torch.linalg.matrix_exp(s * 0.1); torch.linalg.pinv(a)
torch.linalg.matrix_rank(a); torch.linalg.norm(a, 2); torch.linalg.vector_norm(a, 3); torch.linalg.cond(s); torch.linalg.lu_factor(s); torch.linalg.lu(s)
torch.linalg.solve_triangular(s.tril(), a, upper=False); torch.cholesky_solve(a, torch.linalg.cholesky(s)); torch.linalg.inv_ex(s).inverse; torch.linalg.multi_dot([a, c, c.t()])
torch.fft.fft(a); torch.fft.ifft(z); torch.fft.rfft(a); torch.fft.irfft(torch.fft.rfft(a), 5); torch.fft.fft2(s); torch.fft.fftshift(a); torch.stft(v.repeat(8), 8, return_complex=True)
F.relu(a); F.relu6(a); F.leaky_relu(a); F.elu(a); F.selu(a); F.celu(a); F.gelu(a); F.gelu(a, approximate="tanh"); F.silu(a); F.mish(a); F.softplus(a)
F.hardtanh(a); F.hardsigmoid(a); F.hardswish(a); F.hardshrink(a); F.softshrink(a); F.tanhshrink(a); F.threshold(a, 0.1, 20); F.glu(a[:, :4]); F.logsigmoid(a)
F.softmax(a, 1); F.log_softmax(a, 0); F.softmin(a, 1); F.normalize(a); F.prelu(a, v[:1]); F.softsign(a); F.rrelu(a); F.one_hot(i); F.cosine_similarity(a, b)
F.mse_loss(a, b); F.l1_loss(a, b); F.smooth_l1_loss(a, b); F.huber_loss(a, b); F.binary_cross_entropy(u.abs(), m.float()); F.kl_div(a, p); F.cross_entropy(a, k4)
F.nll_loss(a.log_softmax(1), k4); F.binary_cross_entropy_with_logits(a, m.float()); F.margin_ranking_loss(a, b, a.sign()); F.triplet_margin_loss(a, b, p)
F.multi_margin_loss(a, k4); F.cosine_embedding_loss(a, b, a[:, 0].sign()); F.poisson_nll_loss(a, p); F.gaussian_nll_loss(a, b, p); F.cross_entropy(a, p.softmax(1))
F.linear(a, c.t()); F.bilinear(a, b, torch.ones(2, 5, 5, device=a.device)); F.embedding(i, c); F.embedding_bag(i, c); F.layer_norm(a, (5,)); F.rms_norm(a, (5,))
F.group_norm(x, 3); F.batch_norm(x, None, None, training=True); F.instance_norm(x); F.local_response_norm(x, 2); F.dropout(a, 0.0)
F.conv2d(x, w); F.conv2d(x, w, stride=2, padding=1); F.conv2d(x, w[:3, :1], groups=3); F.conv2d(x, w, dilation=2)
F.conv1d(x[:, :, 0], w[:, :, 0]); F.conv3d(x[None], x[None, :, :, :2, :2]); F.conv_transpose2d(x, w.transpose(0, 1)); F.conv2d(x.to(memory_format=torch.channels_last), w)
F.conv2d(x.half(), w.half()); F.max_pool2d(x, 2); F.avg_pool2d(x, 2); F.max_pool2d(x, 3, 1, return_indices=True); F.adaptive_avg_pool2d(x, 3); F.adaptive_max_pool2d(x, 3)
F.max_pool1d(x[0], 2); F.avg_pool1d(x[0], 2); F.max_pool3d(x, 2); F.avg_pool3d(x, 2); F.lp_pool2d(x, 2, 2); F.interpolate(x, scale_factor=2); F.pad(x, (1, 1))
F.interpolate(x, scale_factor=2, mode="bilinear"); F.interpolate(x, size=5, mode="bicubic"); F.interpolate(x, size=5, mode="area"); F.pad(x, (1, 2, 1, 0), mode="reflect")
F.pad(x, (1, 1, 1, 1), mode="replicate"); F.pad(x, (1, 1, 1, 1), mode="circular"); F.pixel_shuffle(x.repeat(1, 4, 1, 1), 2); F.unfold(x, 2); F.fold(F.unfold(x, 2), 8, 2)
F.grid_sample(x, F.affine_grid(torch.eye(2, 3, device=x.device).repeat(2, 1, 1), (2, 3, 4, 4)), align_corners=False); F.channel_shuffle(x.repeat(1, 2, 1, 1), 3)
F.scaled_dot_product_attention(x, x, x); F.scaled_dot_product_attention(x, x, x, is_causal=True); F.scaled_dot_product_attention(x.half(), x.half(), x.half())
F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2); F.ctc_loss(x[0].log_softmax(-1), k4.repeat(8, 1).abs()[:, :1], (3,) * 8, (1,) * 8)
torch.zeros(3, device=D); torch.ones(2, 3, device=D); torch.full((2,), 1.5, device=D); torch.arange(2, 10, 3, device=D); torch.linspace(0, 1, 5, device=D); torch.eye(3, device=D)
torch.logspace(0, 1, 4, device=D); torch.zeros_like(a); torch.ones_like(a); torch.full_like(a, 2); a.new_zeros(3); a.new_full((2,), 7); torch.tril_indices(3, 3, device=D)
torch.triu_indices(3, 4, device=D); torch.hann_window(6, device=D); torch.vander(v); torch.block_diag(a, b); torch.tensor([[1.5, 2], [3, 4]], device=D) * 2
a.to(torch.int32); a.half(); a.bfloat16(); a.double(); i.float(); m.long(); a.bool(); p.to(torch.uint8); z.to(torch.complex128); a.t().half()
a.clone(); a.t().clone(); a.contiguous(memory_format=torch.contiguous_format); x.to(memory_format=torch.channels_last) + 1; a.cpu(); a.t().cpu(); a[:, ::2].cpu(); a.T.to(torch.float64).cpu()
a[0, 0].item(); a.tolist(); a.sum().item(); bool(m[0, 0]); int(i[0, 0]); torch.equal(a, a); torch.equal(a, b); torch.allclose(a, a + 1e-9); len(a)
torch._foreach_add([a, b], 1); torch._foreach_mul([a, b], [b, a]); torch._foreach_norm([a, b]); torch._foreach_sqrt([p, p]); torch._foreach_lerp([a], [b], 0.5); torch._foreach_addcdiv([a], [b], [p])
torch.nn.utils.rnn.pad_sequence([v, v[:3]]); torch.renorm(a, 2, 0, 1); torch.special.i0(a); torch.special.ndtri(u.abs()); torch.special.zeta(p + 1, p); torch.special.entr(p); torch.igamma(p, p)
torch.trapz(a); torch.gradient(a); torch.bitwise_left_shift(i, 1); torch.gcd(i, i + 2); torch.lcm(i, i + 2); torch.logical_and(m, a > 0); torch.logical_xor(m, a > 0); torch.polygamma(1, p); torch.vdot(v, v)
i // (i + 1); i % (i + 1); torch.fmod(i, i + 1); a.index_put((m,), b[m]); F.embedding_bag(i.flatten(), c, k.sort()[0] * 2)
torch.segment_reduce(a, "sum", lengths=k.sort()[0] + torch.tensor([0, 0, 1], device=D)); F.ctc_loss(x[0].transpose(0, 1).log_softmax(-1), k.repeat(3, 1) + 1, (8,) * 3, (2,) * 3)
torch.empty(0, device=D).sum(); torch.empty(0, 3, device=D) @ c[:3]; torch.cat([a[:0], a]); a[:0].sum(0); torch.ones(0, device=D) + 1; a[:0].t().contiguous()
"""

# In place, or into a tensor that is given: what is left in `a` or `o`.
STATEMENTS = """
a.add_(b); a.mul_(2); a.sub_(b, alpha=3); a.div_(p); a.pow_(2); a.clamp_(0, 1); a.fill_(3); a.zero_(); a.exp_(); a.neg_(); a.t_(); a.copy_(b); a.copy_(b.half())
a.masked_fill_(m, 1); a.index_fill_(0, k, 2); a.index_add_(0, k, b[:3]); a.scatter_(1, i, 1.5); a[1] = 4; a[m] = 0; a[m] = b[m]; a[i[:, 0] > 1] = b[i[:, 0] > 1]; a[m.cpu()] = b[m]; a[k] = b[:3]; a[:, 1:3] = b[:, 1:3]; a[1:3, ::2] += 1
a.t().copy_(b.t()); a[:, ::2].copy_(b[:, ::2]); a.t().add_(b.t()); a.lerp_(b, 0.5); a.addcmul_(b, p); a.addmm_(b, s5); a.tril_(); a.floor_(); a.relu_(); a.sigmoid_(); a.fill_diagonal_(2)
torch.add(a, b, out=o); torch.mm(a, c, out=o); torch.sum(a, 1, out=o); torch.cat([a, b], out=o); torch.cumsum(a, 1, out=o); torch.sort(a, out=(o, oi)); torch.nonzero(m, out=oi)
torch.arange(5, out=o); torch.topk(a, 2, out=(o, oi)); torch.masked_select(a, m, out=o); torch.index_select(a, 0, k, out=o); torch.stack([a, b], out=o); torch.where(m, a, b, out=o)
torch._foreach_add_([a, b], 1); torch._foreach_mul_([a], [b]); torch._foreach_zero_([a]); torch._foreach_copy_([a], [b]); torch._foreach_addcdiv_([a], [b], [p]); o.set_(a); o.resize_(2, 2).fill_(1)
F.relu(a, inplace=True); F.silu(a, inplace=True); F.elu(a, inplace=True); F.dropout(a, 0.0, inplace=True); a.cumsum_(0); a.squeeze_().mul_(2); a.swapaxes_(0, 1).add_(1); a.resize_(2, 5).add_(1)
"""


def lines(table):
    return [entry.strip() for entry in table.replace("\n", ";").split(";") if entry.strip()]


def names(device):
    """Returns the tensors of the table, which are the same on every device."""
    generator = torch.Generator().manual_seed(4)
    a, b = (torch.randn(4, 5, generator=generator) for _ in range(2))
    square = torch.randn(4, 4, generator=generator)
    found = {
        "a": a,
        "b": b,
        "p": a.abs() + 0.5,
        "u": a.sin() * 0.9,
        "c": torch.randn(5, 3, generator=generator),
        "v": torch.randn(5, generator=generator),
        "i": torch.randint(0, 4, (4, 5), generator=generator),
        "m": b > 0,
        "k": torch.tensor([2, 0, 1]),
        "k4": torch.tensor([1, 0, 4, 2]),
        "r": torch.linspace(-1, 1, 6),
        "s": square @ square.t() + torch.eye(4),
        "s5": torch.randn(5, 5, generator=generator),
        "x": torch.randn(2, 3, 8, 8, generator=generator),
        "w": torch.randn(6, 3, 3, 3, generator=generator),
        "z": torch.complex(square, square.t()),
        "o": torch.empty(0),
        "oi": torch.empty(0, dtype=torch.long),
    }
    return {name: tensor.to(device) for name, tensor in found.items()} | {"D": device, "torch": torch, "F": torch.nn.functional}


def assert_equal(found, expected):
    if isinstance(expected, torch.Tensor):
        assert found.shape == expected.shape and found.dtype == expected.dtype
        tolerance = 2e-2 if expected.dtype in (torch.half, torch.bfloat16) else 1e-4
        torch.testing.assert_close(
            found.detach().cpu(), expected.detach(), rtol=tolerance, atol=tolerance, equal_nan=True, check_stride=False
        )
    elif isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected):
            assert_equal(one, other)
    else:
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("expression", lines(TABLE))
def test_an_expression_equals_that_of_the_cpu(expression):
    torch.manual_seed(0)
    expected = eval(expression, names("cpu"))
    found = eval(expression, names("cuda"))
    torch.cuda.synchronize()
    assert_equal(found, expected)


@pytest.mark.parametrize("statement", lines(STATEMENTS))
def test_a_statement_leaves_what_it_leaves_on_the_cpu(statement):
    both = []
    for device in ("cpu", "cuda"):
        variables = names(device)
        exec(statement, variables)
        both.append([variables[name] for name in ("a", "b", "o", "oi")])
    torch.cuda.synchronize()
    assert_equal(both[1], both[0])


def test_the_table_has_more_than_two_hundred_lines():
    assert len(lines(TABLE)) > 200
