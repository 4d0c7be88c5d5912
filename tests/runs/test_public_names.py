from __future__ import annotations

from ostinato import runs


def test_every_public_name_is_seen_before_it_is_used_and_can_be_imported() -> None:
    # Those who list a module's names, such as the reference pages, see only what dir() tells.
    assert set(runs.__all__) <= set(dir(runs))
    assert all(getattr(runs, name) is not None for name in runs.__all__)
    assert set(runs._HOME_OF) == set(runs.__all__)
