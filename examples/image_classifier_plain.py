"""An image classifier in plain PyTorch: tells circles from squares from triangles.

``image_classifier.py`` is the same program with Ostinato. Both end with the same line, to the last digit; but this one
starts from nothing when it is killed.
"""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader, TensorDataset

SIZE, EPOCHS = 16, 6  # SIZE in pixels


def draw(count: int, seed: int) -> TensorDataset:
    """Return (1, SIZE, SIZE) noisy pictures, float32, with their classes 0, 1, 2."""
    random = torch.Generator().manual_seed(seed)
    classes = torch.arange(count) % 3
    x, y = torch.meshgrid(torch.linspace(-1, 1, SIZE), torch.linspace(-1, 1, SIZE), indexing="xy")
    shift = (torch.rand(2, count, 1, 1, generator=random) - 0.5) * 0.5
    x, y = x - shift[0], y - shift[1]
    shapes = torch.stack(
        [x**2 + y**2 < 0.4, torch.maximum(x.abs(), y.abs()) < 0.55, (y < 0.5) & (x.abs() * 2 < y + 0.7)]
    )
    pictures = shapes[classes, torch.arange(count)].float()
    return TensorDataset((pictures + 0.25 * torch.randn(pictures.shape, generator=random))[:, None], classes)


def make() -> tuple[torch.nn.Module, torch.optim.Optimizer, DataLoader, list[tuple[torch.Tensor, ...]]]:
    """Return the model, its optimizer, the loader of the training, and the batches of the test."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # for pictures this small, threads cost more than they bring
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 5, stride=2, padding=2), torch.nn.ReLU(),
        torch.nn.Conv2d(8, 16, 5, stride=2, padding=2), torch.nn.ReLU(),
        torch.nn.Flatten(), torch.nn.Linear(16 * 16, 3),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    training = DataLoader(draw(600, seed=1), batch_size=32, shuffle=True, drop_last=True)
    return model, optimizer, training, [draw(300, seed=2).tensors]


def main() -> None:
    model, optimizer, training, test = make()
    accuracy = 0.0
    for epoch in range(1, EPOCHS + 1):
        model.train()
        for images, classes in training:
            loss = torch.nn.functional.cross_entropy(model(images), classes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = sum(int((model(images).argmax(1) == classes).sum()) for images, classes in test)
        accuracy = right / 300
        print(f"epoch {epoch}  accuracy {accuracy:.3f}")
    print(f"accuracy {accuracy:.3f}, sum of all weights {sum(p.double().sum() for p in model.parameters()):.12f}")


if __name__ == "__main__":
    main()
