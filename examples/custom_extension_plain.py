"""A running average of the weights in plain PyTorch, between the lines of the loop.

``custom_extension.py`` is the same program with Ostinato: there the average is an extension that any training can use.
Both end with the same line.
"""

from __future__ import annotations

import torch

DECAY, ITERATIONS = 0.98, 300


def main() -> None:
    torch.manual_seed(0)
    line = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(line.parameters(), lr=0.1)
    random = torch.Generator().manual_seed(0)
    average = {name: value.detach().clone() for name, value in line.named_parameters()}
    for iteration in range(1, ITERATIONS + 1):
        x = torch.rand(32, 1, generator=random)
        y = 3 * x - 1 + 0.05 * torch.randn(32, 1, generator=random)
        loss = torch.nn.functional.mse_loss(line(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for name, value in line.named_parameters():
                average[name].lerp_(value, 1 - DECAY)
        if iteration % 100 == 0:
            print(f"iteration {iteration:4}  loss {loss.item():.4f}")
    print("average", {name: value.flatten().tolist() for name, value in average.items()})


if __name__ == "__main__":
    main()
