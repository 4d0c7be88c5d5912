from __future__ import annotations

from typing import Any

import pytest

from ostinato.loop import Part, UpdaterState, adversarial_parts


def active_in(part: Part, updates: int = 8, length: int = 3) -> list[int]:
    """The updates between start and stop."""
    state = UpdaterState(updates_per_epoch=length)
    found = []
    for update in range(1, updates + 1):
        if part.is_active(state):
            found.append(update)
        state.advance()
    return found


@pytest.mark.parametrize(
    ("start", "stop", "updates"),
    [
        (0, None, [1, 2, 3, 4, 5, 6, 7, 8]),
        (1, None, [2, 3, 4, 5, 6, 7, 8]),
        ("3it", 5, [4, 5]),
        ((1, "epoch"), None, [4, 5, 6, 7, 8]),
        ("2ep", None, [7, 8]),
        (2, (2, "epoch"), [3, 4, 5, 6]),
    ],
)
def test_start_n_makes_update_n_plus_1_the_first_one_and_stop_n_update_n_the_last(start, stop, updates) -> None:
    assert active_in(Part("a", max, start=start, stop=stop)) == updates


def test_the_optimizer_has_the_name_of_the_part_unless_others_are_named() -> None:
    assert Part("a", max).optimizer_names == ("a",)
    assert Part("a", max, "b").optimizer_names == ("b",)
    assert Part("a", max, ["b", "c"]).optimizer_names == ("b", "c")


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"start": -1}, ValueError, "start of the part 'a' is -1; the least is 0"),
        ({"start": 1.5}, TypeError, "start of the part 'a' is 1.5"),
        ({"start": True}, TypeError, "must be a whole number, not True"),
        ({"start": "0.5ep"}, TypeError, "must be a whole number"),
        ({"start": "30"}, ValueError, "is not a time"),
        ({"start": "3sec"}, ValueError, "has the unit 'second'. Use 'iteration' or 'epoch'"),
        ({"start": (3, "steps")}, ValueError, "has the unit 'steps'"),
        ({"stop": 0}, ValueError, "stop of the part 'a' is 0; the least is 1"),
        ({"start": 4, "stop": 4}, ValueError, "stops at 4 and starts at 4, so it would never be trained"),
        ({"every": 0}, ValueError, "every of the part 'a' is 0"),
        ({"repeat": 1.0}, TypeError, "repeat of the part 'a' must be a whole number"),
        ({"clip": 0}, ValueError, "limits its gradients to 0"),
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message.replace(".", r"\.")):
        Part("a", max, **settings)


def test_names_and_losses_are_checked() -> None:
    with pytest.raises(TypeError, match="name of a part"):
        Part("", max)
    with pytest.raises(TypeError, match="cannot be called"):
        Part("a", 3)  # type: ignore[arg-type]


@pytest.mark.parametrize("generator_first", [True, False])
def test_adversarial_parts_come_in_the_order_asked_for(generator_first: bool) -> None:
    parts = adversarial_parts(max, min, generator_first=generator_first, generator_start=1, discriminator_start=2)
    names = ["generator", "discriminator"]
    assert [part.name for part in parts] == (names if generator_first else names[::-1])
    assert {part.name: active_in(part)[0] for part in parts} == {"generator": 2, "discriminator": 3}


@pytest.mark.parametrize("clip", [True, "1.0", [1.0], object()])
def test_what_limits_nothing_is_refused(clip: Any) -> None:
    with pytest.raises(TypeError, match=r"The part 'a' limits its gradients with .*Give the largest norm"):
        Part("a", max, clip=clip)


def test_a_threshold_is_named_as_it_was_written() -> None:
    with pytest.raises(TypeError, match=r"The start of the part 'a' must be a whole number, not '0\.5ep'"):
        Part("a", max, start="0.5ep")
