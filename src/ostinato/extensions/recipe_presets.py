"""The numbers of PaddleSpeech's text-to-speech recipes (March 2024), as presets.

Facts of their default configurations. Their ``..._train_start_steps`` train a part when *more* updates are completed;
here ``start = n`` means that update n + 1 is the first one. So the presets have no first update that trains nothing;
with ``match_upstream`` they train each part in exactly the updates in which the original does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from ostinato.config.values import nearest
from ostinato.errors import ArgumentValueError
from ostinato.extensions.presets import LoopPreset


@dataclass(frozen=True)
class RecipePreset(LoopPreset):
    """A preset with what else a recipe's configuration says."""

    batch_size: int | None = None
    """Samples in a batch of each rank."""
    samples: tuple[int, str] | None = None
    """When to write sample files within the evaluation, as a trigger (WaveRNN)."""
    phases: tuple[int, int] | None = None
    """The ``stop`` of the part that is trained first and the ``start`` of the one that follows, in iterations
    (DiffSinger: the acoustic and the diffusion part)."""


def _steps(stop: int, evaluation: int, save: int, batch: int, seed: int, *, keep: int = 10) -> RecipePreset:
    return RecipePreset(
        (stop, "iteration"), (evaluation, "iteration"), (save, "iteration"), keep, seed, batch_size=batch
    )


def _epochs(stop: int, batch: int, seed: int, *, keep: int = 5) -> RecipePreset:
    return RecipePreset((stop, "epoch"), (1, "epoch"), (1, "epoch"), keep, seed, batch_size=batch)


def _vocoder(stop: int, save: int, batch: int, starts: tuple[int, int], *, keep: int = 10) -> RecipePreset:
    generator, discriminator = starts
    plain = _steps(stop, 1000, save, batch, 42, keep=keep)
    return replace(plain, generator_start=generator, discriminator_start=discriminator)


_HIFIGAN = (1, 0)
_PARALLEL_WAVEGAN = (0, 100_000)
_MULTI_BAND_MELGAN = (0, 200_000)

RECIPE_PRESETS: Mapping[str, RecipePreset] = MappingProxyType(
    {
        "vits": replace(_epochs(1000, 64, 777, keep=10), generator_first=False),
        "vits_aishell3": replace(_steps(350_000, 250, 1000, 50, 777), generator_first=False),
        "jets": _steps(350_000, 250, 1000, 32, 777),
        "hifigan": _vocoder(2_500_000, 5000, 16, _HIFIGAN),
        "hifigan_finetune": _vocoder(2_500_000, 10_000, 16, _HIFIGAN),
        "hifigan_opencpop": _vocoder(2_500_000, 5000, 16, _HIFIGAN, keep=4),
        "istftnet": _vocoder(2_500_000, 5000, 16, _HIFIGAN),
        "parallel_wavegan": _vocoder(400_000, 5000, 8, _PARALLEL_WAVEGAN),
        "parallel_wavegan_aishell3": _vocoder(1_000_000, 5000, 8, _PARALLEL_WAVEGAN),
        "parallel_wavegan_vctk": _vocoder(1_500_000, 5000, 6, _PARALLEL_WAVEGAN),
        "multi_band_melgan": _vocoder(1_000_000, 5000, 64, _MULTI_BAND_MELGAN),
        "multi_band_melgan_finetune": _vocoder(2_000_000, 1000, 64, _MULTI_BAND_MELGAN),
        "style_melgan": _vocoder(1_500_000, 5000, 32, _PARALLEL_WAVEGAN),
        "wavernn": replace(_steps(400_000, 1000, 5000, 64, 42), samples=(5000, "iteration")),
        "diffsinger": replace(_steps(320_000, 2000, 2000, 48, 10086, keep=5), phases=(160_000, 160_000)),
        "fastspeech2": _epochs(1000, 64, 10086),
        "speedyspeech": _epochs(200, 64, 10086),
        "tacotron2": _epochs(200, 64, 42),
        "transformer_tts": _epochs(500, 16, 10086),
        "ernie_sat": _epochs(1500, 40, 0, keep=50),
        "starganv2_vc": _epochs(150, 5, 1),
        "punctuation": _epochs(20, 64, 42, keep=10),
        "waveflow": replace(_steps(3_000_000, 1000, 10_000, 8, 0, keep=-1), seed=None),
    }
)
"""The presets by name."""

_ADVERSARIAL_VOCODERS = ("hifigan", "istftnet", "parallel_wavegan", "multi_band_melgan", "style_melgan")


def recipe_preset(name: str, *, match_upstream: bool = False) -> RecipePreset:
    """The preset of that name.

    :param match_upstream: train each part in exactly the updates in which the original does. For adversarial vocoders
        the first update then trains nothing, and for DiffSinger the one between its phases; a
        :class:`~ostinato.loop.PartsUpdater` accepts that with ``allow_idle=True``.
    :raises ArgumentValueError: when there is none.
    """
    if name not in RECIPE_PRESETS:
        meant = nearest(str(name), RECIPE_PRESETS)
        raise ArgumentValueError(
            f"No recipe preset is named {name!r}.",
            advice=f"Did you mean {meant!r}?" if meant else f"There are: {', '.join(RECIPE_PRESETS)}.",
            name=name,
        )
    preset = RECIPE_PRESETS[name]
    if match_upstream and name.startswith(_ADVERSARIAL_VOCODERS):
        preset = replace(
            preset, generator_start=preset.generator_start + 1, discriminator_start=preset.discriminator_start + 1
        )
    if match_upstream and preset.phases is not None:
        stop, start = preset.phases
        preset = replace(preset, phases=(stop, start + 1))
    return preset


def fine_tuning(pretrained: LoopPreset, epochs: int = 100) -> LoopPreset:
    """The preset of a model that is trained further: so many epochs more than the pretrained one, all else as there.

    :raises ArgumentValueError: when the pretrained model did not count in epochs.
    """
    stop, unit = pretrained.stop
    if unit != "epoch":
        raise ArgumentValueError(
            f"The pretrained model was trained for {stop} iterations, and fine-tuning adds epochs.",
            advice="Give the fine-tuning a preset of its own.",
            value=pretrained.stop,
        )
    return replace(pretrained, stop=(stop + epochs, "epoch"))
