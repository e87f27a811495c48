"""The lines of PyTorch in the package's README train on the software device as on the CPU. Run under `freehold run`."""

import pathlib
import re

import torch

README = pathlib.Path(__file__).parent.parent / "README.md"


def lines():
    (text,) = re.findall(r"```python\n(import torch .*?)```", README.read_text(), re.DOTALL)
    return text


def losses(text, monkeypatch):
    """Runs the lines with the same numbers on each device, and returns the loss of each step."""
    torch.manual_seed(7)
    generator, mse_loss, seen = torch.Generator().manual_seed(3), torch.nn.functional.mse_loss, []

    def randn(*size, device):
        return torch.empty(*size).normal_(generator=generator).to(device)

    def recorded(*arguments):
        loss = mse_loss(*arguments)
        seen.append((loss.device.type, loss.item()))
        return loss

    with monkeypatch.context() as patch:
        patch.setattr(torch, "randn", randn)
        patch.setattr(torch.nn.functional, "mse_loss", recorded)
        exec(compile(text, str(README), "exec"), {})
    return seen


def test_the_losses_are_those_of_the_cpu(monkeypatch):
    text = lines()
    assert text.count('"cuda"') == 3
    here, cpu = losses(text, monkeypatch), losses(text.replace('"cuda"', '"cpu"'), monkeypatch)
    assert [device for device, _ in here] == ["cuda"] * 20
    torch.testing.assert_close(torch.tensor([loss for _, loss in here]), torch.tensor([loss for _, loss in cpu]))
    assert here[-1][1] < here[0][1]
