"""Data-parallel training in plain PyTorch: every process learns from its share of the data.

``torchrun --nproc-per-node 2 several_processes_plain.py``. ``several_processes.py`` is the same program with Ostinato,
and ends with the same line.
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

EPOCHS = 5


def make(rank: int, size: int) -> tuple[torch.nn.Module, torch.optim.Optimizer, DataLoader, torch.Tensor]:
    """Return the model, its optimizer, a loader of this rank's share, and (200, 3) points that nobody trains on."""
    torch.manual_seed(0)  # the same weights on every rank
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    points = torch.rand(1000, 2, generator=torch.Generator().manual_seed(1)) * 2 - 1
    points = torch.cat([points, points.prod(dim=1, keepdim=True)], dim=1)  # x, y and their product
    data = TensorDataset(points[:800, :2], points[:800, 2:])
    sampler = DistributedSampler(data, num_replicas=size, rank=rank, shuffle=True, seed=0)
    loader = DataLoader(data, batch_size=32 // size, sampler=sampler)
    return model, torch.optim.Adam(model.parameters(), lr=0.01), loader, points[800:]


def error(model: torch.nn.Module, points: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.mse_loss(model(points[:, :2]), points[:, 2:])


def main() -> None:
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    rank, size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    model, optimizer, loader, unseen = make(rank, size)
    parallel = DistributedDataParallel(model) if size > 1 else model
    for epoch in range(EPOCHS):
        loader.sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(parallel(x), y).backward()
            optimizer.step()
        if rank == 0:
            with torch.no_grad():
                print(f"epoch {epoch + 1}  error on unseen points {error(model, unseen):.6f}", flush=True)
    if rank == 0:
        with torch.no_grad():
            weights = sum(p.double().sum() for p in model.parameters())
            print(f"error {error(model, unseen):.10f}, weights {weights:.12f}", flush=True)
    if dist.is_initialized():
        dist.barrier()  # who leaves before the others may break their connections
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
