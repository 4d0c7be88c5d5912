"""The published configurations of InsightFace's PyTorch training, as data (its files of 2021 to 2023).

::

    ostinato recognition train --preset ms1mv3_r50 -d faces_ms1mv3 -m my_run

A preset is a set of options below those of a file and of the command line. All of them have 512 numbers in an
embedding, half precision, momentum 0.9 and a scale of 64. Their margins come with the exact gradient and the linear
continuation, with which the published ArcFace results were made.

The published rates are meant for a batch on so many devices. A preset asks for that batch, over all processes, and
for linear scaling: with ``-b 128`` on one device the rate is an eighth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from ostinato.config.declaration import show
from ostinato.config.values import nearest
from ostinato.errors import UsageError

_ARCFACE = (1.0, 0.5, 0.0)
_COSFACE = (1.0, 0.0, 0.4)
_V = ("lfw", "cfp_fp", "agedb_30")


@dataclass(frozen=True)
class PublishedSet:
    """A training set.

    :param classes: people in it.
    :param images: pictures in it.
    """

    classes: int
    images: int


PUBLISHED_SETS: Mapping[str, PublishedSet] = MappingProxyType(
    {
        "ms1mv2": PublishedSet(85_742, 5_822_653),
        "ms1mv3": PublishedSet(93_431, 5_179_510),
        "glint360k": PublishedSet(360_232, 17_091_657),
        "webface4m": PublishedSet(205_990, 4_235_242),
        "webface12m": PublishedSet(617_970, 12_720_066),
        "webface12m_flip40": PublishedSet(617_970, 12_720_066),
        "webface12m_conflict": PublishedSet(1_017_970, 12_720_066),
        "webface42m": PublishedSet(2_059_906, 42_474_557),
        "synthetic": PublishedSet(300_000, 100_000),
    }
)
"""What the presets were made for."""


@dataclass(frozen=True)
class RecognitionPreset:
    """One published configuration.

    :param backbone: the network.
    :param margin: m1, m2, m3.
    :param data: the set, one of :data:`PUBLISHED_SETS`.
    :param batch_size: images in a batch of each device.
    :param ranks: devices; 8 where its name does not say another number, as the published command starts.
    :param verify_every: updates between two verifications.
    :param targets: pair files.
    """

    backbone: str
    margin: tuple[float, float, float]
    data: str
    sampling_rate: float = 1.0
    interclass_threshold: float = 0.0
    optimizer: str = "sgd"
    learning_rate: float = 0.1
    weight_decay: float = 5e-4
    batch_size: int = 128
    ranks: int = 8
    accumulation: int = 1
    epochs: int = 20
    warmup_epochs: int = 0
    verify_every: int = 2000
    targets: tuple[str, ...] = ()
    augmentation: str = "none"

    @property
    def total_batch(self) -> int:
        """Images in an update, of all devices and with accumulation: what the published rate is meant for."""
        return self.batch_size * self.ranks * self.accumulation

    def overrides(self) -> tuple[str, ...]:
        """The options, in the form ``path=value`` of the command line."""
        m1, m2, m3 = self.margin
        values = {
            "batch_size": self.batch_size * self.ranks,
            "epochs": self.epochs,
            "model.backbone": self.backbone,
            "model.embedding_size": 512,
            "model.mixed_precision": "fp16",
            "head.scale": 64,
            "head.m1": m1,
            "head.m2": m2,
            "head.m3": m3,
            "head.interclass_threshold": self.interclass_threshold,
            "head.sampling_rate": self.sampling_rate,
            "optimizer.optimizer": self.optimizer,
            "optimizer.learning_rate": self.learning_rate,
            "optimizer.linear_scaling": True,
            "optimizer.linear_scaling_batch": self.total_batch,
            "optimizer.momentum": 0.9,
            "optimizer.weight_decay": self.weight_decay,
            "optimizer.warmup_epochs": self.warmup_epochs,
            "optimizer.accumulation": self.accumulation,
            "data.augmentation": self.augmentation,
            "verification.targets": list(self.targets),
            "verification.every": self.verify_every,
        }
        return tuple(f"{path}={'' if value == [] else show(value)}" for path, value in values.items())


_VIT = RecognitionPreset(
    "vit_t",
    _COSFACE,
    "webface42m",
    sampling_rate=0.3,
    optimizer="adamw",
    learning_rate=0.001,
    weight_decay=0.1,
    batch_size=384,
    ranks=64,
    epochs=40,
    warmup_epochs=4,
)
"""What the published trainings of vision transformers have in common."""

RECOGNITION_PRESETS: Mapping[str, RecognitionPreset] = MappingProxyType(
    {
        "3millions": RecognitionPreset("mbf", _COSFACE, "synthetic", sampling_rate=0.1, batch_size=512, epochs=30),
        "glint360k_mbf": RecognitionPreset("mbf", _COSFACE, "glint360k", weight_decay=1e-4, targets=_V),
        "glint360k_r100": RecognitionPreset("r100", _COSFACE, "glint360k", weight_decay=1e-4, targets=_V),
        "glint360k_r50": RecognitionPreset("r50", _COSFACE, "glint360k", weight_decay=1e-4, targets=_V),
        "ms1mv2_mbf": RecognitionPreset("mbf", _ARCFACE, "ms1mv2", weight_decay=1e-4, epochs=40, targets=_V),
        "ms1mv2_r100": RecognitionPreset("r100", _ARCFACE, "ms1mv2", targets=_V),
        "ms1mv2_r50": RecognitionPreset("r50", _ARCFACE, "ms1mv2", targets=_V),
        "ms1mv3_mbf": RecognitionPreset("mbf", _ARCFACE, "ms1mv3", weight_decay=1e-4, epochs=40, targets=_V),
        "ms1mv3_r100": RecognitionPreset("r100", _ARCFACE, "ms1mv3", targets=_V),
        "ms1mv3_r50": RecognitionPreset("r50", _ARCFACE, "ms1mv3", targets=_V),
        "ms1mv3_r50_onegpu": RecognitionPreset("r50", _ARCFACE, "ms1mv3", learning_rate=0.02, ranks=1, targets=_V),
        "wf12m_conflict_r50": RecognitionPreset("r50", _COSFACE, "webface12m_conflict", warmup_epochs=2),
        "wf12m_conflict_r50_pfc03_filter04": RecognitionPreset(
            "r50", _COSFACE, "webface12m_conflict", sampling_rate=0.3, interclass_threshold=0.4, warmup_epochs=2
        ),
        "wf12m_flip_pfc01_filter04_r50": RecognitionPreset(
            "r50", _COSFACE, "webface12m_flip40", sampling_rate=0.1, interclass_threshold=0.4, warmup_epochs=2
        ),
        "wf12m_flip_r50": RecognitionPreset("r50", _COSFACE, "webface12m_flip40", warmup_epochs=2),
        "wf12m_mbf": RecognitionPreset("mbf", _COSFACE, "webface12m", weight_decay=1e-4),
        "wf12m_pfc02_r100": RecognitionPreset("r100", _COSFACE, "webface12m", sampling_rate=0.2),
        "wf12m_r100": RecognitionPreset("r100", _COSFACE, "webface12m"),
        "wf12m_r50": RecognitionPreset("r50", _COSFACE, "webface12m"),
        "wf42m_pfc0008_32gpu_r100": RecognitionPreset(
            "r100",
            _COSFACE,
            "webface42m",
            sampling_rate=0.0,
            learning_rate=0.4,
            batch_size=512,
            ranks=32,
            warmup_epochs=2,
            targets=_V,
        ),
        "wf42m_pfc02_16gpus_mbf_bs8k": RecognitionPreset(
            "mbf",
            _COSFACE,
            "webface42m",
            sampling_rate=0.2,
            learning_rate=0.4,
            weight_decay=1e-4,
            batch_size=512,
            ranks=16,
            warmup_epochs=2,
            verify_every=10000,
        ),
        "wf42m_pfc02_16gpus_r100": RecognitionPreset(
            "r100",
            _COSFACE,
            "webface42m",
            sampling_rate=0.2,
            learning_rate=0.3,
            batch_size=256,
            ranks=16,
            warmup_epochs=1,
            targets=_V,
        ),
        "wf42m_pfc02_16gpus_r50_bs8k": RecognitionPreset(
            "r50",
            _COSFACE,
            "webface42m",
            sampling_rate=0.2,
            learning_rate=0.6,
            batch_size=512,
            ranks=16,
            warmup_epochs=4,
            verify_every=10000,
            targets=_V,
        ),
        "wf42m_pfc02_32gpus_r50_bs4k": RecognitionPreset(
            "r50",
            _COSFACE,
            "webface42m",
            sampling_rate=0.2,
            learning_rate=0.4,
            ranks=32,
            warmup_epochs=2,
            verify_every=10000,
            targets=_V,
        ),
        "wf42m_pfc02_8gpus_r50_bs4k": RecognitionPreset(
            "r50",
            _COSFACE,
            "webface42m",
            sampling_rate=0.2,
            learning_rate=0.4,
            batch_size=512,
            warmup_epochs=2,
            verify_every=10000,
            targets=_V,
        ),
        "wf42m_pfc02_r100": RecognitionPreset(
            "r100", _COSFACE, "webface42m", sampling_rate=0.2, verify_every=10000, targets=_V
        ),
        "wf42m_pfc02_r100_16gpus": RecognitionPreset(
            "r100",
            _COSFACE,
            "webface42m",
            sampling_rate=0.2,
            learning_rate=0.2,
            ranks=16,
            warmup_epochs=2,
            verify_every=10000,
            targets=_V,
        ),
        "wf42m_pfc02_r100_32gpus": RecognitionPreset(
            "r100",
            _COSFACE,
            "webface42m",
            sampling_rate=0.2,
            learning_rate=0.4,
            ranks=32,
            warmup_epochs=2,
            verify_every=10000,
            targets=_V,
        ),
        "wf42m_pfc02_vit_h": replace(
            _VIT,
            backbone="vit_h",
            sampling_rate=0.5,
            batch_size=768,
            ranks=8,
            epochs=16,
            warmup_epochs=2,
            augmentation="dali_aug",
        ),
        "wf42m_pfc03_32gpu_r100": RecognitionPreset(
            "r100", _COSFACE, "webface42m", sampling_rate=0.3, learning_rate=0.4, ranks=32, warmup_epochs=2, targets=_V
        ),
        "wf42m_pfc03_32gpu_r18": RecognitionPreset(
            "r18", _COSFACE, "webface42m", sampling_rate=0.3, learning_rate=0.4, ranks=32, warmup_epochs=2, targets=_V
        ),
        "wf42m_pfc03_32gpu_r200": RecognitionPreset(
            "r200", _COSFACE, "webface42m", sampling_rate=0.3, learning_rate=0.4, ranks=32, warmup_epochs=2, targets=_V
        ),
        "wf42m_pfc03_32gpu_r50": RecognitionPreset(
            "r50", _COSFACE, "webface42m", sampling_rate=0.3, learning_rate=0.4, ranks=32, warmup_epochs=2, targets=_V
        ),
        "wf42m_pfc03_40epoch_64gpu_vit_b": replace(_VIT, backbone="vit_b_dp005_mask_005"),
        "wf42m_pfc03_40epoch_64gpu_vit_l": replace(_VIT, backbone="vit_l_dp005_mask_005"),
        "wf42m_pfc03_40epoch_64gpu_vit_s": replace(_VIT, backbone="vit_s_dp005_mask_0"),
        "wf42m_pfc03_40epoch_64gpu_vit_t": replace(_VIT, backbone="vit_t_dp005_mask0"),
        "wf42m_pfc03_40epoch_8gpu_vit_b": replace(
            _VIT, backbone="vit_b_dp005_mask_005", batch_size=256, ranks=8, accumulation=12
        ),
        "wf42m_pfc03_40epoch_8gpu_vit_t": replace(_VIT, backbone="vit_t_dp005_mask0", batch_size=512, ranks=8),
        "wf4m_mbf": RecognitionPreset("mbf", _COSFACE, "webface4m", weight_decay=1e-4, targets=_V),
        "wf4m_r100": RecognitionPreset("r100", _COSFACE, "webface4m", targets=_V),
        "wf4m_r50": RecognitionPreset("r50", _COSFACE, "webface4m", targets=_V),
    }
)
"""The presets by their published names."""


def recognition_preset(name: str) -> RecognitionPreset:
    """The preset of that name; letter case and ``-`` for ``_`` do not matter.

    :raises UsageError: there is none; the nearest name is told.
    """
    found = RECOGNITION_PRESETS.get(name.strip().lower().replace("-", "_"))
    if found is None:
        meant = nearest(name, RECOGNITION_PRESETS)
        raise UsageError(
            f"--preset {name}: there is no such preset.",
            advice=f"Did you mean {meant}?" if meant else f"There are: {', '.join(RECOGNITION_PRESETS)}.",
            name=name,
        )
    return found
