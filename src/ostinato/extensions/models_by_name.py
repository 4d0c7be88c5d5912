"""The models of a run and their parameters by name, as extensions find them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from ostinato.errors import ArgumentTypeError, StateError
from ostinato.loop import TrainerView


def find_models(trainer: TrainerView, models: Any, owner: str) -> dict[str, nn.Module]:
    """The models that an extension was told to look at.

    :param models: a module, modules by name, or ``None`` for those of the updater.
    :param owner: who asks, for messages.
    :raises ArgumentTypeError: when what was given holds something else.
    :raises StateError: when the updater has none.
    """
    if models is None:
        models = getattr(trainer.updater, "models", None)
        if not isinstance(models, Mapping) or not models:
            raise StateError(
                f"{owner} looks for models, and this updater has none in a mapping 'models'.",
                advice="Give the extension the models: models=model, or models={'main': model}.",
            )
    by_name = dict(models) if isinstance(models, Mapping) else {"main": models}
    for model in by_name.values():
        if not isinstance(model, nn.Module):
            raise ArgumentTypeError(
                f"{owner}: models must be a module, modules by name, or None, not {models!r}.",
                name="models",
                value=models,
            )
    return by_name


def parameters_by_name(models: Mapping[str, nn.Module]) -> dict[str, nn.Parameter]:
    """All parameters: ``layer.weight`` where there is one model, ``generator.layer.weight`` where there are several."""
    return {
        name if len(models) == 1 else f"{model_name}.{name}": parameter
        for model_name, model in models.items()
        for name, parameter in model.named_parameters()
    }
