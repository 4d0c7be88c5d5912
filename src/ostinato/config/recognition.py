"""All options of a recognition run."""

from __future__ import annotations

from pydantic import Field

from ostinato.config.declaration import Conflict, Options, option
from ostinato.config.recognition_data import RecognitionDataOptions, RecognitionVerificationOptions
from ostinato.config.recognition_head import RecognitionHeadOptions
from ostinato.config.recognition_model import RecognitionModelOptions
from ostinato.config.recognition_optimizer import RecognitionOptimizerOptions


class RecognitionOptions(Options):
    """The options of training a model that recognises faces."""

    seed: int | None = option(
        None,
        group="run",
        fixed=True,
        why_fixed="the order of the images and all chance in the run follow from it",
        ge=0,
        le=2**63 - 1,
        help="""The number that all chance in the run grows from. Leave it at null: a number is then drawn, shown and
        kept. Give one only to repeat a run.""",
    )
    batch_size: int = option(
        128,
        group="run",
        ge=2,
        le=10_000_000,
        usual=(8, 65536),
        help="""How many images are looked at together, over all processes: 8 processes and 1024 make 128 each. So a run
        means the same with any number of processes. Larger is faster and needs more memory; the learning rate has to go
        with it. -b is short for it.""",
    )
    epochs: float = option(
        20.0,
        group="run",
        gt=0.0,
        le=1_000_000.0,
        help="""How long the run is, in passes over the data. The schedule of the learning rate is laid over this
        length, so changing it in the middle of a run changes the rate at once. -e is short for it.""",
    )
    iterations: int = option(
        0,
        group="run",
        ge=0,
        le=10**12,
        help="""How long the run is, in updates, all sessions together; it wins over epochs. 0 counts in epochs. -i is
        short for it.""",
    )
    model: RecognitionModelOptions = Field(default_factory=RecognitionModelOptions)
    head: RecognitionHeadOptions = Field(default_factory=RecognitionHeadOptions)
    optimizer: RecognitionOptimizerOptions = Field(default_factory=RecognitionOptimizerOptions)
    data: RecognitionDataOptions = Field(default_factory=RecognitionDataOptions)
    verification: RecognitionVerificationOptions = Field(default_factory=RecognitionVerificationOptions)

    def conflicts(self) -> list[Conflict]:
        """What the sections say of themselves, and ways of updating that do not go together."""
        found = super().conflicts()
        if self.head.update == "dense_lazy" and self.optimizer.optimizer != "sgd":
            message = (
                f"head.update dense_lazy can be computed for sgd alone, and optimizer.optimizer is "
                f"{self.optimizer.optimizer}; set head.update to frozen"
            )
            found.append(Conflict(("head.update", "optimizer.optimizer"), message))
        return found

    def idle(self) -> list[Conflict]:
        """What the sections say of themselves, and what the kind of network leaves without effect."""
        remarks = super().idle()
        if self.model.dropout and not self.model.backbone.startswith("r"):
            remarks.append(Conflict(("model.dropout", "model.backbone"), f"the network {self.model.backbone} has none"))
        if self.iterations and self.epochs != 20.0:
            remarks.append(Conflict(("epochs", "iterations"), "iterations is given"))
        return remarks
