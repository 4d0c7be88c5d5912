"""The parts of a recognition training, made as its options say."""

from __future__ import annotations

import contextlib

import torch
from torch import nn

from ostinato.config import RecognitionOptions
from ostinato.data.file_names import shown_name
from ostinato.dist import Group
from ostinato.errors import BadInputError
from ostinato.kvstore.loss_scaler import LossScaler
from ostinato.recognition.backbones import Backbone, build_backbone
from ostinato.recognition.data import RecognitionLoader, Source, open_source
from ostinato.recognition.margins import Margin
from ostinato.recognition.partial_fc import PartialFC
from ostinato.recognition.rate_schedule import RateSchedule
from ostinato.recognition.request import RecognitionRequest
from ostinato.recognition.synchronised_norm import synchronise_norms
from ostinato.recognition.updater import BatchSource, RecognitionUpdater

_HALF = {"no": False, "bf16": torch.bfloat16, "fp16": torch.float16}

SCALER_WINDOW = 100
"""Clean updates before the loss scale rises, as InsightFace's training has it."""


def build_network(options: RecognitionOptions) -> Backbone:
    """The backbone that options describe, with its first weights."""
    model = options.model
    assert options.seed is not None
    return build_backbone(
        model.backbone,
        embedding_size=model.embedding_size,
        dropout=model.dropout,
        half_precision=_HALF[model.mixed_precision],
        checkpointing=model.checkpointing,
        seed=options.seed % 2**63,
    )


def build_margin(options: RecognitionOptions) -> Margin:
    """The margin that options describe."""
    head = options.head
    return Margin(head.scale, head.m1, head.m2, head.m3, head.interclass_threshold, head.gradient, head.wrap)


def build_head(options: RecognitionOptions, classes: int, group: Group, device: torch.device) -> PartialFC:
    """The classification that options describe, with its first class centres."""
    assert options.seed is not None
    return PartialFC(
        classes,
        options.model.embedding_size,
        build_margin(options),
        sampling_rate=options.head.sampling_rate,
        group=group,
        optimizer=options.optimizer.optimizer,
        update=options.head.update,
        momentum=options.optimizer.momentum,
        weight_decay=options.optimizer.weight_decay,
        sub_centres=options.head.sub_centres,
        seed=options.seed,
        device=device,
    )


def build_optimizer(options: RecognitionOptions, backbone: nn.Module) -> torch.optim.Optimizer:
    """The optimizer of the backbone; its rate is set before every step."""
    settings = options.optimizer
    parameters = [p for p in backbone.parameters() if p.requires_grad]
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay)
    return torch.optim.SGD(
        parameters, lr=settings.learning_rate, momentum=settings.momentum, weight_decay=settings.weight_decay
    )


def open_images(request: RecognitionRequest, options: RecognitionOptions, stack: contextlib.ExitStack) -> Source:
    """The pictures that were asked for; closed with ``stack``.

    :raises DataSetError: they cannot be used.
    :raises BadInputError: there is one person alone.
    """
    source = open_source(
        request.data,
        classes=request.classes,
        images=request.images,
        image_size=options.data.image_size,
        min_images=request.min_images,
        max_bad_records=options.data.max_bad_records,
    )
    stack.callback(source.close)
    if source.classes < 2:
        raise BadInputError(
            f"{shown_name(request.data)} holds the pictures of one person alone: there is nobody to tell them from.",
            advice="Give a folder with a sub-folder for each of several people.",
            path=request.data,
        )
    return source


def place_network(backbone: Backbone, options: RecognitionOptions, group: Group, device: torch.device) -> Backbone:
    """The network on its device, in the memory layout and with the batch norms that options describe."""
    layout = torch.channels_last if options.model.channels_last else torch.contiguous_format
    backbone.to(device=device, memory_format=layout)  # pyrefly: ignore
    if group.size > 1 and options.model.batch_norm == "synchronised":
        synchronise_norms(backbone)
    return backbone


def open_loader(
    source: Source, options: RecognitionOptions, group: Group, stack: contextlib.ExitStack
) -> RecognitionLoader:
    """The loader that options describe, open; closed with ``stack``."""
    assert options.seed is not None
    loader = RecognitionLoader(
        source,
        options.batch_size,
        seed=options.seed,
        group=group,
        workers=options.data.workers,
        mirror=options.data.mirror,
        augmentation=options.data.augmentation,
        balanced=options.data.balanced,
        image_size=options.data.image_size,
    )
    loader.open()
    stack.callback(loader.close)
    return loader


def build_updater(
    options: RecognitionOptions,
    backbone: Backbone,
    head: PartialFC,
    loader: BatchSource,
    schedule: RateSchedule,
    *,
    classes: int,
    group: Group,
) -> RecognitionUpdater:
    """The updater that options describe, over parts that are on their device.

    :param classes: of the data.
    """
    return RecognitionUpdater(
        backbone,
        head,
        build_optimizer(options, backbone),
        loader,
        schedule=schedule,
        options=options,
        classes=classes,
        group=group,
        scaler=LossScaler(window=SCALER_WINDOW) if options.model.mixed_precision == "fp16" else None,
        forward=torch.compile(backbone) if options.model.compile else None,
    )
