from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ostinato.extensions import StandardEvaluator
from ostinato.extensions.presets import LoopPreset, read_preset
from ostinato.extensions.recipe_presets import RECIPE_PRESETS, fine_tuning, recipe_preset
from ostinato.loop import PartsUpdater, Trainer
from ostinato.runs import RunFolder

STEPS = {"train_max_steps": 350000, "eval_interval_steps": 250, "save_interval_steps": 1000}
EPOCHS = {"max_epoch": 1000, "eval_interval_epochs": 2, "save_interval_epochs": 3}


def test_steps_are_iterations_and_epochs_are_epochs() -> None:
    assert read_preset(STEPS) == LoopPreset((350000, "iteration"), (250, "iteration"), (1000, "iteration"))
    assert read_preset(EPOCHS) == LoopPreset((1000, "epoch"), (2, "epoch"), (3, "epoch"))
    mixed = {"max_epoch": 7, "train_max_steps": None, "eval_interval_steps": 5, "save_interval_epochs": 1}
    assert read_preset(mixed) == LoopPreset((7, "epoch"), (5, "iteration"), (1, "epoch"))


def test_all_keys_have_a_meaning() -> None:
    given = {
        **STEPS,
        "num_snapshots": -1,
        "seed": 777,
        "generator_first": False,
        "generator_train_start_steps": 1,
        "discriminator_train_start_steps": 100000,
    }
    preset = read_preset(given)
    assert (preset.num_snapshots, preset.seed) == (-1, 777)
    parts = preset.parts(max, min)
    assert [(part.name, part.start) for part in parts] == [
        ("discriminator", (100000, "iteration")),
        ("generator", (1, "iteration")),
    ]


PAIRS = [
    ("train_max_steps", "max_epoch"),
    ("eval_interval_steps", "eval_interval_epochs"),
    ("save_interval_steps", "save_interval_epochs"),
]


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("both", [True, False])
def test_both_or_none_of_a_pair_is_an_error_that_names_the_keys(pair: tuple[str, str], both: bool) -> None:
    given = {**STEPS, pair[1]: 3} if both else {key: value for key, value in STEPS.items() if key not in pair}
    with pytest.raises(ValueError) as caught:
        read_preset(given)
    assert f"{'both are' if both else 'neither is'} given; give exactly one of {pair[0]} and {pair[1]}" in str(
        caught.value
    )


def test_all_mistakes_are_reported_at_once() -> None:
    given = {
        "train_max_step": 5,
        "eval_interval_steps": 0,
        "save_interval_steps": "many",
        "save_interval_epochs": 2,
        "num_snapshots": 0,
        "seed": -1,
        "generator_first": "perhaps",
    }
    with pytest.raises(ValueError) as caught:
        read_preset(given)
    message = str(caught.value)
    for words in (
        "There are 7 mistakes",
        "train_max_step is not a key; did you mean train_max_steps?",
        "exactly one of train_max_steps and max_epoch",
        "eval_interval_steps = 0 is out of range; expected is a whole number from 1",
        "save_interval_steps = many is not a whole number",
        "num_snapshots = 0 would keep nothing",
        "seed = -1 is out of range",
        "generator_first = perhaps is neither true nor false",
    ):
        assert words in message
    assert len(caught.value.fields["problems"]) == 7  # type: ignore[attr-defined]


@pytest.mark.parametrize(("number", "allowed"), [(-2, False), (-1, True), (0, False), (1, True)])
def test_the_number_of_kept_states(number: int, allowed: bool) -> None:
    if allowed:
        assert read_preset({**STEPS, "num_snapshots": number}).num_snapshots == number
    else:
        with pytest.raises(ValueError, match=f"num_snapshots = {number}"):
            read_preset({**STEPS, "num_snapshots": number})


def test_a_file_is_read_as_data_with_the_line_of_each_mistake(tmp_path: Path) -> None:
    path = tmp_path / "default.yaml"
    path.write_text(
        "train_max_steps: 350000  # a comment\neval_interval_steps: 250\nsave_interval_steps: 1000\nseed: 7\n"
    )
    assert read_preset(path) == read_preset(str(path)) == read_preset({**STEPS, "seed": 7})
    path.write_text(path.read_text() + "num_snapshots: 5\nnum_snapshots: 10\nbatch_size: 64\nmodel:\n  layers: 3\n")
    with pytest.raises(ValueError) as caught:
        read_preset(path)
    message = str(caught.value)
    assert "line 6: num_snapshots is given twice, first in line 5" in message
    assert "line 7: batch_size is not an option" in message
    assert "line 8" in message
    with pytest.raises(ValueError) as caught:
        read_preset(path, others={"batch_size", "model"})
    assert len(caught.value.fields["problems"]) == 1  # type: ignore[attr-defined]
    path.write_text("train_max_steps: !!python/object/apply:os.getcwd []\n")
    with pytest.raises(ValueError, match="line 1: train_max_steps takes one value, not a list"):
        read_preset(path)


