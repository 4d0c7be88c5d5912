"""``ostinato recognition``: train face recognition with very many identities, and use what was trained.

Each command lives in a file of its own; this one only hangs them together.
"""

from __future__ import annotations

import importlib

import typer

app = typer.Typer(no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]})

_COMMANDS: dict[str, str] = {
    "train": "ostinato.cli.recognition_train",
    "pack": "ostinato.cli.recognition_data",
    "inspect": "ostinato.cli.recognition_data",
    "shuffle": "ostinato.cli.recognition_data",
    "unpack": "ostinato.cli.recognition_data",
    "clean": "ostinato.cli.recognition_clean",
    "plan": "ostinato.cli.recognition_plan",
    "verify": "ostinato.cli.recognition_verify",
    "embed": "ostinato.cli.recognition_verify",
    "pairs": "ostinato.cli.recognition_verify",
    "export": "ostinato.cli.recognition_export",
}
"""Name of each command and the module that defines it as a function of the same name."""

for _name, _module in _COMMANDS.items():
    app.command(_name)(getattr(importlib.import_module(_module), _name))
