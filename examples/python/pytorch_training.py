"""A training loop has the same losses with Freehold as PyTorch's allocator as with PyTorch's own, bit for bit.

    python3 examples/python/pytorch_training.py [libfreehold.so]        (or FREEHOLD_LIBRARY=libfreehold.so)

`cargo xtask library` makes target/release/libfreehold.so.

`freehold_allocator.py` beside this file is the recipe. With any allocator that is plugged in, PyTorch 2.11 refuses
torch.cuda.memory_allocated, memory_stats, snapshots, histories and tensors shared between processes.
"""

import os
import subprocess
import sys

from freehold_allocator import use_freehold

STEPS, BATCH, LENGTH_MAX, WIDTH, HEADS, LAYERS, WORDS = 60, 16, 192, 256, 8, 4, 1000


def train():
    """The loss of each step of a small transformer that learns to count, on batches of changing length."""
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy, gelu

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(WIDTH)
            self.heads, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x, side):
            """Attention in the current stream, and beside it the perceptron in the other."""
            here = torch.cuda.current_stream()
            normed = self.norm(x)
            side.wait_stream(here)
            with torch.cuda.stream(side):
                perceived = self.down(gelu(self.up(normed)))
            normed.record_stream(side)
            batch, length, _ = x.shape
            q, k, v = self.heads(normed).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
            weights = (q @ k.transpose(-1, -2) * (WIDTH // HEADS) ** -0.5).softmax(-1)
            attended = self.out((weights @ v).transpose(1, 2).reshape(batch, length, WIDTH))
            here.wait_stream(side)
            perceived.record_stream(here)
            return x + attended + perceived

    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    # Makes the device's context, which an allocator from outside finds there.
    torch.cuda.synchronize()
    lengths = torch.randint(LENGTH_MAX // 4, LENGTH_MAX, (STEPS,)).tolist()
    starts = torch.randint(WORDS, (STEPS, BATCH, 1))
    batches = [((start + torch.arange(length)) % WORDS).pin_memory() for start, length in zip(starts, lengths)]
    embedding, head = nn.Embedding(WORDS, WIDTH).cuda(), nn.Linear(WIDTH, WORDS).cuda()
    layers = nn.ModuleList(Layer() for _ in range(LAYERS)).cuda()
    optimizer = torch.optim.AdamW([*embedding.parameters(), *layers.parameters(), *head.parameters()], lr=1e-3)
    here, copies, side = torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()
    losses = []
    for batch in batches:
        # The block belongs to the stream of copies, which may have it back only when this step's work is done with it.
        with torch.cuda.stream(copies):
            tokens = batch.cuda(non_blocking=True)
        here.wait_stream(copies)
        tokens.record_stream(here)
        x = embedding(tokens[:, :-1])
        for layer in layers:
            x = layer(x, side)
        loss = cross_entropy(head(x).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        # Nothing waits for the device before the end, so that the host runs ahead of it.
        losses.append(loss.detach())
    return [loss.item().hex() for loss in losses]


def losses_of(arguments):
    """What a process of its own trains to: an allocator cannot be changed once it was used."""
    command = [sys.executable, __file__, "--train", *arguments]
    # cuBLAS computes the same each time only with workspaces of a known size.
    environment = os.environ | {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    trained = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    if trained.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with status {trained.returncode}")
    return trained.stdout.split()


def main():
    if sys.argv[1:2] == ["--train"]:
        if sys.argv[2:]:
            use_freehold(sys.argv[2])
        print(*train(), sep="\n")
        return
    path = sys.argv[1] if len(sys.argv) == 2 else os.environ.get("FREEHOLD_LIBRARY", "")
    if not os.path.isfile(path):
        print(f"{path!r} is no file: name libfreehold.so as the argument or in FREEHOLD_LIBRARY", file=sys.stderr)
        sys.exit(2)
    own, freehold = losses_of([]), losses_of([os.path.abspath(path)])
    print("step  PyTorch's allocator   Freehold")
    for step, losses in enumerate(zip(own, freehold)):
        if step % 10 == 0 or step == STEPS - 1 or losses[0] != losses[1]:
            print(f"{step:4}  {losses[0]}  {losses[1]}")
    if own != freehold:
        sys.exit("different losses")
    print(f"the same {len(own)} losses, bit for bit: {float.fromhex(own[0]):.4f} to {float.fromhex(own[-1]):.4f}")


main()