def test_others_are_passed_over_in_a_mapping_too() -> None:
    assert read_preset({**STEPS, "batch_size": 4}, others=["batch_size"]) == read_preset(STEPS)
    with pytest.raises(TypeError, match="from a mapping or a file, not from 3"):
        read_preset(3)  # type: ignore[arg-type]


def test_a_preset_registers_what_the_recipe_needs() -> None:
    models = {"generator": nn.Linear(1, 1), "discriminator": nn.Linear(1, 1)}
    preset = read_preset(
        {
            "train_max_steps": 9,
            "eval_interval_epochs": 1,
            "save_interval_steps": 2,
            "num_snapshots": 3,
            "discriminator_train_start_steps": 4,
            "generator_first": False,
        }
    )
    loader = [torch.ones(2, 1)] * 3
    updater = PartsUpdater(
        models,
        {name: torch.optim.SGD(model.parameters(), lr=0.1) for name, model in models.items()},
        loader,
        preset.parts(
            lambda batch, turn: models["discriminator"](turn["fake"]).mean(),
            lambda batch, turn: models["discriminator"](turn.detached("fake")).square().mean(),
        ),
        shared={"fake": lambda batch, turn: models["generator"](batch)},
    )
    trainer = Trainer(updater, preset.stop, "out")
    rows: list[Any] = []

    def write(trainer: Trainer) -> None:
        rows.append((trainer.updater.state.iteration, updater.turns, "validation/main" in trainer.observation))

    preset.extend(
        trainer,
        evaluator=StandardEvaluator(models, loader, lambda batch: 1.0, prefix="validation/"),
        writer=write,
        snapshot={"save_last": False},
    )
    trainer.run()
    pair = ["discriminator", "generator"]
    assert rows == [(n, ["generator"] if n <= 4 else pair, n % 3 == 0) for n in range(1, 10)]
    newest = RunFolder(Path("out")).load_newest()
    assert newest is not None
    assert newest.iteration == 8
    assert len(list(Path("out/generations").glob("0*"))) == 3


# --- named presets --------------------------------------------------------------------------------------------------


def test_a_part_of_a_named_preset_starts_as_the_numbers_say_or_as_the_original_does() -> None:
    def first_updates(preset: LoopPreset) -> dict[str, Any]:
        return {part.name: part.start[0] + 1 for part in preset.parts(max, min)}  # type: ignore[index,operator]

    assert first_updates(recipe_preset("hifigan")) == {"generator": 2, "discriminator": 1}
    assert first_updates(recipe_preset("hifigan", match_upstream=True)) == {"generator": 3, "discriminator": 2}
    for name in ("vits", "jets"):
        assert first_updates(recipe_preset(name, match_upstream=True)) == {"generator": 1, "discriminator": 1}
    assert recipe_preset("diffsinger").phases == (160000, 160000)
    assert recipe_preset("diffsinger", match_upstream=True).phases == (160000, 160001)


def test_every_named_preset_is_one_that_could_be_written_down() -> None:
    for name, preset in RECIPE_PRESETS.items():
        keys = {}
        for (number, unit), pair in zip((preset.stop, preset.evaluation, preset.save), PAIRS, strict=True):
            keys[pair[unit == "epoch"]] = number
        again = read_preset(
            {
                **keys,
                "num_snapshots": preset.num_snapshots,
                "seed": preset.seed,
                "generator_first": preset.generator_first,
                "generator_train_start_steps": preset.generator_start,
                "discriminator_train_start_steps": preset.discriminator_start,
            }
        )
        assert again.stop == preset.stop, name
        assert again.seed == preset.seed


def test_an_unknown_recipe_is_named_with_the_nearest_one() -> None:
    with pytest.raises(ValueError, match=r"No recipe preset is named 'hifi_gan'\. Did you mean 'hifigan'\?"):
        recipe_preset("hifi_gan")


def test_fine_tuning_adds_epochs_to_those_of_the_pretrained_model() -> None:
    tuned = fine_tuning(recipe_preset("fastspeech2"))
    assert (tuned.stop, tuned.num_snapshots, tuned.seed) == ((1100, "epoch"), 5, 10086)
    with pytest.raises(ValueError, match="trained for 350000 iterations, and fine-tuning adds epochs"):
        fine_tuning(recipe_preset("jets"))
