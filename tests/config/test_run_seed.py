from __future__ import annotations

from pathlib import Path

from ostinato.config import RecognitionOptions, SwapOptions, render_yaml
from ostinato.config.run_seed import with_seed


def test_a_seed_that_was_given_stays(tmp_path: Path) -> None:
    kept = tmp_path / "config.yaml"
    kept.write_text(render_yaml(SwapOptions(seed=7)))
    assert with_seed(SwapOptions(seed=0), kept).seed == 0


def test_a_seed_is_drawn_anew_each_time_and_can_be_copied_by_hand(tmp_path: Path) -> None:
    seeds = [with_seed(RecognitionOptions(), tmp_path / "missing.yaml").seed for _ in range(2)]
    assert seeds[0] != seeds[1]
    assert all(seed is not None and 0 <= seed < 2**53 for seed in seeds)


def test_the_seed_that_a_run_had_drawn_goes_on(tmp_path: Path) -> None:
    kept = tmp_path / "config.yaml"
    kept.write_text(render_yaml(with_seed(RecognitionOptions())))
    first = with_seed(RecognitionOptions(), kept).seed
    assert first == with_seed(RecognitionOptions(), kept).seed
    kept.write_text("no options: at all\n")
    assert with_seed(RecognitionOptions(), kept).seed != first
