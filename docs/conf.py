"""How Sphinx builds these pages. The pages about options and commands get their tables from the program itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from ostinato import __version__

project = "Ostinato"
author = "The Ostinato developers"
copyright = "The Ostinato developers"  # the name that Sphinx looks for
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"

html_theme = "furo"
html_title = f"Ostinato {version}"
html_show_sphinx = False


def options_table() -> str:
    """Return the reference of every option, as Markdown."""
    from ostinato.config import SwapOptions, render_reference

    return render_reference(SwapOptions)


def recognition_options_table() -> str:
    """Return the reference of every option of a recognition training, as Markdown."""
    from ostinato.config import RecognitionOptions, render_reference

    return render_reference(RecognitionOptions)


def recognition_presets_table() -> str:
    """Return the published configurations as a Markdown table."""
    from ostinato.config.recognition_presets import RECOGNITION_PRESETS

    heads = "preset|backbone|m1, m2, m3|sampling|filter|optimizer|learning rate|weight decay|batch|epochs|warm-up"
    lines = [f"| {heads.replace('|', ' | ')} |", "|" + "---|" * (heads.count("|") + 1)]
    for name, preset in RECOGNITION_PRESETS.items():
        batch = f"{preset.batch_size} x {preset.ranks}" + (
            f" x {preset.accumulation}" if preset.accumulation > 1 else ""
        )
        cells = [
            f"`{name}`",
            preset.backbone,
            ", ".join(f"{margin:g}" for margin in preset.margin),
            f"{preset.sampling_rate:g}",
            f"{preset.interclass_threshold:g}",
            preset.optimizer,
            f"{preset.learning_rate:g}",
            f"{preset.weight_decay:g}",
            batch,
            str(preset.epochs),
            str(preset.warmup_epochs),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def commands() -> str:
    """Return what ``--help`` answers for every command, as Markdown."""
    import typer
    from typer.main import get_command

    from ostinato.cli.main import VERBS, build_app

    pages = [_help("ostinato")]
    for verb in VERBS:
        pages.append(_help("ostinato", verb))
        group: Any = get_command(build_app([verb]))
        found = group.get_command(typer.Context(group), verb)
        pages.extend(_help("ostinato", verb, name) for name in getattr(found, "commands", {}))
    return "\n".join(pages)


def _help(*words: str) -> str:
    # A process of its own, so that a page shows exactly what a plain terminal shows.
    environment = {**os.environ, "COLUMNS": "88", "TERM": "dumb", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    shown = subprocess.run(
        [sys.executable, "-c", "from ostinato.cli.main import main; main()", *words[1:], "--help"],
        capture_output=True,
        check=True,
        encoding="utf-8",
        env=environment,
    ).stdout
    lines = "\n".join(line.rstrip() for line in shown.strip().splitlines())
    return f"## `{' '.join(words)}`\n\n```text\n{lines}\n```\n"


GENERATED: dict[str, Callable[[], str]] = {
    "<!-- options -->": options_table,
    "<!-- recognition options -->": recognition_options_table,
    "<!-- recognition presets -->": recognition_presets_table,
    "<!-- commands -->": commands,
}


def fill_in(app: Any, docname: str, source: list[str]) -> None:
    """Replace the marks of :data:`GENERATED` by what the program says about itself."""
    for mark, generate in GENERATED.items():
        if mark in source[0]:
            source[0] = source[0].replace(mark, generate())


def setup(app: Any) -> None:
    app.connect("source-read", fill_in)
