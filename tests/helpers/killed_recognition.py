"""A small recognition training that kills itself where it is told to, for tests that start it again."""

from __future__ import annotations

import hashlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

UPDATES = 12
SAVES = 3
"""Updates from one save to the next."""


@dataclass(frozen=True)
class Kill:
    """Where a process dies.

    :ivar point: ``"file"``: before a file operation of the run folder. ``"update"``, ``"batch"``, ``"exchange"``,
        ``"head"``: before an update, before a batch is read, before the gradients are exchanged, and after the class
        centres have been updated.
    :ivar number: which of them in this process, from 0.
    """

    point: str
    number: int


@dataclass(frozen=True)
class Plan:
    """What the processes of one start do.

    :ivar options: of the run, ``path=value``.
    :ivar transformer: train a small transformer with drop path, masks and checkpointing.
    :ivar kills: by rank; a rank without one goes on until it notices that another has gone.
    """

    folder: Path
    options: tuple[str, ...] = ()
    images: int = 52
    classes: int = 23
    transformer: bool = False
    kills: tuple[tuple[int, Kill], ...] = ()


def train(placement: Any, meeting: Path, plan: Plan) -> tuple[str, dict[str, str]]:
    """Train to the end, unless killed. For ``run_on_ranks`` without a group.

    :return: what the run has told, and a digest of each part of the final state of this rank.
    """
    from ostinato.dist import open_group

    if placement.size == 1:
        return _train(None, plan)
    with open_group(backend="gloo", timeout=120.0, placement=placement, rendezvous=meeting) as group:
        return _train(group, plan)


def _train(group: Any, plan: Plan) -> tuple[str, dict[str, str]]:
    from ostinato.recognition.request import RecognitionRequest
    from ostinato.recognition.training import open_training

    own = ("seed=5", "embedding_size=8", "scale=16", "m2=0.2", "learning_rate=0.05", "batch_size=10")
    request = RecognitionRequest(
        "synthetic",
        plan.folder,
        classes=plan.classes,
        images=plan.images,
        save_interval=SAVES,
        logs=False,
        device="cpu",
        overrides=(*own, "data.workers=1", f"iterations={UPDATES}", *plan.options),
    )
    for rank, kill in plan.kills:
        if rank == (0 if group is None else group.rank):
            _die_at(kill)
    told: list[str] = []
    build = _build_transformer if plan.transformer else _build
    with open_training(request, tell=told.append, group=group, build=build) as training:
        assert training is not None, told
        training.trainer.run()
        return " ".join(told), {name: _digest(part) for name, part in training.updater.state_dict().items()}


def _build(options: Any) -> Any:
    from tiny_backbone import TinyBackbone

    half = {"no": None, "bf16": torch.bfloat16, "fp16": torch.float16}[options.model.mixed_precision]

    class Half(TinyBackbone):
        def embed(self, pictures: Tensor) -> Tensor:
            with torch.autocast("cpu", half or torch.bfloat16, enabled=half is not None):
                return super().embed(pictures).float()

    backbone = Half(options.model.embedding_size)
    backbone.initialize(torch.Generator().manual_seed(options.seed))
    return backbone


def _build_transformer(options: Any) -> Any:
    from ostinato.recognition.backbones.vit import VisionTransformer

    backbone = VisionTransformer(
        "tiny",
        width=16,
        depth=3,
        drop_path=0.3,
        masking=True,
        embedding_size=options.model.embedding_size,
        half_precision=None,
        checkpointing=True,
    )
    backbone.initialize(torch.Generator().manual_seed(options.seed))
    return backbone


# --- dying ----------------------------------------------------------------------------------------------------------


def _die_at(kill: Kill) -> None:
    from ostinato.recognition.data import RecognitionLoader
    from ostinato.recognition.gradient_exchange import GradientExchange
    from ostinato.recognition.partial_fc import PartialFC
    from ostinato.recognition.updater import RecognitionUpdater
    from ostinato.runs import atomic

    count = -1

    def one_more() -> None:
        nonlocal count
        count += 1
        if count == kill.number:
            os.kill(os.getpid(), signal.SIGKILL)

    if kill.point == "file":

        def hook(moment: str, operation: str, path: Path) -> None:
            if moment == "before":
                one_more()

        atomic.set_hook(hook)
        return
    owner, name = {
        "update": (RecognitionUpdater, "update"),
        "batch": (RecognitionLoader, "next_batch"),
        "exchange": (GradientExchange, "exchange"),
        "head": (PartialFC, "step"),
    }[kill.point]
    real = getattr(owner, name)

    def dying(*arguments: Any, **settings: Any) -> Any:
        if kill.point != "head":
            one_more()
        result = real(*arguments, **settings)
        if kill.point == "head":
            one_more()
        return result

    setattr(owner, name, dying)


# --- what is left ----------------------------------------------------------------------------------------------------


def _digest(value: Any) -> str:
    whole = hashlib.sha256()
    for path, leaf in _leaves(value, ""):
        whole.update(path.encode() + b"\0" + leaf + b"\0")
    return whole.hexdigest()


def _leaves(value: Any, path: str) -> Any:
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _leaves(part, f"{path}/{name}")
    elif isinstance(value, list | tuple):
        for number, part in enumerate(value):
            yield from _leaves(part, f"{path}/{number}")
    elif isinstance(value, Tensor):
        yield path, value.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    elif hasattr(value, "tensor") and hasattr(value, "first_row"):
        yield from _leaves(value.tensor, f"{path}/{value.first_row}")
    elif hasattr(value, "tobytes"):
        yield path, value.tobytes()
    else:
        yield path, repr(value).encode()
