"""A program of every rank, whoever starts it.

    started_program.py FILE

The ranks meet at the file, add up their numbers and train a weight together; each writes what it found to FILE.RANK.
Where the environment names no address, they look what they are told without the file first.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import torch

from ostinato.dist import detect_placement, open_group
from ostinato.errors import BadInputError
from ostinato.kvstore import ParameterTrainer


def main() -> None:
    file = sys.argv[1]
    placement = detect_placement()
    assert placement is not None
    found = asdict(placement)
    if placement.address is None:
        try:
            open_group(backend="gloo")
        except BadInputError as error:
            found["error"] = str(error)
    with open_group(backend="gloo", rendezvous=file) as group:
        weight = torch.nn.Parameter(torch.zeros(2))
        trainer = ParameterTrainer({"w": weight}, "sgd", {"learning_rate": 0.5}, kvstore="dist_sync")
        (weight * (group.rank + 1)).sum().backward()
        trainer.step(1)
        found |= {"sum": group.sum_of([10.0 + group.rank]), "weight": weight.tolist()}
    with open(f"{file}.{placement.rank}", "w") as out:
        json.dump(found, out)


if __name__ == "__main__":
    main()
