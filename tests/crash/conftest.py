"""Makes the helpers of tests that train known here."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from training_fixtures import commands, face_cache, ostinato, people

__all__ = ["commands", "face_cache", "ostinato", "people"]
