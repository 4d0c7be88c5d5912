"""What known recipes train in which update, and their numbers, through the updater and the presets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ostinato.extensions.recipe_presets import RECIPE_PRESETS, fine_tuning, recipe_preset
from ostinato.loop import Part, PartsUpdater, StandardUpdater, adversarial_parts


@pytest.fixture
def cases(golden: Path):
    def read(name: str) -> list[dict[str, Any]]:
        return json.loads((golden / "training-loop" / f"{name}.json").read_text())["cases"]

    return read


def updater_of(parts: list[Part], loader: Any = None, **settings: Any) -> PartsUpdater:
    models = {part.name: nn.Linear(1, 1) for part in parts}
    losses = [
        Part(
            part.name,
            lambda batch, turn, model=models[part.name]: model(batch).sum(),
            start=part.start,
            stop=part.stop,
        )
        for part in parts
    ]
    optimizers = {name: torch.optim.SGD(model.parameters(), lr=0.1) for name, model in models.items()}
    return PartsUpdater(models, optimizers, loader or [torch.ones(1, 1)] * 4, losses, **settings)


def trained(updater: PartsUpdater, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows as they come out here."""
    names = [name for name in rows[0] if name != "update"]
    found = []
    for _ in rows:
        updater.update()
        found.append({"update": updater.state.iteration, **{name: name in updater.turns for name in names}})
    return found


def test_adversarial_parts_start_one_update_after_upstreams_number(cases) -> None:
    schedules = [case for case in cases("sub_update_schedule.paddlespeech") if "generator_train_start_steps" in case]
    assert len(schedules) == 4
    for case in schedules:
        parts = adversarial_parts(
            max,
            min,
            generator_start=case["generator_train_start_steps"] + 1,
            discriminator_start=case["discriminator_train_start_steps"] + 1,
        )
        assert trained(updater_of(parts, allow_idle=True), case["updates"]) == case["updates"], case
        assert [part.name for part in parts] == ["generator", "discriminator"]


def test_presets_that_match_upstream_start_in_its_updates(cases) -> None:
    first = {case["name"]: case for case in cases("sub_update_schedule.paddlespeech") if "first update" in case["rule"]}
    names = {
        "ParallelWaveGAN": "parallel_wavegan",
        "Multi-band MelGAN": "multi_band_melgan",
        "Style MelGAN": "style_melgan",
        "HiFiGAN": "hifigan",
    }
    assert set(first) == set(names)
    for recipe, name in names.items():
        preset = recipe_preset(name, match_upstream=True)
        assert preset.generator_start + 1 == first[recipe]["generator"]
        assert preset.discriminator_start + 1 == first[recipe]["discriminator"]
        # And without that, upstream's own numbers with the meaning that they have here: no update is lost.
        assert recipe_preset(name).generator_start == first[recipe]["generator"] - 2
        assert min(recipe_preset(name).generator_start, recipe_preset(name).discriminator_start) == 0


def test_two_phases_follow_each_other_with_the_gap_only_if_it_is_asked_for(cases) -> None:
    (case,) = (case for case in cases("sub_update_schedule.paddlespeech") if case["rule"].startswith("DiffSinger"))
    start, rows = case["start"], case["updates"]
    like_upstream = [Part("acoustic", max, stop=start), Part("diffusion", min, start=start + 1)]
    assert trained(updater_of(like_upstream, allow_idle=True), rows) == rows
    with pytest.raises(RuntimeError, match=f"Update {start + 1} would read a batch and train no part of it"):
        trained(updater_of(like_upstream), rows)
    here = [Part("acoustic", max, stop=start), Part("diffusion", min, start=start)]
    assert [row["diffusion"] for row in trained(updater_of(here), rows)] == [row["update"] > start for row in rows]


def test_schedules_per_epoch_advance_after_the_epoch_and_not_in_its_first_update(cases) -> None:
    (case,) = (case for case in cases("sub_update_schedule.paddlespeech") if case["rule"].startswith("VITS"))
    length, advances = case["updates_per_epoch"], case["schedule_advances_in_updates"]
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    updater = StandardUpdater(
        model,
        optimizer,
        [torch.ones(1, 1)] * length,
        loss_function=lambda result, batch: result.sum(),
        schedulers={"main": (schedule, "epoch")},
    )
    used = []
    for _ in range(advances[-1]):
        used.append(optimizer.param_groups[0]["lr"])
        updater.update()
    lowered = [update for update in range(2, len(used) + 1) if used[update - 1] != used[update - 2]]
    # Upstream lowers the rate after the first update of each epoch, the very first included; here the first update of
    # the next epoch is the first one with a lower rate.
    assert lowered == advances[1:]


