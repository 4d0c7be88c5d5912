"""Two networks that train each other in plain PyTorch: a generator learns to draw points on a ring.

``gan.py`` is the same program with Ostinato, and ends with the same line.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, WAIT = 12, 50  # the generator waits until the discriminator has seen WAIT batches


def make() -> tuple[nn.Module, nn.Module, torch.optim.Optimizer, torch.optim.Optimizer, DataLoader]:
    """Return the generator, the discriminator, their optimizers, and a loader of (64, 2) points on a ring."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
    discriminator = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
    angle = torch.rand(2048, generator=torch.Generator().manual_seed(0)) * 2 * math.pi
    points = TensorDataset(torch.stack([angle.cos(), angle.sin()], dim=1))
    loader = DataLoader(points, batch_size=64, shuffle=True)
    of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
    of_discriminator = torch.optim.Adam(discriminator.parameters(), lr=1e-3, betas=(0.5, 0.999))
    return generator, discriminator, of_generator, of_discriminator, loader


def real(score: torch.Tensor) -> torch.Tensor:
    """Small where the discriminator takes the points for real ones."""
    return nn.functional.softplus(-score).mean()


def faked(score: torch.Tensor) -> torch.Tensor:
    """Small where it takes them for drawn ones."""
    return nn.functional.softplus(score).mean()


@torch.no_grad()
def summary(generator: nn.Module) -> str:
    """How far from the middle the drawn points lie; 1 is the ring."""
    radius = generator(torch.randn(1000, 4, generator=torch.Generator().manual_seed(9))).norm(dim=1)
    return f"radius {radius.mean():.12f}, deviation {radius.std():.12f}"


def main() -> None:
    generator, discriminator, of_generator, of_discriminator, loader = make()
    iteration = 0
    for epoch in range(1, EPOCHS + 1):
        for (points,) in loader:
            drawn = generator(torch.randn(len(points), 4))

            of_discriminator.zero_grad()
            loss = real(discriminator(points)) + faked(discriminator(drawn.detach()))
            loss.backward()
            of_discriminator.step()

            if iteration >= WAIT:
                of_generator.zero_grad()
                # Gradients run into the discriminator too; the next update clears them unused.
                real(discriminator(drawn)).backward()
                of_generator.step()
            iteration += 1
        print(f"epoch {epoch}  {summary(generator)}")
    print(summary(generator))


if __name__ == "__main__":
    main()
