"""The first minutes in a fresh clone: what the pages name is there, and a missing Python is explained."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]


def goals() -> set[str]:
    rules = re.findall(r"^([a-z ]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    return {goal for rule in rules for goal in rule.split()}


@pytest.mark.parametrize("page", PAGES)
def test_every_make_goal_that_a_page_names_exists(page: str) -> None:
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", (ROOT / page).read_text(), flags=re.MULTILINE))
    assert named <= goals()


@pytest.mark.parametrize("page", PAGES)
def test_every_link_into_the_repository_leads_somewhere(page: str) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text())
    missing = [link for link in links if "://" not in link and not (ROOT / link).exists()]
    assert missing == []


def test_help_names_every_goal() -> None:
    shown = subprocess.run(["make", "-C", str(ROOT), "help"], capture_output=True, text=True, check=True).stdout
    for goal in goals() - {"help"}:
        assert f"make {goal} " in shown


def find_python(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the search with only the programs in ``path``."""
    return subprocess.run(
        ["/bin/sh", str(ROOT / "tools/find_python.sh"), *arguments],
        env={"PATH": str(path)},
        capture_output=True,
        text=True,
    )


def stand_in(folder: Path, name: str, body: str) -> None:
    program = folder / name
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)


def test_the_first_python_that_is_new_enough_is_taken(tmp_path: Path) -> None:
    stand_in(tmp_path, "python3", "exit 1")
    stand_in(tmp_path, "python3.11", f'exec "{sys.executable}" "$@"')
    assert find_python(tmp_path).stdout == "python3.11\n"


def test_a_machine_without_a_new_python_is_told_what_is_needed(tmp_path: Path) -> None:
    stand_in(tmp_path, "python3", "exit 1")
    found = find_python(tmp_path)
    assert (found.returncode, found.stdout) == (1, "")
    assert "needs Python 3.10 or newer" in found.stderr


def test_a_python_that_cannot_make_environments_is_named_with_the_package_to_install(tmp_path: Path) -> None:
    # Debian's python3 without python3-venv: new enough, and no ensurepip.
    stand_in(tmp_path, "python3", f'case "$2" in *ensurepip*) exit 1;; esac; exec "{sys.executable}" "$@"')
    found = find_python(tmp_path)
    assert found.returncode == 1
    assert f"apt install python3.{sys.version_info.minor}-venv" in found.stderr


def test_a_python_that_was_asked_for_is_not_replaced_by_another(tmp_path: Path) -> None:
    stand_in(tmp_path, "python3", f'exec "{sys.executable}" "$@"')
    stand_in(tmp_path, "python3.9", "exit 1")
    found = find_python(tmp_path, "python3.9")
    assert found.returncode == 1
    assert "PYTHON=python3.9" in found.stderr
