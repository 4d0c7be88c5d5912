"""Makes the helpers of tests that train known here."""

from __future__ import annotations

from training_fixtures import commands, face_cache, ostinato, people

__all__ = ["commands", "face_cache", "ostinato", "people"]
