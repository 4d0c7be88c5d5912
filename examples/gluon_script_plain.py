"""A typical Gluon training script, written in plain PyTorch: two replicas, SGD with momentum, decay and clipping.

What the trainer of Gluon did in one call stands here in full: adding up gradients over the replicas, scaling by the
batch size, clipping by element, momentum with the rate inside, keeping the replicas equal, and saving the states.
``gluon_script.py`` is the same program with Ostinato, and ends with the same line.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

DEVICES = ["cpu", "cpu"]
RATE, MOMENTUM, DECAY, CLIP = 0.05, 0.9, 1e-3, 0.5
BATCH_SIZE, EPOCHS = 8, 3


def network() -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))


def batches() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(11)
    inputs = torch.randn(64, 4, generator=generator)
    labels = (inputs[:, :3] * 2).argmax(dim=1)
    return list(zip(inputs.split(BATCH_SIZE), labels.split(BATCH_SIZE), strict=True))


def update(replicas: list[nn.Module], momenta: list[Tensor]) -> None:
    with torch.no_grad():
        for number, parameters in enumerate(zip(*(replica.parameters() for replica in replicas), strict=True)):
            gradient = torch.stack([p.grad.to(DEVICES[0]) for p in parameters if p.grad is not None]).sum(0)
            gradient = (gradient / BATCH_SIZE).clamp(-CLIP, CLIP) + DECAY * parameters[0]
            momenta[number].mul_(MOMENTUM).sub_(gradient, alpha=RATE)
            for parameter in parameters:
                parameter += momenta[number].to(parameter.device)


def show(net: nn.Module) -> str:
    """The mean loss and the sum of the sizes of all weights, to as many digits as two ways of adding up agree on."""
    inputs, labels = (torch.cat(parts) for parts in zip(*batches(), strict=True))
    loss = nn.functional.cross_entropy(net(inputs), labels).item()
    return f"loss {loss:.4f}, weights {sum(p.detach().abs().sum().item() for p in net.parameters()):.2f}"


def main() -> None:
    net = network()
    print("before:", show(net))
    replicas = [net.to(DEVICES[0]), *(copy.deepcopy(net).to(device) for device in DEVICES[1:])]
    momenta = [torch.zeros_like(parameter) for parameter in net.parameters()]
    loss_function = nn.CrossEntropyLoss(reduction="sum")
    for _ in range(EPOCHS):
        for data, label in batches():
            xs = [share.to(device) for share, device in zip(data.chunk(len(DEVICES)), DEVICES, strict=True)]
            ys = [share.to(device) for share, device in zip(label.chunk(len(DEVICES)), DEVICES, strict=True)]
            for replica in replicas:
                replica.zero_grad()
            losses = [loss_function(net(x), y) for net, x, y in zip(replicas, xs, ys, strict=True)]
            for loss in losses:
                loss.backward()
            update(replicas, momenta)
        torch.save(momenta, "momenta.pt")
        momenta = torch.load("momenta.pt", weights_only=True)
    print(show(replicas[0]))


if __name__ == "__main__":
    main()
