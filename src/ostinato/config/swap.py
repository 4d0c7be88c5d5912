"""All options of a swap run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from ostinato.config.declaration import Conflict, Options, option
from ostinato.config.face import FaceOptions, MaskOptions
from ostinato.config.loading import AugmentationOptions, LoaderOptions
from ostinato.config.loss import LossOptions
from ostinato.config.network import ConvertOptions, InitializationOptions, ModelOptions, NetworkOptions
from ostinato.config.optimizer import OptimizerOptions
from ostinato.config.rate_finder import RateFinderOptions
from ostinato.config.recovery import RecoveryOptions


class SwapOptions(Options):
    """The options of training a model that swaps faces."""

    seed: int | None = option(
        None,
        group="run",
        fixed=True,
        why_fixed="the order of the faces and all their random changes follow from it",
        ge=0,
        le=2**63 - 1,
        help="""The number that all chance in the run grows from. Two new runs with the same seed, the same options
        and the same faces see the same batches. Leave it at null: a number is then drawn, shown and kept. Give one
        only to repeat a run.""",
    )
    model: ModelOptions = Field(default_factory=ModelOptions)
    face: FaceOptions = Field(default_factory=FaceOptions)
    mask: MaskOptions = Field(default_factory=MaskOptions)
    loss: LossOptions = Field(default_factory=LossOptions)
    optimizer: OptimizerOptions = Field(default_factory=OptimizerOptions)
    rate_finder: RateFinderOptions = Field(default_factory=RateFinderOptions)
    network: NetworkOptions = Field(default_factory=NetworkOptions)
    recovery: RecoveryOptions = Field(default_factory=RecoveryOptions)
    initialization: InitializationOptions = Field(default_factory=InitializationOptions)
    augmentation: AugmentationOptions = Field(default_factory=AugmentationOptions)
    loader: LoaderOptions = Field(default_factory=LoaderOptions)
    convert: ConvertOptions = Field(default_factory=ConvertOptions)

    ini_sections: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "global": ("face", "initialization", "network", "convert", "rate_finder"),
        "global.loss": ("loss", "mask"),
        "global.optimizer": ("optimizer",),
        "model.original": ("model",),
        "trainer.augmentation": ("augmentation",),
        "trainer.loader": ("loader",),
    }

    def conflicts(self) -> list[Conflict]:
        """What the sections say of themselves, and a mask that is needed and switched off."""
        found = super().conflicts()
        if self.mask.mask_type == "none":
            for path, wanted in (
                ("mask.learn_mask", self.mask.learn_mask),
                ("loss.penalized_mask_loss", self.loss.penalized_mask_loss),
            ):
                if wanted:
                    message = (
                        f"mask.mask_type is none, and {path} needs a mask; choose a mask (extended suits most runs), "
                        f"or set {path} to false"
                    )
                    found.append(Conflict((path, "mask.mask_type"), message))
        return found

    def idle(self) -> list[Conflict]:
        """What the sections say of themselves, and a recovery from what nothing watches."""
        remarks = super().idle()
        if self.recovery.nan_recovery and not self.network.nan_protection:
            remarks.append(Conflict(("recovery.nan_recovery", "network.nan_protection"), "nan_protection is false"))
        return remarks