def test_order_of_the_parts_in_one_update(cases) -> None:
    (case,) = (case for case in cases("sub_update_schedule.paddlespeech") if case["rule"].startswith("order"))
    orders = {
        "VITS_default": recipe_preset("vits").generator_first,
        "JETS_default": recipe_preset("jets").generator_first,
        "GAN_vocoders": recipe_preset("hifigan").generator_first,
        "generator_first_true": True,
        "generator_first_false": False,
    }
    for name, generator_first in orders.items():
        updater = updater_of(adversarial_parts(max, min, generator_first=generator_first))
        updater.update()
        assert updater.turns == case[name]


NAMES = {
    "VITS": "vits",
    "VITS (aishell3, aishell3 voice cloning)": "vits_aishell3",
    "JETS": "jets",
    "HiFiGAN": "hifigan",
    "HiFiGAN fine-tuning": "hifigan_finetune",
    "HiFiGAN (opencpop)": "hifigan_opencpop",
    "iSTFTNet": "istftnet",
    "ParallelWaveGAN": "parallel_wavegan",
    "ParallelWaveGAN (aishell3)": "parallel_wavegan_aishell3",
    "ParallelWaveGAN (vctk)": "parallel_wavegan_vctk",
    "Multi-band MelGAN": "multi_band_melgan",
    "Multi-band MelGAN fine-tuning": "multi_band_melgan_finetune",
    "Style MelGAN": "style_melgan",
    "WaveRNN": "wavernn",
    "DiffSinger": "diffsinger",
    "FastSpeech2": "fastspeech2",
    "SpeedySpeech": "speedyspeech",
    "Tacotron2": "tacotron2",
    "Transformer TTS": "transformer_tts",
    "ERNIE-SAT": "ernie_sat",
    "StarGANv2-VC": "starganv2_vc",
    "Punctuation restoration": "punctuation",
    "WaveFlow": "waveflow",
}


def test_the_numbers_of_every_recipe(cases) -> None:
    rows = {case["recipe"]: case for case in cases("recipes.paddlespeech")}
    assert len(rows) == 24
    assert set(NAMES.values()) == set(RECIPE_PRESETS)
    for recipe, case in rows.items():
        if recipe == "FastSpeech2 fine-tuning":
            assert case["stop_trigger"] == ["pretrained max_epoch + 100 by default", "epoch"]
            pretrained = recipe_preset("fastspeech2")
            tuned = fine_tuning(pretrained)
            assert tuned.stop == (pretrained.stop[0] + 100, "epoch")
            assert (tuned.num_snapshots, tuned.seed) == (pretrained.num_snapshots, pretrained.seed)
            continue
        preset = recipe_preset(NAMES[recipe])
        assert list(preset.stop) == case["stop_trigger"], recipe
        assert list(preset.evaluation) == case["evaluator_trigger"], recipe
        assert list(preset.save) == case["snapshot_trigger"], recipe
        assert list(preset.writer) == case["writer_trigger"], recipe
        assert preset.num_snapshots == (-1 if case["num_snapshots"] == "unlimited" else case["num_snapshots"]), recipe
        assert preset.seed == (None if case["seed"] == "not set" else case["seed"]), recipe
        assert preset.batch_size == case["batch_size"], recipe
        if "samples_period" in case:
            assert preset.samples == (case["samples_period"], "iteration")
    assert "start 1) then discriminator (start 0)" in rows["HiFiGAN"]["sub_updates"]
    assert "start 0) then discriminator (start 100000)" in rows["ParallelWaveGAN"]["sub_updates"]
    for name, starts in (("hifigan", (1, 0)), ("istftnet", (1, 0)), ("parallel_wavegan", (0, 100000))):
        assert (recipe_preset(name).generator_start, recipe_preset(name).discriminator_start) == starts
    assert "start 0 / 200000" in rows["Multi-band MelGAN"]["sub_updates"]
    assert recipe_preset("multi_band_melgan").discriminator_start == 200000
    assert "160000" in rows["DiffSinger"]["sub_updates"]
    assert recipe_preset("diffsinger").phases == (160000, 160000)
