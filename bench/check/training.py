"""Trains an MLP and a transformer layer, and prints the seconds of the steps after the first ones, and the last loss."""

import time

import torch

torch.manual_seed(7)
device = torch.device("cuda")
model = torch.nn.Sequential(
    torch.nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True),
    torch.nn.Linear(512, 2048),
    torch.nn.GELU(),
    torch.nn.Linear(2048, 512),
).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
inputs = torch.randn(32, 128, 512).pin_memory()
targets = torch.randn(32, 128, 512, device=device)


def step():
    batch = inputs.to(device, non_blocking=True)
    loss = torch.nn.functional.mse_loss(model(batch), targets)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss


for _ in range(30):
    loss = step()
torch.cuda.synchronize()
start = time.perf_counter()
for _ in range(300):
    loss = step()
torch.cuda.synchronize()
print(f"{time.perf_counter() - start:.6f} {loss.item():.9f}")
