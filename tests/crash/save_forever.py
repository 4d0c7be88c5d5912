"""Saves generation after generation through the writer thread until somebody kills it: python save_forever.py FOLDER"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from ostinato.runs import GenerationContent, GenerationWriter, RunFolder


def main(folder: Path) -> None:
    run = RunFolder(folder).open(recipe="test")
    loaded = run.load_newest()
    iteration = loaded.iteration if loaded else 0
    weight = loaded.model["weight"] if loaded else torch.zeros(200_000)
    if not weight.eq(iteration).all():
        raise SystemExit("the loaded state is mixed")
    run.begin_session(start_iteration=iteration)
    writer = GenerationWriter(run).open()
    print("begun", flush=True)
    while True:
        iteration += 1
        weight += 1
        writer.submit(GenerationContent(iteration, {"weight": weight}, {"mean": weight}, {"position": iteration}))
        for result in writer.poll():
            if result.error is not None:
                raise result.error
            print(result.iteration, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
