"""Models in plain PyTorch, and what a round of each does. Shapes are random with a fixed seed, as real ones vary."""

from __future__ import annotations

import random

import torch
import torch.nn.functional as F
from torch import nn

SEED = 20


class Residual(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)])
        self.around = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(inner)) + self.around(x))


def resnet(classes: int = 100) -> nn.Module:
    widths = [64, 64, 128, 128, 256, 256, 512, 512]
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    before = 64
    for width in widths:
        layers.append(Residual(before, width, 1 if width == before else 2))
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))


class Layer(nn.Module):
    """Attention and a perceptron, as in GPT-2."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.attention = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor, cache: list | None = None) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.attention(self.norms[0](x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        is_causal = cache is None or not cache
        if cache is not None:
            if cache:
                key, value = torch.cat([cache[0], key], 2), torch.cat([cache[1], value], 2)
            cache[:] = [key, value]
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=is_causal and length > 1)
        x = x + self.projection(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.perceptron(self.norms[1](x))


class Gpt(nn.Module):
    """124 million parameters, as GPT-2's smallest."""

    def __init__(self, words: int = 50257, width: int = 768, layers: int = 12, heads: int = 12, length: int = 1024) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, words: torch.Tensor, caches: list | None = None, start: int = 0) -> torch.Tensor:
        x = self.words(words) + self.places(torch.arange(start, start + words.shape[1], device=words.device))
        for index, layer in enumerate(self.layers):
            x = layer(x, None if caches is None else caches[index])
        return F.linear(self.norm(x), self.words.weight)


class Training:
    """A model that is trained. A round is a number of steps, each with shapes of its own."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model.cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.shapes, self.data = random.Random(SEED), torch.Generator().manual_seed(SEED)

    def step(self) -> torch.Tensor:
        raise NotImplementedError

    def round(self, steps: int) -> list[float]:
        losses = []
        for _ in range(steps):
            self.optimizer.zero_grad()
            with torch.autocast("cuda", torch.bfloat16):
                loss = self.step()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.detach())
        return torch.stack(losses).tolist()


class Images(Training):
    def __init__(self) -> None:
        super().__init__(resnet())

    def step(self) -> torch.Tensor:
        batch, side = self.shapes.choice([32, 48, 64]), self.shapes.randrange(96, 225, 16)
        images = torch.randn(batch, 3, side, side, generator=self.data).cuda()
        classes = torch.randint(100, (batch,), generator=self.data).cuda()
        return F.cross_entropy(self.model(images), classes)


class Text(Training):
    def __init__(self) -> None:
        super().__init__(Gpt())

    def step(self) -> torch.Tensor:
        batch, length = self.shapes.choice([2, 4, 8]), self.shapes.randrange(64, 1024)
        words = torch.randint(50257, (batch, length + 1), generator=self.data).cuda()
        result = self.model(words[:, :-1])
        return F.cross_entropy(result.flatten(0, 1), words[:, 1:].flatten())


class Generation:
    """Answers requests of many lengths at once, with caches of keys and values that grow by each word."""

    def __init__(self) -> None:
        self.model = Gpt().cuda().to(torch.bfloat16).eval()
        self.shapes, self.data = random.Random(SEED), torch.Generator().manual_seed(SEED)

    @torch.no_grad()
    def round(self, steps: int) -> list[float]:
        sums = []
        for _ in range(steps):
            batch, prompt = self.shapes.choice([8, 16, 32]), self.shapes.randrange(16, 512)
            words = torch.randint(50257, (batch, prompt), generator=self.data).cuda()
            caches: list = [[] for _ in self.model.layers]
            start, total = 0, torch.zeros((), device="cuda")
            for _ in range(48):
                result = self.model(words, caches, start)[:, -1].float()
                start += words.shape[1]
                words = result.argmax(-1, keepdim=True)
                total += result.logsumexp(-1).mean()
            sums.append(total)
        return torch.stack(sums).tolist()


class Blocks:
    """Allocations alone: what the host pays for a tensor of a size that was freed before, and of changing sizes."""

    def __init__(self) -> None:
        self.sizes = random.Random(SEED).choices([512, 4096, 65536, 1 << 20, 10 << 20, 33 << 20], k=1000)

    def round(self, steps: int) -> list[float]:
        kept: list = [None] * 64
        for _ in range(steps):
            for index, size in enumerate(self.sizes):
                kept[index % 64] = torch.empty(size, dtype=torch.uint8, device="cuda")
        return [float(len(kept))]


# The class of each workload, its steps in a round, and how many allocations or words a step is, for the table.
WORKLOADS = {"cnn": (Images, 20), "gpt": (Text, 12), "generation": (Generation, 2), "blocks": (Blocks, 20)}
